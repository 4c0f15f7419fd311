"""Which selections are of device tests alone, so that `-n auto` counts devices."""

from __future__ import annotations

import pytest

from harness.run.pytest_plugin.selection import is_of_devices


@pytest.mark.parametrize(
    ("expression", "alone"),
    [
        ("device", True),
        ("device and smoke", True),
        ("smoke and device and not slow", True),
        ("not slow and device", True),
        ("", False),
        ("smoke", False),
        ("not device", False),
        ("smoke and not device", False),
        # the other tests want a worker for each processor
        ("device or smoke", False),
        ("device and smoke or fast", False),
        # pytest knows more of these than we do
        ("(device)", False),
    ],
)
def test_device_tests_alone(expression: str, alone: bool) -> None:
    assert is_of_devices(expression) is alone
