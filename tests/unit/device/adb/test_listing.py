"""The adb server's device list, from real and from broken texts."""

from __future__ import annotations

import pytest
from hypothesis import given

from harness.device.adb.server import SeenDevice, parse_devices
from tests.properties import damaged, reached, reaches

LINES = [
    (
        "127.0.0.1:5555         device product:sim model:Sim_73 device:sim73 transport_id:4",
        SeenDevice("127.0.0.1:5555", "device", "Sim_73"),
    ),
    (
        "R58M123 device usb:1-4 product:a b model:X device:y transport_id:12",
        SeenDevice("R58M123", "device", "X"),
    ),
    ("abc  offline transport_id:1", SeenDevice("abc", "offline")),
    ("abc\tunauthorized", SeenDevice("abc", "unauthorized")),
    (
        "0123 no permissions (user in plugdev group; are your udev rules wrong?);"
        " see [http://x/y.html] usb:3-2 transport_id:7",
        SeenDevice(
            "0123",
            "no permissions",
            detail="(user in plugdev group; are your udev rules wrong?); see [http://x/y.html]",
        ),
    ),
    ("???????????? no permissions", SeenDevice("????????????", "no permissions")),
    ("abc device transport_id:99999999999999999999", SeenDevice("abc", "device")),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line(line: str, expected: SeenDevice) -> None:
    assert parse_devices(line + "\n") == [expected]


def test_lines_that_say_nothing_are_left_out() -> None:
    assert parse_devices("\n  \nlonely\n") == []


@reaches(0.5)
@given(damaged("".join(f"{line}\n" for line, _ in LINES)))
def test_any_text_is_survived(text: str) -> None:
    for seen in parse_devices(text):
        reached()
        assert seen.serial
        assert seen.state
