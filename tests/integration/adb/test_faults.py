"""A device that goes away, a link that stalls: always an error of ours, always in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.adb.device import AdbDevice, PushItem
from harness.adb.server import AdbServer
from harness.adb.shell import END_GRACE_S
from harness.errors import DeviceLost, DeviceTimeout, InfraError
from tests.integration.adb.conftest import Lab, Linked
from tests.integration.adb.remote import family, wait_for_none

BIG = 48 << 20
TIMEOUT_S = 1.0
SLACK_S = 0.5


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + SLACK_S


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
        "list": lambda s: device.list(folder, timeout_s=s),
    }


STREAMING = ["shell", "shell-in", "shell-out", "push", "pull"]


@pytest.fixture
def with_source(linked: Linked) -> Linked:
    linked.device.push([PushItem(bytes(BIG), f"{linked.folder}/source")], timeout_s=20)
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


@pytest.mark.parametrize("name", [*STREAMING, "stat", "list"])
def test_a_link_that_stalls(name: str, with_source: Linked, tmp_path: Path) -> None:
    operation = operations(with_source, tmp_path / "local")[name]
    if name == "shell":
        threading.Timer(0.3, with_source.link.stall).start()
    elif name in STREAMING:
        with_source.link.stall_after(4 << 20)
    else:
        with_source.link.stall()
    grace = END_GRACE_S if name.startswith("shell") else 0
    with in_time(TIMEOUT_S + grace), pytest.raises(DeviceTimeout) as caught:
        operation(TIMEOUT_S)
    if name == "shell":
        assert caught.value.output == b"up\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["shell", "push", "pull"])
def test_a_device_that_stops(name: str, with_source: Linked, tmp_path: Path) -> None:
    operation = operations(with_source, tmp_path / "local")[name]
    with_source.link.bytes_per_s = 20e6
    stopping = threading.Timer(0.3, with_source.daemon.stop)
    stopping.start()
    with in_time(8), pytest.raises(DeviceLost):
        operation(8)
    stopping.join()
    assert list(tmp_path.iterdir()) == []
    with in_time(1), pytest.raises(DeviceLost):
        with_source.device.shell("true", timeout_s=1)


def test_a_slow_link_is_no_fault(with_source: Linked) -> None:
    with_source.link.bytes_per_s = 2e6
    done = with_source.device.shell("head -c 500000 /dev/zero", timeout_s=10)
    assert (len(done.stdout), done.exit_code) == (500_000, 0)


def test_what_ran_when_the_link_broke_can_be_ended_later(linked: Linked) -> None:
    threading.Timer(0.5, linked.link.cut).start()
    with pytest.raises(DeviceLost):
        linked.device.shell(family(linked.folder), timeout_s=10)
    linked.link.resume()
    with pytest.raises(InfraError, match="not ready within"):
        linked.device.wait_ready(timeout_s=0.3)


def test_a_device_that_comes_back_is_ready_again(linked: Linked, lab: Lab) -> None:
    linked.link.cut()
    with pytest.raises(InfraError):
        linked.device.shell("true", timeout_s=1)
    linked.link.resume()
    lab.connect(linked.link.address)
    linked.device.wait_ready(timeout_s=10)
    assert linked.device.shell("true", timeout_s=5).ok


def test_after_a_stall_the_deadline_has_ended_what_ran(linked: Linked) -> None:
    """The request to end it waits in the link, and is served when the link flows again."""
    threading.Timer(0.7, linked.link.stall).start()
    with pytest.raises(DeviceTimeout, match="may still run"):
        linked.device.shell(family(linked.folder), timeout_s=1)
    linked.link.resume()
    wait_for_none(linked.device, linked.folder, 10)


def test_a_server_that_is_not_there() -> None:
    device = AdbDevice("nobody", AdbServer(port=1))
    with in_time(1), pytest.raises(DeviceLost, match="no adb server"):
        device.shell("true", timeout_s=1)
    with in_time(1), pytest.raises(InfraError, match="no adb server"):
        device.server.devices()


def test_a_device_that_is_not_there(adb_server: AdbServer) -> None:
    with in_time(1), pytest.raises(DeviceLost, match="not found"):
        AdbDevice("nobody", adb_server).shell("true", timeout_s=1)
