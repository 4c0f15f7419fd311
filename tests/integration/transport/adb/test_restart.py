"""An adb server is ended and started anew at its address, as where the user asked for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.transport.adb_server import AdbServer
from tests.faults.breakable import KeptServer


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptServer]:
    monkeypatch.setenv("HOME", str(tmp_path))
    server = KeptServer(tmp_path)
    server.start()
    yield server
    server.stop()
    with contextlib.suppress(InfraError):
        server.server.query("host:kill", deadline=Deadline(5))


@pytest.mark.parametrize("was_running", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_server_answers_anew(adb: KeptServer, was_running: bool) -> None:
    if not was_running:
        adb.stop()
    server = AdbServer(adb.server.address)
    assert server.is_running() == was_running
    server.restart(deadline=Deadline(20))
    assert server.is_running()
    adb.stop()
    assert server.is_running(), "it is another process than before"
