"""adbutils with one deadline and bounds: each of its methods, whatever the other side says."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import adbutils
import pytest
from hypothesis import given, strategies as st

from harness.transport.adb_address import ServerAddress
from harness.transport.adb_server import AdbServer, SeenDevice
from harness.transport.transport_errors import BROKEN, AdbFailError, ProtocolError
from tests.properties import damaged, reached, reaches
from tests.unit.transport.mock_address import OKAY, MockAddress, block, dribbling

LATE_S = 0.2
LONG = OKAY + b"ffff"
METHODS: dict[str, tuple[bytes, Callable[[MockAddress], Any]]] = {
    "server_version": (LONG, lambda address: address.client(LATE_S).server_version()),
    "list": (LONG, lambda address: address.client(LATE_S).list(extended=True)),
    "wait_for": (b"FAILffff", lambda address: address.client(LATE_S).wait_for("x")),
    "connect": (LONG, lambda address: address.client(LATE_S).connect("x:1")),
    "disconnect": (LONG, lambda address: address.client(LATE_S).disconnect("x:1")),
    "forward_list": (LONG, lambda address: address.client(LATE_S).forward_list()),
    "track_devices": (OKAY, lambda address: list(address.client(LATE_S).track_devices())),
    "get_features": (LONG, lambda address: address.device(LATE_S).get_features()),
    "forward": (b"FAILffff", lambda address: address.device(LATE_S).forward("tcp:1", "tcp:2")),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_adbutils_keeps_the_deadline_though_every_receive_is_quick(name: str) -> None:
    first, call = METHODS[name]
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.2 s"):
        call(dribbling(first, b"0"))
    assert time.monotonic() - start < 20


@given(st.sampled_from(sorted(METHODS)), damaged("OKAY0012a device product:bOKAYOKAY0001c"))
def test_whatever_a_server_says_is_an_answer_or_one_of_the_errors(name: str, answer: str) -> None:
    with contextlib.suppress(*BROKEN):
        METHODS[name][1](MockAddress(answer.encode()))


def test_a_refusal_is_told_from_a_cut_link_and_from_what_is_no_server() -> None:
    def asked(answer: bytes) -> Exception:
        with pytest.raises(Exception) as caught:  # its kind is what is tested
            MockAddress(answer).client().query("host:x")
        return caught.value

    refusal = asked(b"FAIL" + block("device offline"))
    assert isinstance(refusal, AdbFailError)
    assert isinstance(refusal, adbutils.AdbError)
    assert str(refusal) == "device offline"
    for cut in (b"", b"OK", OKAY + b"00", OKAY + b"0005abc", b"FAIL0009dev"):
        assert type(asked(cut)) is EOFError
    assert type(asked(b"HTTP/1.1 400")) is ProtocolError


def test_a_request_may_be_of_any_bytes_but_not_longer_than_its_length_can_say() -> None:
    address = MockAddress(OKAY)
    with address.client().make_connection() as connection:
        connection.send_command("\udcff-ü")
        connection.check_okay()
        with pytest.raises(ProtocolError, match="65536 bytes"):
            connection.send_command(bytes(1 << 16))
    assert address.sent() == b"0004\xff-\xc3\xbc"


def test_a_service_takes_one_connection_which_is_closed_when_refused() -> None:
    address = MockAddress(OKAY, OKAY)
    address.device().open_service(b"shell,v2,raw:\xff").close()
    assert address.sent() == b"0010host:transport:x000eshell,v2,raw:\xff"
    for answers in ([b"FAIL0000"], [OKAY, b"FAIL0000"]):
        address = MockAddress(*answers)
        with pytest.raises(AdbFailError):
            address.device().open_service("sync:")
        assert address.sent().startswith(b"0010host:transport:x")


LINES = {
    "127.0.0.1:5555  device product:sim model:Sim_73 device:sim73 transport_id:4": SeenDevice(
        "127.0.0.1:5555", "device", "Sim_73"
    ),
    "R58M123 device usb:1-4 product:a b model:X device:y transport_id:12": SeenDevice(
        "R58M123", "device", "X"
    ),
    "abc\tunauthorized": SeenDevice("abc", "unauthorized"),
    "0123 no permissions (user in plugdev group; are your udev rules wrong?);"
    " see [http://x/y.html] usb:3-2 transport_id:7": SeenDevice("0123", "no permissions"),
    "???????????? no permissions": SeenDevice("????????????", "no permissions"),
    "abc device transport_id:99999999999999999999": SeenDevice("abc", "device"),
}


def listed(text: str) -> list[SeenDevice]:
    return AdbServer(cast(ServerAddress, MockAddress(OKAY + block(text)))).devices()


def test_lines_of_the_device_list() -> None:
    lines = "".join(f"{line}\n" for line in LINES)
    assert listed(f"{lines}\n  \nlonely\n") == list(LINES.values())


@reaches(0.5)
@given(damaged("".join(f"{line}\n" for line in LINES)))
def test_any_list_is_survived(text: str) -> None:
    for device in listed(text):
        reached()
        assert device.serial
        assert device.state


def run_python(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", f"import harness.transport.adb_client\n{code}"]
    environment = {**os.environ, **environment}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    ).stderr


def test_what_is_heavy_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys\n"
        "heavy = {'requests', 'urllib3', 'PIL.Image', 'PIL._imaging'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from adbutils import install, screenshot\n"
        "import PIL.Image, requests\n"
        "assert install.requests.get is requests.get\n"
        "assert screenshot.Image.open is PIL.Image.open\n"
    )
    assert run_python(code) == ""


def test_a_port_that_adbutils_cannot_read_is_named() -> None:
    error = run_python("", ANDROID_ADB_SERVER_PORT="x").splitlines()[-1]
    assert error.startswith("harness.core.errors.ConfigError")
    assert "ANDROID_ADB_SERVER_PORT" in error
