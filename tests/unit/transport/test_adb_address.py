"""Spellings of an adb server's address, for people and for adb."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.lab.fields import parse_device_url
from harness.transport.adb_address import (
    USER_SERVER,
    ServerAddress,
    SshAddress,
    TcpAddress,
    UnixAddress,
)
from harness.transport.ssh_connection import SshLogin

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
        TcpAddress("fe80::7", 5037),
        "[fe80::7]:5037",
        "tcp:[fe80::7]:5037",
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
    assert address.is_here == (address.host not in ("lab-pc", "fe80::7"))


@pytest.mark.parametrize(
    ("address", "shown", "host"),
    [
        (SshAddress("qa@lab-pc"), "ssh://qa@lab-pc", "lab-pc"),
        (SshAddress("lab-pc", 22), "ssh://lab-pc:22", "lab-pc"),
        (SshAddress("gate", None, "10.0.0.7", 99), "ssh://gate (10.0.0.7:99)", "10.0.0.7"),
    ],
)
def test_an_address_behind_ssh_in_words(address: SshAddress, shown: str, host: str) -> None:
    assert (str(address), address.host, address.is_here) == (shown, host, False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("adb://h/A", (TcpAddress("h"), "A")),
        ("adb://[fe80::1]:99/10.0.0.1:5555", (TcpAddress("fe80::1", 99), "10.0.0.1:5555")),
        ("ssh://q.a@1.2.3.4:22/A", (SshAddress("q.a@1.2.3.4", 22), "A")),
        ("ssh://qa@[fe80::1%2]/A", (SshAddress("qa@fe80::1%2"), "A")),
        *(
            (url, None)
            for url in (
                *(
                    "",
                    "ABC",
                    "ssh://h",
                    "ssh://h/",
                    "ssh://h:0/A",
                    "ssh://h:99999/A",
                    "adb://q@h/A",
                ),
                *("ssh://-oProxyCommand=x/A", "ssh://-l@h/A", "ssh://a b/A", "ssh://$(x)/A"),
                *("ssh://h;x/A", "ssh://q`x`@h/A", "ssh://h\n/A", "ssh://h/A b", "SSH://h/A"),
                *("ssh://h/A/b", "adb://h/A?x=1", "adb://h/A#x"),
            )
        ),
    ],
)
def test_what_is_the_address_of_a_device(url: str, expected: object) -> None:
    assert parse_device_url(url) == expected


def test_what_holds_a_tunnel() -> None:
    words = ("-N", "-L", "/run/s:[::1]:9")
    command = SshLogin("qa@h", 22).command(Path("/run/10%/c"), "ControlMaster=yes", words=words)
    assert command[-9:-5] == ["-S", "/run/10%%/c", "-p", "22"]
    assert command[-5:] == ["-N", "-L", "/run/s:[::1]:9", "--", "qa@h"]
    assert {"BatchMode=yes", "ExitOnForwardFailure=yes"} < set(command)
