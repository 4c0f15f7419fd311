"""Every way a connection can break ends in the harness's own family, with serial and command."""

import os
import socket
import struct
import tempfile
import time
from collections.abc import Iterator

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import DeviceError, DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.core.socket_folder import host_file
from harness.evidence.case_evidence import take_baseline
from harness.lab.facts import ask_vitals, read_facts
from harness.lab.identity import give_device_id
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.transport_errors import (
    AdbFailError,
    NoServerError,
    OutOfReachError,
    ProtocolError,
    Reach,
    device_faults,
    server_faults,
    server_lost,
)
from tests.snapshots import Snapshot

FAULTS: dict[BaseException, type[DeviceError]] = {
    ConnectionResetError("reset by peer"): DeviceLost,
    EOFError(): DeviceLost,
    struct.error("unpack"): DeviceLost,
    AssertionError(): DeviceLost,
    ProtocolError("unknown packet"): DeviceLost,
    ValueError("invalid literal"): DeviceLost,
    NoServerError("no adb server at x"): DeviceLost,
    TimeoutError("timed out"): DeviceTimeout,
    AdbFailError("device 'x' not found"): DeviceLost,
    AdbFailError("device unauthorized.\nThis"): DeviceRefused,
}


def test_faults_of_a_device_and_of_a_server(snapshot: Snapshot) -> None:
    texts = []
    for error, kind in FAULTS.items():
        with pytest.raises(kind) as caught, device_faults("x", "true", lambda: b"so far"):
            raise error
        assert (caught.value.serial, caught.value.command) == ("x", "true")
        assert caught.value.__cause__ is error
        assert caught.value.output == (b"" if isinstance(error, AdbFailError) else b"so far")
        with (
            pytest.raises(InfraError) as of_server,
            server_faults("adb server at y", start="start it with `adb x`"),
        ):
            raise error
        assert (type(caught.value), type(of_server.value)) == (kind, InfraError)
        texts += [str(caught.value), str(of_server.value)]
    assert texts == snapshot


def test_what_is_ours_or_the_users_passes() -> None:
    for error in (DeviceLost("gone", serial="x"), KeyboardInterrupt(), RuntimeError("bug")):
        with pytest.raises(type(error)) as caught, device_faults("x", None):
            raise error
        assert caught.value is error
    with pytest.raises(TimeoutError), server_faults("y", start="", but=(TimeoutError,)):
        raise TimeoutError


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("push /data/x", "[push /data/x]"),
        ("set -- '/data'\nfor one in a b; do echo $one; done", "[in a shell script]"),
        ("ls " + "x" * 300, "[in a shell script]"),
        ("cd /x||exit 97;exec ./probe", "[in a shell script]"),
    ],
)
def test_an_error_shows_no_script(command: str, shown: str) -> None:
    error = DeviceLost("it is gone", serial="s", command=command)
    assert str(error) == f"s: it is gone {shown}"
    assert error.command == command


def test_the_scripts_of_the_harness_are_named_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    device = AdbDevice("s", AdbServer(TcpAddress(port=port)))
    device._is_asked = True
    for action in (
        lambda: read_facts(device, "/data"),
        lambda: ask_vitals(device, "/data"),
        lambda: give_device_id(device, "/data"),
        lambda: take_baseline(device, timeout_s=5),
    ):
        with pytest.raises(DeviceError) as caught:
            action()
        assert f"[{caught.value.command}]" in str(caught.value)


ADDRESS = TcpAddress("lab-pc.invalid", 5037)


@pytest.fixture
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # pytest's own folders are too long for a socket
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.mark.usefixtures("runtime_folder")
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


@pytest.mark.usefixtures("runtime_folder")
def test_a_server_that_is_not_found_is_told_the_same_way_twice() -> None:
    server = AdbServer(ADDRESS)
    texts = []
    for _ in range(2):
        with pytest.raises(InfraError) as caught:
            server.version(deadline=Deadline(20))
        texts.append(str(caught.value))
    assert [server_lost(text) for text in texts] == [str(ADDRESS)] * 2
    assert texts[0] != texts[1]


@pytest.mark.usefixtures("runtime_folder")
def test_a_folder_that_others_may_change_is_refused() -> None:
    host_file(ADDRESS, "away").parent.chmod(0o777)
    with pytest.raises(InfraError, match="0700"):
        Reach(ADDRESS)
