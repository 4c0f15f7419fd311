"""Starts the slow parts early and side by side: whole runs of pytest on labs that break."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.faults.breakable import BreakableLab
from tests.faults.cases_under_fault import ON
from tests.faults.table import ANDROID, REAL, SIMULATED, SSH
from tests.faults.unreachable import run_all
from tests.integration.device_runs import Finished
from tests.integration.lab.ssh_host import SSHD
from tests.needed import ANDROID as KIT

HERE = Path(__file__).parent
ADBD = "QNN_HARNESS_ADBD_ROOT"
NEEDS_REAL = pytest.mark.needs(ADBD)
NEEDS_ANDROID = [NEEDS_REAL, *map(pytest.mark.needs, (KIT, "qemu-aarch64"))]
AT_ONCE = 3


def daemon_parameters(
    daemons: tuple[str, ...], *values: Any, by_night: tuple[str, ...] = ()
) -> list[Any]:
    """`values` once for each daemon, on some only by night; those on the real one want it there."""
    marks = {
        SIMULATED: [],
        REAL: [NEEDS_REAL],
        ANDROID: [*NEEDS_ANDROID],
        SSH: [pytest.mark.needs(SSHD)],
    }
    for daemon in by_night:
        marks[daemon].append(pytest.mark.nightly)
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
        self.begin_for: Callable[[str], None] = lambda _file: None

    def begin(self, key: object, run: Callable[[], Any]) -> None:
        if key not in self._begun:
            self._begun[key] = self._pool.submit(run)

    def result(self, key: object) -> Any:
        return self._begun[key].result()


@pytest.fixture(scope="session")
def background(
    request: pytest.FixtureRequest, clock: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Background]:
    """All whole runs that the chosen tests look at, begun at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        background = Background(pool)

        known: set[str] = set()
        items = request.session.items

        def begin(files: set[str]) -> None:
            files -= known
            known.update(files)
            if "test_cases.py" in files:
                for daemon, faults in _faults(items).items():
                    key = ("cases", daemon)
                    background.begin(
                        key, partial(run_suite, tmp_path_factory, daemon, faults, clock)
                    )
                if any("out_of_reach" in item.name for item in items):
                    background.begin(
                        "unreachable", partial(run_all, tmp_path_factory.mktemp("reach"))
                    )
            if "test_ended_runs.py" in files:
                import_module("tests.faults.test_ended_runs").begin(
                    background, tmp_path_factory, items
                )

        # an xdist worker collects all tests, and knows only of each file it gets that it is its own
        background.begin_for = lambda file: begin({file})
        if not hasattr(request.config, "workerinput"):
            begin({item.path.name for item in items})
        yield background


@pytest.fixture(autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """The whole runs that this test's file looks at are under way."""
    if "background" in request.fixturenames:
        request.getfixturevalue("background").begin_for(request.path.name)


def _faults(items: list[pytest.Item]) -> dict[str, list[str]]:
    """The faults that test_cases.py wants injected on each daemon, the slower daemon first."""
    names: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.name == "test_cases.py":
            callspec = getattr(item, "callspec", None)
            parameters: dict[str, Any] = callspec.params if callspec else {}
            if {"daemon", "fault"} <= parameters.keys():
                names.setdefault(parameters["daemon"], set()).add(parameters["fault"].name)
    slowest_first = (ANDROID, REAL, SIMULATED) if os.environ.get(ADBD) else (SIMULATED,)
    return {daemon: sorted(names[daemon]) for daemon in slowest_first if daemon in names}


def run_suite(
    factory: pytest.TempPathFactory, daemon: str, faults: list[str], clock: Path
) -> Finished:
    folder = factory.mktemp(f"cases-{daemon}")
    old = os.environ.get("QNN_HARNESS_ADB29")
    expression = " or ".join(sorted({f"test_{ON.get(name, 'main')}" for name in faults}))
    with BreakableLab(folder, daemon, Path(old) if old else None) as lab:
        return lab.run(
            *("-k", expression),
            *("--retries", 1),  # a link that was cut after a case is found out by the next one
            suites=HERE / "cases_under_fault.py",
            QNN_FAULT_DAEMON=daemon,
            QNN_FAULT_NAMES=" ".join(faults),
            QNN_FAULT_CLOCK=str(clock),
            PYTHONPATH=str(HERE.parents[1]),
        )


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("clock") / "stand_in_clock.so"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, HERE / "stand_in_clock.c"], check=True, timeout=60)
    return library


@pytest.fixture
def run_cases(background: Background) -> Callable[[str], Finished]:
    """The run of cases_under_fault.py on a daemon."""
    return lambda daemon: background.result(("cases", daemon))
