"""How the address of an adb server is written, for people and for adb."""

from __future__ import annotations

import pytest

from harness.adb.address import USER_SERVER, ServerAddress, TcpAddress, UnixAddress

ADDRESSES: list[tuple[ServerAddress, str, str, str]] = [
    (USER_SERVER, "127.0.0.1:5037", "tcp:localhost:5037", "adb start-server"),
    (TcpAddress(port=5038), "127.0.0.1:5038", "tcp:localhost:5038", "adb -P 5038 start-server"),
    (
        TcpAddress("lab-pc", 5037),
        "lab-pc:5037",
        "tcp:lab-pc:5037",
        "adb -a -P 5037 nodaemon server",
    ),
    (
        UnixAddress("/run/user/7/s"),
        "localfilesystem:/run/user/7/s",
        "localfilesystem:/run/user/7/s",
        "adb -L localfilesystem:/run/user/7/s start-server",
    ),
]


@pytest.mark.parametrize(("address", "shown", "spec", "start"), ADDRESSES)
def test_an_address_in_words(address: ServerAddress, shown: str, spec: str, start: str) -> None:
    assert (str(address), address.spec, address.start_command) == (shown, spec, start)
    assert address.is_here == ("lab-pc" not in shown)
