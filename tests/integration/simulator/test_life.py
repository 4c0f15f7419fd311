"""Authorization, reboots and crashes of a device, and leftovers of killed processes."""

import os
import signal
import socket
import struct
import time
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.simulator import protocol
from harness.simulator.device import SimulatedDevice
from harness.simulator.protocol import Packet, encode
from tests.integration.simulator.conftest import (
    AdbClient,
    OnDevice,
    StartDevice,
    processes_of,
    receive,
    run_python,
)
from tests.waiting import wait_for

HOLDER = """
import sys, time
from pathlib import Path
from harness.simulator.device import SimulatedDevice
storage, key = map(Path, sys.argv[1:])
device = SimulatedDevice("held", storage=storage, properties={}, public_key=key)
device.start()
print(device.address, flush=True)
time.sleep(1000)
"""
BUSY = "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & echo busy; sleep 1000"


def make_busy(adb: AdbClient, serial: str) -> socket.socket:
    """A command on the device with children in its group and out of its session."""
    stream = adb.open(serial, f"shell,v2,raw:{BUSY}")
    assert receive(stream, 10) == struct.pack("<BI", 1, 5) + b"busy\n"
    return stream


def boot_pid(device: SimulatedDevice) -> int:
    children = Path(f"/proc/{device.pid}/task/{device.pid}/children")
    return int(children.read_text().split()[0])


def test_another_key_is_unauthorized(stranger: AdbClient, shared: OnDevice) -> None:
    serial = shared.device.address
    assert b"failed to authenticate" in stranger("connect", serial).stdout
    wait_for(lambda: stranger.state(serial) == "unauthorized", "it is unauthorized")
    assert stranger("shell", "true", serial=serial).returncode != 0
    with pytest.raises(ConnectionError):
        stranger.open(serial, "shell:true")
    stranger("disconnect", serial)
    assert shared.text("echo still here") == "still here"
    assert "refused key" in shared("logcat", "-d").stdout.decode()


def connect_raw(device: SimulatedDevice) -> socket.socket:
    host, port = device.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(5000),
        encode(Packet(protocol.OPEN, 1, 0, b"shell:id\0")),
        protocol.header(protocol.CNXN, protocol.VERSION, 1 << 20, 0xFFFFFFFF),
        encode(Packet(protocol.CNXN, 0x01000000, 4096, b"host::\0")),
    ],
)
def test_garbage_is_dropped(shared: OnDevice, data: bytes) -> None:
    with connect_raw(shared.device) as connection:
        connection.sendall(data)
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert shared.text("echo undisturbed") == "undisturbed"


def test_reboot(adb: AdbClient, start_device: StartDevice, tmp_path: Path) -> None:
    device = OnDevice(adb, start_device(reboot_s=0.4))
    serial, first = device.device.address, device.text("getprop ro.boot.boot_id")
    (tmp_path / "f").write_text("kept")
    device("push", tmp_path / "f", device.storage / "data/f")
    device.text("setprop debug.x lost")
    stream = make_busy(adb, serial)
    started = time.monotonic()
    assert device("reboot").returncode == 0
    assert stream.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect_raw(device.device)
    adb("disconnect", serial)
    adb.connect(serial)
    assert time.monotonic() - started > 0.4
    assert device.text("getprop ro.boot.boot_id") != first
    assert device.text("getprop sys.boot.reason; getprop debug.x") == "reboot"
    assert (device.storage / "data/f").read_text() == "kept"
    assert b"sleep" not in b"".join(
        Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(device.storage)
    )
    device("shell", "reboot")
    adb("disconnect", serial)
    adb.connect(serial)
    assert "booted: reboot" in device("logcat", "-d").stdout.decode()


def test_a_crash_is_followed_by_a_boot_and_stopping_leaves_nothing(
    adb: AdbClient, start_device: StartDevice
) -> None:
    device = OnDevice(adb, start_device(reboot_s=0.05))
    serial = device.device.address
    stream = make_busy(adb, serial)
    os.kill(boot_pid(device.device), signal.SIGKILL)
    assert stream.recv(1) == b""
    adb("disconnect", serial)
    adb.connect(serial)
    assert device.text("getprop sys.boot.reason") == "kernel_panic"
    assert "crashed (status -9)" in device.device.messages()
    assert device.device.running
    with make_busy(adb, serial):
        device.device.stop()
        assert not processes_of(device.storage)
        assert not device.device.running


@pytest.mark.parametrize("victim", ["parent", "supervisor"])
def test_nothing_is_left_when_someone_is_killed(
    adb: AdbClient, tmp_path: Path, victim: str
) -> None:
    storage = tmp_path / "storage"
    parent = run_python(HOLDER, storage, adb.public_key)
    serial = parent.stdout.readline().decode().strip()
    adb.connect(serial)
    stream = make_busy(adb, serial)
    assert len(processes_of(storage)) >= 5
    if victim == "supervisor":
        (supervisor,) = [
            pid
            for pid in processes_of(storage)
            if f"\nPPid:\t{parent.pid}\n" in Path(f"/proc/{pid}/status").read_text()
        ]
        # the boot kills what it started; what left its session needs the supervisor
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: len(processes_of(storage)) <= 1, "only the stray one is left", 10)
        for pid in processes_of(storage):
            os.kill(pid, signal.SIGKILL)
    else:
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: not processes_of(storage), "nothing is left", 10)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    stream.close()
    adb("disconnect", serial)


def test_a_kill_while_it_starts_leaves_no_temporary_file(
    adb: AdbClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    holder = run_python(HOLDER, tmp_path / "storage", adb.public_key)
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    # its daemon is begun, and does not listen yet
    wait_for(lambda: children.read_text() != "", "the daemon is there")
    holder.kill()
    holder.wait()
    wait_for(lambda: not processes_of(tmp_path / "storage"), "it is gone")
    assert list(temporary.iterdir()) == []


def test_settings_that_are_wrong(adb: AdbClient, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis").touch()
    good = {"storage": tmp_path / "storage", "properties": {}, "public_key": adb.public_key}
    for change in (
        {"public_key": tmp_path / "none"},
        {"storage": tmp_path / "a:b"},
        {"storage": full},
    ):
        device = SimulatedDevice("wrong", **(good | change))  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            device.start()
    assert [path.name for path in full.iterdir()] == ["thesis"]
