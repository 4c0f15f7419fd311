"""A device that goes away, a link that stalls: always an error of ours, always in time."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.files import PushItem
from harness.transport.shell import END_GRACE_S
from tests.integration.transport.adb.conftest import (
    ANDROID_BY_NIGHT,
    LABS,
    SIMULATED_BY_NIGHT,
    Lab,
    Linked,
    Place,
    linked_to,
)
from tests.integration.transport.adb.remote import SLACK_S, family, survivors, wait_ready

SLOW = pytest.mark.parametrize(
    "lab",
    [SIMULATED_BY_NIGHT, *LABS[1:-1], ANDROID_BY_NIGHT],
    indirect=True,
    scope="session",
)
"""By day on the real adbd only: waiting for a deadline is all that these do."""
BIG = 24 << 20
TIMEOUT_S = 1.5


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds + SLACK_S


def operations(linked: Linked, local: Path) -> dict[str, Callable[[float], object]]:
    device, folder = linked.device, linked.folder
    return {
        "shell": lambda s: device.shell("echo up; sleep 100", timeout_s=s),
        "shell-in": lambda s: device.shell("cat >/dev/null", stdin=bytes(BIG), timeout_s=s),
        "shell-out": lambda s: device.shell(
            "echo up; cat /dev/zero", timeout_s=s, max_output_bytes=1 << 40
        ),
        "push": lambda s: device.push([PushItem(bytes(BIG), f"{folder}/big")], timeout_s=s),
        "pull": lambda s: device.pull(f"{folder}/source", local, timeout_s=s, max_bytes=BIG),
        "stat": lambda s: device.stat(folder, timeout_s=s),
    }


STREAMING = ["shell", "shell-in", "shell-out", "push", "pull"]


@pytest.fixture
def with_source(linked: Linked) -> Linked:
    linked.device.push([PushItem(bytes(BIG), f"{linked.folder}/source")], timeout_s=60)
    return linked


@pytest.mark.parametrize("name", STREAMING)
def test_a_link_that_is_cut(name: str, with_source: Linked, tmp_path: Path) -> None:
    operation = operations(with_source, tmp_path / "local")[name]
    if name == "shell":
        threading.Timer(0.3, with_source.link.cut).start()
    else:
        with_source.link.cut_after(4 << 20)
    with in_time(5), pytest.raises(DeviceLost) as caught:
        operation(5)
    assert caught.value.serial == with_source.device.serial
    if name == "shell":
        assert caught.value.output == b"up\n"
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_a_link_that_stalls(lab: Lab, shared: Place, folder: str, tmp_path: Path) -> None:
    """Every operation over a link of its own, all at once, since waiting is all they do."""
    shared.device.push([PushItem(bytes(BIG), f"{folder}/source")], timeout_s=60)

    def stalled(name: str) -> str:
        with linked_to(lab, shared.device.serial, folder) as linked:
            operation = operations(linked, tmp_path / "local")[name]
            if name == "shell":
                threading.Timer(0.3, linked.link.stall).start()
            elif name in STREAMING:
                linked.link.stall_after(4 << 20)
            else:
                linked.link.stall()
            grace = END_GRACE_S if name.startswith("shell") else 0
            with in_time(TIMEOUT_S + grace), pytest.raises(DeviceTimeout) as caught:
                operation(TIMEOUT_S)
            if name == "shell":
                assert caught.value.output == b"up\n"
            return name

    names = [*STREAMING, "stat"]
    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(stalled, names)) == names
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_a_device_that_stops(lab: Lab, tmp_path: Path) -> None:
    for name in ("shell", "push", "pull"):
        daemon, folder = lab.start()
        with linked_to(lab, daemon.address, folder) as linked:
            source = PushItem(bytes(BIG), f"{linked.folder}/source")
            linked.device.push([source], timeout_s=60)
            linked.link.bytes_per_s = 20e6
            stopping = threading.Timer(0.3, daemon.stop)
            stopping.start()
            with in_time(8), pytest.raises(DeviceLost):
                operations(linked, tmp_path / "local")[name](8)
            stopping.join()
            assert list(tmp_path.iterdir()) == []
            with in_time(1), pytest.raises(DeviceLost):
                linked.device.shell("true", timeout_s=1)


def test_a_slow_link_is_no_fault(with_source: Linked) -> None:
    with_source.link.bytes_per_s = 2e6
    completed = with_source.device.shell("head -c 500000 /dev/zero", timeout_s=60)
    assert (len(completed.stdout), completed.exit_code) == (500_000, 0)


def test_a_device_that_comes_back_is_ready_again(linked: Linked, lab: Lab) -> None:
    linked.link.cut()
    with pytest.raises(InfraError):
        linked.device.shell("true", timeout_s=1)
    linked.link.resume()
    lab.connect(linked.link.address)
    wait_ready(linked.device)
    assert linked.device.shell("true", timeout_s=60).ok


@SLOW
@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_what_a_broken_link_left_running_is_ended_before_the_next_script(
    fault: str, linked: Linked, lab: Lab
) -> None:
    def break_it(_output: bytes) -> None:
        getattr(linked.link, fault)()

    with pytest.raises((DeviceLost, DeviceTimeout)):
        linked.device.shell(family(linked.folder), timeout_s=1, on_stdout=break_it)
    linked.link.resume()
    lab.connect(linked.link.address)
    wait_ready(linked.device)
    assert survivors(linked.device, linked.folder) == []
    assert linked.device.end_abandoned(timeout_s=60)


def test_a_server_that_is_not_there() -> None:
    device = AdbDevice("nobody", AdbServer(TcpAddress(port=1)))
    with in_time(1), pytest.raises(DeviceLost, match="no adb server"):
        device.shell("true", timeout_s=1)
    with in_time(1), pytest.raises(InfraError, match="no adb server"):
        device.server.devices()


@pytest.fixture
def own_server(lab: Lab, shared: Place, home: Path) -> Iterator[tuple[PrivateAdbServer, AdbDevice]]:
    """A server that may be broken, and the shared device on it."""
    with PrivateAdbServer(key_folder=home, adb=lab.adb) as private:
        serial = shared.device.serial
        private.server.connect(serial, deadline=Deadline(10))
        yield private, AdbDevice(serial, private.server)


def test_what_is_no_adb_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            asker, _ = other.accept()
            with asker:
                asker.recv(100)
                asker.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        address = TcpAddress(port=other.getsockname()[1])
        problem = f"{address} did not answer as an adb server does: b'HTTP'"
        with in_time(5), pytest.raises(InfraError, match=re.escape(problem)):
            AdbServer(address).devices()
        answering.join()


def test_a_server_that_is_killed(own_server: tuple[PrivateAdbServer, AdbDevice]) -> None:
    private, device = own_server

    def kill(_output: bytes) -> None:
        assert private.pid is not None
        os.kill(private.pid, signal.SIGKILL)

    with in_time(5), pytest.raises(DeviceLost) as caught:
        device.shell("echo up; sleep 100", timeout_s=60, on_stdout=kill)
    assert caught.value.output == b"up\n"
    with in_time(1), pytest.raises(DeviceLost, match="no adb server at"):
        device.shell("true", timeout_s=1)
    deadline = Deadline(2)
    while private.running:
        assert not deadline.expired
    private.stop()
    private.start()
    again = AdbDevice(device.serial, private.server)
    private.server.connect(again.serial, deadline=Deadline(10))
    wait_ready(again)


@SLOW
def test_a_server_that_is_frozen(own_server: tuple[PrivateAdbServer, AdbDevice]) -> None:
    private, device = own_server
    device.shell("true", timeout_s=60)
    assert private.pid is not None
    os.kill(private.pid, signal.SIGSTOP)
    try:
        with in_time(0.3 + END_GRACE_S), pytest.raises(DeviceTimeout):
            device.shell("true", timeout_s=0.3)
        with in_time(0.3), pytest.raises(DeviceTimeout):
            device.push([PushItem(b"x", "/never/sent")], timeout_s=0.3)
        with in_time(0.3), pytest.raises(InfraError):
            device.server.devices(timeout_s=0.3)
    finally:
        os.kill(private.pid, signal.SIGCONT)


def test_a_device_that_is_not_there(adb_server: AdbServer) -> None:
    with in_time(1), pytest.raises(DeviceLost, match="not found"):
        AdbDevice("nobody", adb_server).shell("true", timeout_s=1)


def simulated(lab: Lab) -> None:
    if lab.kind != "simulated":
        pytest.skip("only a simulated device can be told to do this")


def test_a_device_that_does_not_accept_our_key(lab: Lab, tmp_path: Path) -> None:
    simulated(lab)
    other = harness_key(tmp_path).with_suffix(".pub")
    daemon, _ = lab.start(public_key=other)
    with in_time(10), pytest.raises(InfraError, match="unauthorized"):
        lab.connect(daemon.address)
    assert daemon.address not in [device.serial for device in lab.server.devices()]
    daemon.stop()


def test_a_device_whose_storage_is_full(lab: Lab) -> None:
    daemon, folder = lab.start(storage_limit_bytes=1_000_000)
    device = lab.connect(daemon.address)
    with pytest.raises(DeviceRefused, match="No space left on device"):
        device.push([PushItem(bytes(2_000_000), f"{folder}/big")], timeout_s=60)
    daemon.stop()


def test_a_path_outside_the_storage(lab: Lab, shared: Place) -> None:
    simulated(lab)
    with pytest.raises(DeviceRefused, match="Permission denied"):
        shared.device.push([PushItem(b"x", "/tmp/qnn-harness-escape")], timeout_s=60)


def test_a_daemon_that_is_too_old(
    shared: Place, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.transport.adb_device._NEEDED", ("shell_v2", "shell_v9"))
    device = AdbDevice(shared.device.serial, shared.device.server)
    for action in (
        lambda: device.shell("true", timeout_s=60),
        lambda: device.push([PushItem(b"content", f"{folder}/f")], timeout_s=60),
    ):
        with pytest.raises(DeviceRefused, match="too old, it has no shell_v9: update it, or"):
            action()
