"""The probe as its tests use it: built once, plain and sanitized, and a backend that misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.files.cache import cache_root
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step
from harness.probe.run import ProbeRun, run_plan_locally
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
SANITIZERS = "address,undefined"
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


@pytest.fixture(scope="session")
def plain_probe(builder: ProbeBuilder) -> Path:
    return builder.build()


PLAIN_TOO = pytest.mark.parametrize("probe", ["plain", "sanitized"], indirect=True, scope="session")
"""For the few tests that run both by day: all others leave the plain probe to the night."""


@pytest.fixture(
    scope="session", params=[pytest.param("plain", marks=pytest.mark.nightly), "sanitized"]
)
def probe(request: pytest.FixtureRequest, builder: ProbeBuilder) -> Path:
    """The probe as it is delivered, and the same under AddressSanitizer and UBSan."""
    return builder.build(sanitize=SANITIZERS if request.param == "sanitized" else "")


Runner = Callable[..., ProbeRun]


@pytest.fixture
def run(probe: Path) -> Runner:
    """Runs steps in a probe process; a finding of a sanitizer fails the test."""

    def run_steps(
        *steps: Step,
        env: dict[str, str] | None = None,
        settings: Settings = DEFAULTS,
        timeout_s: float = 20,
        cwd: Path | None = None,
    ) -> ProbeRun:
        environment = ENVIRONMENT | (env or {})
        plan = Plan(steps, settings)
        done = run_plan_locally(probe, plan, env=environment, timeout_s=timeout_s, cwd=cwd)
        said = done.stderr.decode("utf-8", "replace")
        assert done.exit_code != SANITIZER_CODE, said
        assert "runtime error" not in said, said
        return done

    return run_steps


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
def stand_in_library(tmp_path_factory: pytest.TempPathFactory, builder: ProbeBuilder) -> Path:
    return build_backend(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture
def stand_in(stand_in_library: Path, tmp_path: Path) -> StandIn:
    return StandIn(stand_in_library, tmp_path)
