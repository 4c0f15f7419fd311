"""One process tries a server that is gone, and the others learn its answer."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.socket_folder import host_file
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_server import AdbServer
from harness.transport.faults import OutOfReachError, Reach

ADDRESS = TcpAddress("lab-pc.invalid", 5037)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # pytest's own folders are too long for a socket
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


def test_one_looks_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    ours, others = Reach(ADDRESS), Reach(ADDRESS)
    others.require()
    pauses = []
    for _ in range(7):
        ours.mark_lost("it is gone")
        assert others.is_lost
        start = now[0]
        while True:
            try:
                others.require()
            except OutOfReachError as error:
                problem = str(error)
                now[0] += 0.25
            else:
                break
        assert problem == "it is gone"
        with pytest.raises(OutOfReachError):  # the other one is looking
            ours.require()
        pauses.append(now[0] - start)
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15]
    others.mark_reached()
    ours.require()
    assert not ours.is_lost


@pytest.mark.parametrize("content", ["", "[]", "{}", "nonsense", '["x", 1e300, 1]', "[1, 2]"])
def test_what_is_damaged_keeps_nobody_off(content: str) -> None:
    host_file(ADDRESS, "away").write_text(content)
    Reach(ADDRESS).require()


def test_a_server_that_is_not_found_is_told_the_same_way_twice() -> None:
    server = AdbServer(ADDRESS)
    texts = []
    for _ in range(2):
        with pytest.raises(InfraError) as caught:
            server.version(deadline=Deadline(20))
        texts.append(str(caught.value))
    assert "no adb server at lab-pc.invalid:5037" in texts[0]
    assert "adb server at lab-pc.invalid:5037 is out of reach" in texts[1]


def test_a_folder_that_others_may_change_is_refused() -> None:
    host_file(ADDRESS, "away").parent.chmod(0o777)
    with pytest.raises(InfraError, match="is not a private folder of this user"):
        Reach(ADDRESS)
