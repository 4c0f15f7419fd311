"""The plainest other way to run tests on a farm: a file lock for each device around each test.

`test_farm.py` copies this file as `conftest.py` into a folder of tests, for a run by
`pytest -n N --dist load`. It is what somebody writes in an hour, and no part of the harness.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

HERE = Path(__file__).parent
FARM = json.loads((HERE / "farm.json").read_text())
"""The command of adb, the serials of the devices, and what is put on each."""


class Device:
    """A device that this test has to itself."""

    def __init__(self, serial: str) -> None:
        self.serial = serial

    def adb(self, *words: str) -> str:
        """Runs a command of adb for it."""
        command = [*FARM["adb"], "-s", self.serial, *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stdout


@pytest.fixture
def device() -> Iterator[Device]:
    """The first device that is free, with the files on it."""
    while True:
        for serial in FARM["serials"]:
            lock = filelock.FileLock(HERE / f"{serial}.lock", timeout=0)
            with contextlib.suppress(filelock.Timeout), lock:
                device_, mark = Device(serial), HERE / f"{serial}.pushed"
                if not mark.exists():
                    device_.adb("push", FARM["files"], FARM["folders"][serial])
                    mark.touch()
                yield device_
                return
        time.sleep(0.02)
