"""The probe as its tests use it: built once, plain and sanitized, and a backend that misbehaves."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from harness.core.state_folders import cache_root
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.runtimes.runtime import Runtime
from tests.android.bionic import ARM64, BIONIC, X64, ProbeBuild, bionic_probe
from tests.needed import C_COMPILERS, need
from tests.stand_in.build import build_backend

# What a sanitizer finds in the probe ends it with this code, which the probe itself never uses.
SANITIZER_CODE = 66
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "ASAN_OPTIONS": f"exitcode={SANITIZER_CODE}:allocator_may_return_null=1",
    "UBSAN_OPTIONS": f"exitcode={SANITIZER_CODE}:print_stacktrace=1",
    "LSAN_OPTIONS": f"exitcode={SANITIZER_CODE}",
}
DEFAULTS = Settings()
DATA_TYPES = {
    0x0008: np.int8,
    0x0016: np.int16,
    0x0032: np.int32,
    0x0064: np.int64,
    0x0108: np.uint8,
    0x0116: np.uint16,
    0x0132: np.uint32,
    0x0164: np.uint64,
    0x0216: np.float16,
    0x0232: np.float32,
    0x0264: np.float64,
    0x0308: np.int8,
    0x0408: np.uint8,
    0x0416: np.uint16,
    0x0508: np.uint8,
}


@pytest.fixture(scope="session")
def builder() -> ProbeBuilder:
    need(*C_COMPILERS)
    return ProbeBuilder(cache_root() / "probe")


def sanitizing(builder: ProbeBuilder) -> ProbeBuilder:
    """Builds probes that end at what AddressSanitizer or UBSan finds."""
    checks = "address,undefined"
    compiler = f"cc -g -fsanitize={checks} -fno-sanitize-recover={checks}"
    return replace(builder, environment={**os.environ, "CC": compiler})


@pytest.fixture(scope="session")
def plain_probe(builder: ProbeBuilder) -> Path:
    return builder.build()


PLAIN_TOO = pytest.mark.parametrize("build", ["plain", "sanitized"], indirect=True, scope="session")
PLAIN_ONLY = pytest.mark.parametrize("build", ["plain"], indirect=True, scope="session")
ALL_BUILDS = pytest.mark.parametrize(
    "build", ["plain", "sanitized", *BIONIC], indirect=True, scope="session"
)
"""For the few tests that run them all by day: others leave the plain one and arm64 to the night."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test with every build of the probe; on Android's C library where that can be.

    It cannot with real QNN libraries: there are none for Android that run on this host.
    """
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "build" not in metafunc.fixturenames or "build" in chosen:
        return
    builds = ["sanitized", pytest.param("plain", marks=pytest.mark.nightly)]
    if not {"runtime_for", "catalog"}.intersection(metafunc.fixturenames):
        builds += [X64, pytest.param(ARM64, marks=pytest.mark.nightly)]
    metafunc.parametrize("build", builds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def bionic(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ProbeBuild]:
    """bionic(kind): the probe for Android, made once."""

    @cache
    def get(kind: str) -> ProbeBuild:
        return bionic_probe(kind, cache_root() / "probe", tmp_path_factory.mktemp(kind))

    return get


@pytest.fixture(scope="session")
def build(
    request: pytest.FixtureRequest, builder: ProbeBuilder, bionic: Callable[[str], ProbeBuild]
) -> ProbeBuild:
    """The probe as it is delivered, under AddressSanitizer and UBSan, or on Android's C library."""
    if request.param in BIONIC:
        return bionic(request.param)
    chosen = sanitizing(builder) if request.param == "sanitized" else builder
    return ProbeBuild(chosen.build(), "cc", "libm.so.6")


@pytest.fixture(scope="session")
def probe(build: ProbeBuild) -> Path:
    return build.probe


Runner = Callable[..., ProbeRun]


@pytest.fixture
def run(probe: Path) -> Runner:
    """Runs steps in a probe process; a finding of a sanitizer fails the test."""

    def run_steps(
        *steps: Step,
        env: dict[str, str] | None = None,
        settings: Settings = DEFAULTS,
        timeout_s: float = 20,
    ) -> ProbeRun:
        environment = ENVIRONMENT | (env or {})
        plan = Plan(steps, settings)
        completed = run_plan_locally(probe, plan, env=environment, timeout_s=timeout_s)
        errors = completed.stderr.decode("utf-8", "replace")
        assert completed.exit_code != SANITIZER_CODE, errors
        assert "runtime error" not in errors, errors
        return completed

    return run_steps


def opening(
    runtime: Runtime, backend: str = "libQnnHtp.so", device: Step | None = None
) -> tuple[tuple[Step, ...], dict[str, str]]:
    """The steps that open a backend and its device, and the environment that they need."""
    paths = {file.path.name: file.path for file in runtime.files}
    folders = dict.fromkeys(str(path.parent) for path in paths.values())
    steps = (
        plan.backend_load(str(paths[backend])),
        plan.system_load(str(paths["libQnnSystem.so"])),
        Step("log-create"),
        Step("backend-create"),
        device or plan.device_create(),
    )
    return steps, {"LD_LIBRARY_PATH": ":".join(folders)}


@dataclass(frozen=True)
class StandIn:
    """A backend whose behaviour is chosen by what its context binary says."""

    library: Path
    folder: Path

    def binary(self, behaviour: str, data_type: int = 0x0232, shape: Iterable[int] = (4,)) -> str:
        """A "context binary": its graph copies one tensor of this type and shape."""
        shape = tuple(shape)
        path = self.folder / f"{behaviour}-{data_type:04x}-{'x'.join(map(str, shape))}.bin"
        dimensions = " ".join(map(str, shape))
        path.write_text(f"stand-in {behaviour} {data_type:x} {len(shape)} {dimensions}\n")
        return str(path)

    def file(self, name: str, content: bytes | np.ndarray) -> str:
        """A file with an input or an expected output."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.tobytes())
        return str(path)

    def opened(self, *steps: Step) -> tuple[Step, ...]:
        """The steps that open the stand-in, and then these."""
        library = str(self.library)
        created = map(Step, ("log-create", "backend-create", "device-create"))
        return (plan.backend_load(library), plan.system_load(library), *created, *steps)


@pytest.fixture(scope="session")
def stand_in_library(tmp_path_factory: pytest.TempPathFactory, build: ProbeBuild) -> Path:
    return build_backend(tmp_path_factory.mktemp("stand-in"), build.compiler)


@pytest.fixture
def stand_in(stand_in_library: Path, tmp_path: Path) -> StandIn:
    return StandIn(stand_in_library, tmp_path)
