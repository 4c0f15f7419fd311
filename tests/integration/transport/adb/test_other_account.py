"""Another account of this computer gets nothing of our adb server and simulated devices."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_address import UnixAddress
from tests.integration.transport.adb.conftest import CONNECT_S, OLD_ADB, old_adb
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
    assert isinstance(address, UnixAddress)
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
    assert private.pid is not None
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
    assert isinstance(address, UnixAddress)
    assert ours == {address.path}


@pytest.fixture
def simulated(private: PrivateAdbServer, tmp_path: Path) -> Iterator[SimulatedDevice]:
    """A simulated device on that server, away for a second when it reboots."""
    device = SimulatedDevice(
        "sim-test",
        storage=tmp_path / "storage",
        properties={"ro.product.model": "Test", "ro.soc.model": "QCS8550"},
        public_key=harness_key(tmp_path).with_suffix(".pub"),
        reboot_s=1,
    )
    with device:
        private.server.connect(device.address, deadline=Deadline(CONNECT_S))
        yield device


def test_the_port_cannot_be_taken_while_the_device_reboots(
    private: PrivateAdbServer, simulated: SimulatedDevice
) -> None:
    host, _, port = simulated.address.rpartition(":")

    def take() -> None:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, int(port)))
            other.listen()

    deadline, looked_for = Deadline(4 * CONNECT_S), Deadline(0)
    while True:
        assert not deadline.expired
        if looked_for.expired:  # on a busy computer the second that it is away may pass unseen
            private.server.connect(simulated.address, deadline=Deadline(CONNECT_S))
            device = private.server.client(Deadline(CONNECT_S)).device(simulated.address)
            device.open_service("reboot:").close()
            looked_for = Deadline(5)
        try:
            socket.create_connection((host, int(port)), timeout=60).close()
        except ConnectionRefusedError:
            break
        except ConnectionResetError:
            continue  # it ended just as we came
    with pytest.raises(OSError, match="in use"):
        take()
    assert as_nobody(take) == "OSError"
    private.server.connect(simulated.address, deadline=Deadline(CONNECT_S))
