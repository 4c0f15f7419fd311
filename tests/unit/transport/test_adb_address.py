"""Spellings of an adb server's address, for people and for adb."""

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.lab.config_fields import parse_device_url
from harness.transport.adb_address import (
    USER_SERVER,
    ServerAddress,
    SshAddress,
    TcpAddress,
    UnixAddress,
    has_address,
    user_server,
)
from harness.transport.ssh_connection import SshLogin

FAR = "start it with `adb -a -P 5037 nodaemon server` on {}, and let its port through"
TUNNEL = "start it with `adb -P 5038 start-server`, or the tunnel to it"
SOCKET = "start what serves this socket again, such as `qnn-harness simulator farm`"


@pytest.mark.parametrize(
    ("address", "shown", "spec", "start"),
    [
        (USER_SERVER, "127.0.0.1:5037", "tcp:localhost:5037", "start it with `adb start-server`"),
        (TcpAddress(port=5038), "127.0.0.1:5038", "tcp:localhost:5038", TUNNEL),
        (TcpAddress("lab-pc", 5037), "lab-pc:5037", "tcp:lab-pc:5037", FAR.format("lab-pc")),
        (
            TcpAddress("fe80::7", 5037),
            "[fe80::7]:5037",
            "tcp:[fe80::7]:5037",
            FAR.format("fe80::7"),
        ),
        (UnixAddress("/s"), *["localfilesystem:/s"] * 2, SOCKET),
    ],
)
def test_spellings_of_an_address(address: ServerAddress, shown: str, spec: str, start: str) -> None:
    assert (str(address), address.spec, address.start_advice) == (shown, spec, start)
    assert address.is_here == ("let its port" not in start)


@pytest.mark.parametrize(
    ("address", "shown", "host"),
    [
        (SshAddress("qa@lab-pc"), "ssh://qa@lab-pc", "lab-pc"),
        (SshAddress("gate", None, "10.0.0.7", 99), "ssh://gate (10.0.0.7:99)", "10.0.0.7"),
    ],
)
def test_spellings_of_an_address_behind_ssh(address: SshAddress, shown: str, host: str) -> None:
    assert (str(address), address.host, address.is_here) == (shown, host, False)
    assert f" on {host}" in address.start_advice


HERE = TcpAddress()


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, HERE),
        ({"ANDROID_ADB_SERVER_PORT": "5038"}, TcpAddress(port=5038)),
        (
            {"ADB_SERVER_SOCKET": "localfilesystem:/s", "ANDROID_ADB_SERVER_PORT": "1"},
            UnixAddress("/s"),
        ),
        ({"ADB_SERVER_SOCKET": "tcp:5039"}, TcpAddress(port=5039)),
        ({"ADB_SERVER_SOCKET": "tcp:lab-pc:5037"}, TcpAddress("lab-pc")),
        ({"ADB_SERVER_SOCKET": "tcp:[fe80::7]:5037"}, TcpAddress("fe80::7")),
    ],
)
def test_the_server_that_adb_uses(environment: dict[str, str], address: ServerAddress) -> None:
    assert user_server(environment) == address


@pytest.mark.parametrize("spec", ["tcp:", "tcp:0", "tcp:65536", "localfilesystem:s", "acceptfd:3"])
def test_a_socket_that_is_no_address_of_a_server(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"ADB_SERVER_SOCKET.*localfilesystem:/PATH"):
        user_server({"ADB_SERVER_SOCKET": spec})


WRONG = (
    *("", "ABC", "ssh://h", "ssh://h/", "ssh://h:0/A", "ssh://h:99999/A", "adb://q@h/A"),
    *("ssh://-oProxyCommand=x/A", "ssh://-l@h/A", "ssh://a b/A", "ssh://$(x)/A"),
    *("ssh://h;x/A", "ssh://q`x`@h/A", "ssh://h\n/A", "ssh://h/A b", "SSH://h/A"),
    *("ssh://h/A/b", "adb://h/A?x=1", "adb://h/A#x"),
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("adb://h/A", (TcpAddress("h"), "A")),
        ("adb://[fe80::1]:99/10.0.0.1:5555", (TcpAddress("fe80::1", 99), "10.0.0.1:5555")),
        ("ssh://q.a@1.2.3.4:22/A", (SshAddress("q.a@1.2.3.4", 22), "A")),
        ("ssh://qa@[fe80::1%2]/A", (SshAddress("qa@fe80::1%2"), "A")),
        *((url, None) for url in WRONG),
    ],
)
def test_urls_of_devices(url: str, expected: object) -> None:
    assert parse_device_url(url) == expected


@pytest.mark.parametrize("serial", ["192.0.2.2:5555", "adb-1A2B-aBc._adb-tls-connect._tcp."])
def test_serials_of_devices_on_the_network(serial: str) -> None:
    assert has_address(serial)
    assert not has_address(serial.partition(".")[0])


def test_what_holds_a_tunnel() -> None:
    words = ("-N", "-L", "/run/s:[::1]:9")
    command = SshLogin("qa@h", 22).command(Path("/run/10%/c"), "ControlMaster=yes", words=words)
    assert command[-9:-5] == ["-S", "/run/10%%/c", "-p", "22"]
    assert command[-5:] == ["-N", "-L", "/run/s:[::1]:9", "--", "qa@h"]
    assert {"BatchMode=yes", "ExitOnForwardFailure=yes"} < set(command)
