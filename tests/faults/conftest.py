"""Starts the slow parts early and side by side: whole runs of pytest on labs that break."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.breakable import BreakableLab
from tests.faults.table import REAL, SIMULATED
from tests.integration.device_runs import Finished

HERE = Path(__file__).parent
NEEDS_REAL = pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
AT_ONCE = 2


def daemon_parameters(daemons: tuple[str, ...], *values: Any) -> list[Any]:
    """`values` once for each daemon; those on the real one want it there."""
    marks = {SIMULATED: [], REAL: [NEEDS_REAL]}
    return [
        pytest.param(daemon, *values, marks=marks[daemon], id=_name(daemon, *values))
        for daemon in daemons
    ]


def _name(daemon: str, *values: Any) -> str:
    return "-".join([daemon, *(getattr(value, "name", str(value)) for value in values)])


class Background:
    """Runs whole runs of pytest side by side, each once; `result` waits for one."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._begun: dict[object, Future[Any]] = {}

    def begin(self, key: object, run: Callable[[], Any]) -> None:
        if key not in self._begun:
            self._begun[key] = self._pool.submit(run)

    def result(self, key: object, run: Callable[[], Any]) -> Any:
        self.begin(key, run)
        return self._begun[key].result()


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield Background(pool)


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of stand_in_clock.c."""
    library = tmp_path_factory.mktemp("clock") / "stand_in_clock.so"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, HERE / "stand_in_clock.c"], check=True, timeout=60)
    return library


@pytest.fixture(scope="session")
def run_cases(
    background: Background,
    clock: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Callable[[str], Finished]:
    """The run of cases_under_fault.py on a daemon; that on the other one runs meanwhile."""

    def runner(daemon: str) -> Callable[[], Finished]:
        folder = tmp_path_factory.mktemp(f"cases-{daemon}")

        def run() -> Finished:
            old = os.environ.get("QNN_HARNESS_ADB29")
            with BreakableLab(folder, daemon, Path(old) if old else None) as lab:
                return lab.run(
                    suites=HERE / "cases_under_fault.py",
                    QNN_FAULT_DAEMON=daemon,
                    QNN_FAULT_CLOCK=str(clock),
                    PYTHONPATH=str(HERE.parents[1]),
                )

        return run

    wanted = {
        item.callspec.params.get("daemon")
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and item.path.name == "test_cases.py"
    }
    runners = {daemon: runner(daemon) for daemon in (SIMULATED, REAL)}
    for daemon in sorted(filter(None, wanted), reverse=True):
        if daemon != REAL or os.environ.get("QNN_HARNESS_ADBD_ROOT"):
            background.begin(("cases", daemon), runners[daemon])
    return lambda daemon: background.result(("cases", daemon), runners[daemon])
