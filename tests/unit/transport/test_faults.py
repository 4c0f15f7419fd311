"""Every way a connection can break ends in the harness's own family, with serial and command."""

from __future__ import annotations

import socket
import struct

import pytest

from harness.core.errors import DeviceError, DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.evidence.case_evidence import take_baseline
from harness.lab.attach import read_facts
from harness.lab.identity import give_device_id
from harness.lab.recovery import ask_vitals
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.faults import (
    AdbFailError,
    NoServerError,
    ProtocolError,
    device_faults,
    server_faults,
)

FAULTS: list[tuple[BaseException, type[DeviceError], str]] = [
    (ConnectionResetError("reset by peer"), DeviceLost, "ended early: reset by peer"),
    (EOFError(), DeviceLost, "ended early: EOFError"),
    (struct.error("unpack"), DeviceLost, "ended early: unpack"),
    (AssertionError(), DeviceLost, "ended early: AssertionError"),
    (ProtocolError("unknown packet"), DeviceLost, "ended early: unknown packet"),
    (ValueError("invalid literal"), DeviceLost, "ended early: invalid literal"),
    (NoServerError("no adb server at x"), DeviceLost, "x: no adb server at x"),
    (TimeoutError("timed out"), DeviceTimeout, "no answer in time"),
    (TimeoutError("no answer within 5 s"), DeviceTimeout, "no answer within 5 s"),
    (AdbFailError("device 'x' not found"), DeviceLost, "adb says: device 'x' not found"),
    (AdbFailError("device offline"), DeviceLost, "adb says: device offline"),
    (AdbFailError("closed"), DeviceLost, "adb says: closed"),
    (AdbFailError("device unauthorized.\nThis"), DeviceRefused, "does not accept our key"),
]


@pytest.mark.parametrize(("error", "kind", "text"), FAULTS, ids=lambda value: str(value)[:30])
def test_faults_of_a_device(error: BaseException, kind: type[DeviceError], text: str) -> None:
    with pytest.raises(InfraError) as caught, device_faults("x", "true", lambda: b"so far"):
        raise error
    assert type(caught.value) is kind
    assert isinstance(caught.value, DeviceError)
    assert text in str(caught.value)
    assert (caught.value.serial, caught.value.command) == ("x", "true")
    assert caught.value.__cause__ is error
    if not isinstance(error, AdbFailError):
        assert caught.value.output == b"so far"
    assert "so far" not in str(caught.value)


@pytest.mark.parametrize("error", [fault[0] for fault in FAULTS], ids=lambda value: str(value)[:30])
def test_faults_of_a_server(error: BaseException) -> None:
    with (
        pytest.raises(InfraError) as caught,
        server_faults("adb server at y", start="adb -P 5038 start-server"),
    ):
        raise error
    assert type(caught.value) is InfraError
    if isinstance(error, NoServerError):
        assert str(caught.value).startswith("no adb server at x; ")
        assert "adb -P 5038 start-server" in str(caught.value)
    else:
        assert str(caught.value).startswith("adb server at y: ")


def test_what_is_ours_or_the_users_passes() -> None:
    for error in (DeviceLost("gone", serial="x"), KeyboardInterrupt(), RuntimeError("bug")):
        with pytest.raises(type(error)) as caught, device_faults("x", None):
            raise error
        assert caught.value is error
    with pytest.raises(TimeoutError), server_faults("y", but=(TimeoutError,)):
        raise TimeoutError


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ask what it is", "[ask what it is]"),
        ("ls /data/x", "[ls /data/x]"),
        ("push /data/x", "[push /data/x]"),
        ("set -- '/data'\nfor one in a b; do echo $one; done", "[in a shell script]"),
        ("ls " + "x" * 300, "[in a shell script]"),
        ("cd /x||exit 97;exec ./probe", "[in a shell script]"),
    ],
)
def test_an_error_says_what_was_done_and_shows_no_script(command: str, shown: str) -> None:
    error = DeviceLost("it is gone", serial="s", command=command)
    assert str(error) == f"s: it is gone {shown}"
    assert error.command == command


def test_all_that_asks_a_device_says_so_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nobody = AdbServer(TcpAddress(port=port))
    device = AdbDevice("s", nobody)
    device._is_asked = True
    actions = {
        "ask what it is": lambda: read_facts(device, "/data"),
        "ask how it is": lambda: ask_vitals(device, "/data"),
        "ask for its device id": lambda: give_device_id(device, "/data"),
        "ask for its clock": lambda: take_baseline(device, timeout_s=5),
    }
    for words, action in actions.items():
        with pytest.raises(DeviceError) as caught:
            action()
        assert str(caught.value).endswith(f"[{words}]")
