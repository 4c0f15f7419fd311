"""Runs plans against the real simulator library and against the stand-in in front of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import FASTRPC, build_fastrpc
from harness.models.session_plan import Context, DeployedContext, Libraries
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.runtimes.runtime import Runtime
from tests.needed import C_COMPILERS, need
from tests.stand_in.build import build_htp, c_compiler

QNN = "2.51.0"


@dataclass(frozen=True)
class Target:
    """Libraries on this host, and how a probe process finds what they need."""

    libraries: Libraries
    environment: dict[str, str]
    probe: Path

    def run(self, plan: Plan, *, settings: str = "", timeout_s: float = 60) -> ProbeRun:
        """One probe process; `told` is what the stand-in is to do."""
        environment = self.environment | ({"STAND_IN": settings} if settings else {})
        return run_plan_locally(self.probe, plan, env=environment, timeout_s=timeout_s)


@pytest.fixture(scope="session")
def builder(user_cache: Path) -> ProbeBuilder:
    need(*C_COMPILERS)
    return ProbeBuilder(user_cache / "probe")


@pytest.fixture(scope="session")
def probe(builder: ProbeBuilder) -> Path:
    return builder.build()


@pytest.fixture(scope="session")
def real(probe: Path, runtime_for: Callable[..., Runtime]) -> Target:
    """The simulator library as it is."""
    runtime = runtime_for(QNN)
    libraries = Libraries(
        backend=str(runtime.library("libQnnHtp.so")),
        system=str(runtime.library("libQnnSystem.so")),
    )
    folders = ":".join(str(runtime.root / folder) for folder in runtime.library_dirs)
    return Target(libraries, {"LD_LIBRARY_PATH": folders}, probe)


@pytest.fixture(scope="session")
def stand_in(real: Target, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The stand-in in front of it, with a libcdsprpc as a device has one."""
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / FASTRPC).symlink_to(build_fastrpc([c_compiler()], cache_root() / BOARDS))
    environment = {
        "LD_LIBRARY_PATH": f"{folder}:{real.environment['LD_LIBRARY_PATH']}",
        "STAND_IN_REAL": real.libraries.backend,
        "STAND_IN_SYSTEM": real.libraries.system,
    }
    libraries = Libraries(backend=str(build_htp(folder)), system=real.libraries.system)
    return Target(libraries, environment, real.probe)


@pytest.fixture(scope="session")
def deployed(context_for: Callable[..., Context]) -> Callable[[str], DeployedContext]:
    """deployed(model): a context of this QNN version, where it lies on this host."""

    def get(model: str) -> DeployedContext:
        context = context_for(model, QNN)
        return DeployedContext(
            context=context,
            binary=str(context.path),
            inputs=tuple(map(str, context.inputs)),
            expected=tuple(map(str, context.expected)),
        )

    return get
