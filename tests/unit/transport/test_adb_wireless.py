"""Phones on Wi-Fi: their serials are addresses or names of mDNS."""

from __future__ import annotations

import pytest

from harness.transport.adb_address import has_address

NAME = "adb-1A2B3C4D-aBcDeF"


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        ("1a2b3c4d", False),
        ("192.0.2.2:5555", True),
        (f"{NAME}._adb-tls-connect._tcp", True),
        (f"{NAME}._adb-tls-connect._tcp.", True),
        (NAME, False),
    ],
)
def test_who_is_connected_by_the_network(serial: str, expected: bool) -> None:
    assert has_address(serial) == expected
