"""The usual spellings of an address are one address; and no two addresses become one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.lab.devices import device_address


def key(serial: str, host: str = "127.0.0.1", port: int = 5037) -> str:
    return device_address(serial, host, port)


@pytest.mark.parametrize(
    "spellings",
    [
        [
            *("127.0.0.1:5555", "localhost:5555", "LocalHost:5555", "localhost.:5555"),
            "[::1]:5555",
        ],
        ["[2001:db8::17]:5555", "[2001:DB8:0:0::17]:5555"],
        ["farm-7.example.com:4000", "FARM-7.example.com.:4000"],
        ["[fe80::1%eth0]:5555", "[FE80:0::1%eth0]:5555"],
    ],
    ids=lambda spellings: spellings[0],
)
def test_one_address_however_written(spellings: list[str]) -> None:
    assert {key(serial) for serial in spellings} == {key(spellings[0])}


def test_different_devices_stay_different() -> None:
    serials = (
        "127.0.0.1:5555",
        "127.0.0.1:5556",
        "127.0.0.2:5555",  # the near end of a tunnel, say
        "192.0.2.17:5555",
        "192.0.2.17:5556",
        "192.0.2.18:5555",
        "[fe80::1%eth0]:5555",
        "[fe80::1%eth1]:5555",
        "desk-2:5555",
        "R5CX1234",
        "r5cx1234",
        "emulator-5556",
    )
    assert len({key(serial) for serial in serials}) == len(serials)


def test_an_address_is_that_of_the_computer_with_the_server() -> None:
    here = key("R5CX1234")
    assert key("R5CX1234", "localhost") == key("R5CX1234", "::1") == here
    assert len({here, key("R5CX1234", port=5038), key("R5CX1234", "lab-pc")}) == 3
    assert key("R5CX1234", "LAB-PC.") == key("R5CX1234", "lab-pc")
    # any server reaches the same device over the network
    assert key("192.0.2.17:5555", "lab-pc") == key("192.0.2.17:5555", port=5038)
    # what lab-pc calls localhost is not this computer
    assert key("localhost:5555", "lab-pc") == key("127.0.0.1:5555", "lab-pc")
    assert key("localhost:5555", "lab-pc") != key("localhost:5555")


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1))
def test_any_serial_has_one_address(serial: str) -> None:
    assert key(serial) == key(serial)
