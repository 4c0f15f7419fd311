"""Another account of this computer gets nothing of our adb server and simulated devices."""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.simulator.private_server import PrivateAdbServer
from harness.transport.adb_address import UnixAddress
from tests.integration.transport.adb.conftest import OLD_ADB, old_adb
from tests.other_account import as_nobody

pytestmark = pytest.mark.needs("root")


@pytest.fixture(params=[36, pytest.param(29, marks=[OLD_ADB, pytest.mark.nightly])])
def private(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateAdbServer]:
    adb = old_adb() if request.param == 29 else None
    with PrivateAdbServer(key_folder=tmp_path, adb=adb) as private:
        yield private


def ask(address: UnixAddress) -> Callable[[], str]:
    def attempt() -> str:
        with address.connect(5) as connection:
            connection.sendall(b"000chost:version")
            return connection.recv(4).decode()

    return attempt


def test_the_servers_socket(private: PrivateAdbServer) -> None:
    address = private.server.address
    path = Path(address.path)
    assert ask(address)() == "OKAY"
    assert as_nobody(ask(address)) == "PermissionError"
    assert as_nobody(lambda: os.listdir(path.parent)) == "PermissionError"
    assert as_nobody(lambda: path.rename(path.with_name("mine"))) == "PermissionError"
    assert as_nobody(lambda: path.parent.rename("/tmp/mine")) == "PermissionError"
    # the file keeps others off by itself, too
    path.parent.chmod(0o755)
    assert as_nobody(ask(address)) == "PermissionError"


@pytest.mark.nightly
def test_it_listens_on_nothing_else(private: PrivateAdbServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute_at = f"127.0.0.1:{mute.getsockname()[1]}"
        private.server.client(Deadline(60)).query(f"host:connect:{mute_at}")
    sockets = set()
    for descriptor in Path(f"/proc/{private.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the server may just have closed it
            sockets |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            if line.split()[3] == "0A" and line.split()[9] in sockets:
                listening.append(line)
    assert listening == []
    names = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    ours = {name[7] for name in names if len(name) > 7 and name[6] in sockets}
    address = private.server.address
    assert ours == {address.path}
