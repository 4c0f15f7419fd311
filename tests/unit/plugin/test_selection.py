"""Selections that want devices, and those that want them alone (`-n auto` counts devices)."""

from __future__ import annotations

import pytest

from harness.plugin.collection import selects_devices


@pytest.mark.parametrize(
    ("expression", "is_wanted", "alone"),
    [
        ("device", True, True),
        ("(device)", True, True),
        ("device and smoke", True, True),
        ("smoke and device and not slow", True, True),
        ("not slow and device", True, True),
        ("not (slow or not device)", True, True),
        # the other tests want a worker for each processor
        ("device or smoke", True, False),
        ("slow or device", True, False),
        ("device and smoke or fast", True, False),
        # a lab is none of these tests' business
        ("", False, False),
        ("smoke", False, False),
        ("not slow", False, False),
        ("not device", False, False),
        ("not (device)", False, False),
        ("smoke and not device", False, False),
        ("not (device or slow)", False, False),
        ("not device_of_mine", False, False),
        ("device and not device", False, False),
        ("device or not device", False, False),
        # pytest refuses these
        ("device and", False, False),
        ("device smoke", False, False),
    ],
)
def test_which_devices_an_expression_wants(expression: str, is_wanted: bool, alone: bool) -> None:
    assert selects_devices(expression) is is_wanted
    assert selects_devices(expression, alone=True) is alone


def test_many_other_marks_take_no_time() -> None:
    others = " or ".join(f"mark_{number}" for number in range(40))
    assert selects_devices(f"{others} or device")
    assert selects_devices(f"device and ({others})", alone=True)
    assert not selects_devices(f"not device and ({others})")
