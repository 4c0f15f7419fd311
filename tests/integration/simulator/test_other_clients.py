"""Other clients of adb, on the simulated device and on a real adbd: one table.

Each cell works, or is refused with the words that the table tells. docs/lab.md shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mobly.controllers.android_device_lib import adb as mobly_adb

from harness.simulator.device import SimulatedDevice
from harness.simulator.programs import device_properties
from tests.integration.simulator import other_clients as clients
from tests.integration.simulator.conftest import ADB, AdbClient, running_server
from tests.integration.simulator.other_clients import Target
from tests.integration.transport.adb.conftest import old_adb
from tests.integration.transport.adb.real_adbd import RealDevice

SIMULATED, REAL = "simulated", "real"
DAEMONS = [
    SIMULATED,
    pytest.param(REAL, marks=pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")),
]


@dataclass(frozen=True)
class Row:
    """An action of a client, and the daemons that refuse it with these words."""

    client: str
    does: Callable[[Target], None]
    refused: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.client}: {self.does.__name__}"


COMMAND_LINE: list[Callable[[AdbClient, Target], None]] = [
    clients.shell,
    clients.exec_in,
    clients.exec_out,
]
BULK: list[Callable[[AdbClient, Target], None]] = [
    clients.many_files,
    clients.a_large_file,
]
LIBRARIES = [
    Row("adb-shell", clients.adb_shell),
    Row("pure-python-adb", clients.ppadb_files),
    Row("adbutils", clients.adbutils_shell),
    Row("adbutils", clients.adbutils_files),
    Row("mobly", clients.mobly),
    Row("mobly", clients.mobly_getprop, {REAL: "getprop: not found"}),
    Row("SimpleADB", clients.simple_adb),
]


def command_line_rows(client: str, pick: Callable[[Target], AdbClient | None]) -> Iterator[Row]:
    marks = (pytest.mark.needs("QNN_HARNESS_ADB29"),) if client == "adb 29" else ()
    for does in (*COMMAND_LINE, *BULK):

        def run(target: Target, does: Callable[[AdbClient, Target], None] = does) -> None:
            adb = pick(target)
            assert adb is not None
            does(adb, target)

        run.__name__ = does.__name__
        yield Row(client, run, marks=marks)


BULK_NAMES = {does.__name__ for does in BULK}
NEWEST = list(command_line_rows("adb 36", lambda target: target.newest))
OLDEST = list(command_line_rows("adb 29", lambda target: target.oldest))
TABLE = [*NEWEST, *(row for row in OLDEST if row.does.__name__ not in BULK_NAMES), *LIBRARIES]
REAL_BY_DAY = [row for row in NEWEST if row.does.__name__ not in BULK_NAMES]


@contextmanager
def target_of(daemon: str, home: Path) -> Iterator[Target]:
    """A device of that kind, connected to the newest adb server, and to adb 29's if it is here."""
    with ExitStack() as stack:
        newest = stack.enter_context(contextmanager(running_server)(home / "adb"))
        oldest = None
        if os.environ.get("QNN_HARNESS_ADB29"):
            server = contextmanager(running_server)(home / "adb", old_adb())
            oldest = stack.enter_context(server)
        storage = home / "storage"
        device: SimulatedDevice | RealDevice
        if daemon == REAL:
            device = RealDevice(Path(os.environ["QNN_HARNESS_ADBD_ROOT"]), storage=storage)
            folder = storage / "local/tmp"
        else:
            device = SimulatedDevice(
                "sim-clients",
                storage=storage,
                properties=device_properties("sim-clients", "QCS8550", root=os.getuid() == 0),
                public_key=newest.public_key,
            )
            folder = storage / "data/local/tmp"
        stack.enter_context(device)
        for item in filter(None, (newest, oldest)):
            item.connect(device.address)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(mobly_adb, "ADB", str(ADB))
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(newest.port))
        patch.setenv("PATH", f"{ADB.parent}:{os.environ['PATH']}")
        patch.setenv("QNN_SDK_ROOT", str(home / "sdk"))
        (home / "scratch").mkdir()
        yield Target(device.address, folder, newest, oldest, home / "scratch")


@pytest.fixture(scope="module", params=DAEMONS)
def daemon(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def target(daemon: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target_of(daemon, tmp_path_factory.mktemp("clients")) as created:
        yield created


def check(row: Row, daemon: str, target: Target) -> None:
    """That a cell is what the table says."""
    words = row.refused.get(daemon)
    if words is None:
        row.does(target)
        return
    with pytest.raises(Exception) as caught:
        row.does(target)
    assert not isinstance(caught.value, AssertionError)
    assert re.search(words, str(caught.value))


def cells() -> list[Any]:
    """Each row on both daemons; the real one, which no change of ours changes, by night.

    By day it is met by the command line's rows, so that what they tell of it is true.
    """
    return [
        pytest.param(
            daemon,
            row,
            id=f"{daemon}-{row.name}",
            marks=[
                *row.marks,
                *([pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")] if daemon == REAL else []),
                *([] if daemon == SIMULATED or row in REAL_BY_DAY else [pytest.mark.nightly]),
            ],
        )
        for daemon in (SIMULATED, REAL)
        for row in TABLE
    ]


@pytest.mark.parametrize(("daemon", "row"), cells(), indirect=["daemon"])
def test_other_clients(row: Row, daemon: str, target: Target) -> None:
    check(row, daemon, target)
