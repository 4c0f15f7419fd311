"""A device that goes away, a link that stalls: always an error of ours, always in time."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.simulator.private_server import PrivateAdbServer
from harness.transport.adb_device import AdbDevice
from harness.transport.files import PushItem
from harness.transport.shell import END_GRACE_S
from tests.integration.transport.adb.conftest import (
    ANDROID_BY_NIGHT,
    LABS,
    SIMULATED_BY_NIGHT,
    Lab,
    Linked,
    Place,
)
from tests.integration.transport.adb.remote import SLACK_S, family, wait_ended, wait_ready
from tests.waiting import wait_for

SLOW = pytest.mark.parametrize(
    "lab", [SIMULATED_BY_NIGHT, *LABS[1:-1], ANDROID_BY_NIGHT], indirect=True, scope="session"
)
"""By day on the real adbd only: waiting for a deadline is all that these do."""
BIG = 24 << 20


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds + SLACK_S


@pytest.mark.parametrize("script", ["echo up; sleep 100", "echo up; cat >/dev/null"])
def test_a_link_that_is_cut(script: str, linked: Linked) -> None:
    """More in tests/faults/test_transport.py; here much input, and what came until then."""
    linked.link.bytes_per_s = 20e6
    stdin = bytes(BIG if "cat" in script else 0)
    with in_time(5), pytest.raises(DeviceLost) as caught:
        linked.device.shell(script, stdin=stdin, timeout_s=5, on_stdout=lambda _: linked.link.cut())
    assert (caught.value.serial, caught.value.output) == (linked.device.serial, b"up\n")


@pytest.mark.slow
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
    wait_ended(linked.device, linked.folder)
    assert linked.device.end_abandoned(timeout_s=60)


@pytest.fixture
def own_server(lab: Lab, shared: Place, home: Path) -> Iterator[tuple[PrivateAdbServer, AdbDevice]]:
    """A server that may be broken, and the shared device on it."""
    with PrivateAdbServer(key_folder=home, adb=lab.adb) as private:
        serial = shared.device.serial
        private.server.connect(serial, deadline=Deadline(10))
        yield private, AdbDevice(serial, private.server)


def test_a_server_that_is_killed(own_server: tuple[PrivateAdbServer, AdbDevice]) -> None:
    private, device = own_server

    def kill(_output: bytes) -> None:
        os.kill(private.pid, signal.SIGKILL)

    with in_time(5), pytest.raises(DeviceLost) as caught:
        device.shell("echo up; sleep 100", timeout_s=60, on_stdout=kill)
    assert caught.value.output == b"up\n"
    with in_time(1), pytest.raises(DeviceLost):
        device.shell("true", timeout_s=1)
    wait_for(lambda: not private.running, seconds=2)
    private.stop()
    private.start()
    again = AdbDevice(device.serial, private.server)
    private.server.connect(again.serial, deadline=Deadline(10))
    wait_ready(again)


@pytest.mark.slow
@SLOW
def test_a_server_that_is_frozen(own_server: tuple[PrivateAdbServer, AdbDevice]) -> None:
    private, device = own_server
    device.shell("true", timeout_s=60)
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


def test_a_daemon_that_is_too_old(
    shared: Place, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.transport.adb_device._NEEDED", ("shell_v2", "shell_v9"))
    device = AdbDevice(shared.device.serial, shared.device.server)
    for action in (
        lambda: device.shell("true", timeout_s=60),
        lambda: device.push([PushItem(b"content", f"{folder}/f")], timeout_s=60),
    ):
        with pytest.raises(DeviceRefused, match="shell_v9"):
            action()
