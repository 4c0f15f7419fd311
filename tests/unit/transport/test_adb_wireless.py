"""Phones on Wi-Fi: where they are now, by what a real adb server 36 lists of an announced one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.transport.adb_address import address_hint, has_address

NAME = "adb-1A2B3C4D-aBcDeF"
SERVICES = (
    f"{NAME}\t_adb-tls-connect._tcp\t192.0.2.2:37251\n"
    "adb-9Z-other\t_adb-tls-connect._tcp\t192.0.2.3:40001\n"
    "adb-9Z-other\t_adb-tls-pairing._tcp\t192.0.2.4:40001\n"
)


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


@pytest.mark.parametrize(
    ("serial", "services", "expected"),
    [
        ("192.0.2.2:40000", SERVICES, f"it is at 192.0.2.2:37251 now, and always `serial: {NAME}."),
        ("192.0.2.2:37251", SERVICES, ""),
        ("192.0.2.4:40000", SERVICES, ""),
        ("192.0.2.9:40000", SERVICES, ""),
        ("192.0.2.2:40000", "", ""),
        (f"{NAME}._adb-tls-connect._tcp", "", "Wireless debugging is on there"),
    ],
)
def test_where_it_is_now(serial: str, services: str, expected: str) -> None:
    hint = address_hint(serial, services)
    assert expected in hint
    assert bool(hint) == bool(expected)


@given(st.text(alphabet="a\t:\n._tcp1"), st.text(alphabet="a:._1"))
def test_any_list_is_survived(services: str, serial: str) -> None:
    assert len(address_hint(serial, services)) < 500 + len(services)
