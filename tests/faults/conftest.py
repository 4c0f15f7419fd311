"""Starts the slow parts early and side by side: whole runs of pytest on labs that break."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, clock: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Finished]]]:
    """All whole runs that the chosen tests of the file look at, begun at once."""
    items = [item for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {
            daemon: pool.submit(run_suite, tmp_path_factory, daemon, faults, clock)
            for daemon, faults in _faults(items).items()
        }
        if any("out_of_reach" in item.name for item in items):
            runs["unreachable"] = pool.submit(run_all, tmp_path_factory.mktemp("reach"))
        yield runs


def _faults(items: list[pytest.Item]) -> dict[str, list[str]]:
    """The faults that test_cases.py wants injected on each daemon, the slower daemon first."""
    names: dict[str, set[str]] = {}
    for item in items:
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
            *(
                "-o",
                "qnn_retries=1",
            ),  # a link that was cut after a case is found out by the next one
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
