"""One process tries a server that is gone, and the others learn its answer."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.socket_folder import host_file
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_server import AdbServer
from harness.transport.faults import OutOfReachError, Reach, server_lost

ADDRESS = TcpAddress("lab-pc.invalid", 5037)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # pytest's own folders are too long for a socket
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


def test_one_looks_and_the_others_are_told() -> None:
    ours, others = Reach(ADDRESS), Reach(ADDRESS)
    others.require()
    ours.mark_lost("it is gone")
    assert others.is_lost
    for reach in (ours, others):
        with pytest.raises(OutOfReachError, match="it is gone"):
            reach.require()
    earlier = time.time() - 60
    os.utime(host_file(ADDRESS, "away"), (earlier, earlier))
    ours.require()
    with pytest.raises(OutOfReachError):  # the other one is looking
        others.require()
    others.mark_reached()
    others.require()
    assert not ours.is_lost


def test_a_server_that_is_not_found_is_told_the_same_way_twice() -> None:
    server = AdbServer(ADDRESS)
    texts = []
    for _ in range(2):
        with pytest.raises(InfraError) as caught:
            server.version(deadline=Deadline(20))
        texts.append(str(caught.value))
    assert [server_lost(text) for text in texts] == [str(ADDRESS)] * 2
    assert texts[0] != texts[1]


def test_a_folder_that_others_may_change_is_refused() -> None:
    host_file(ADDRESS, "away").parent.chmod(0o777)
    with pytest.raises(InfraError, match="not a private folder"):
        Reach(ADDRESS)
