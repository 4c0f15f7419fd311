"""Addresses of adb servers: a TCP port, a Unix socket that only its owner can open, or a server
behind ssh.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from harness.core.errors import ConfigError
from harness.core.socket_folder import unix_connection
from harness.transport.ssh_connection import SshLogin

if TYPE_CHECKING:
    from harness.transport.ssh_connection import SharedConnection


SOCKET: Final = "ADB_SERVER_SOCKET"
USER_PORT: Final = 5037
"""The port on which adb listens by default."""


@dataclass(frozen=True)
class TcpAddress:
    """A TCP port; on this computer every local account can connect to it."""

    host: str = "127.0.0.1"
    port: int = USER_PORT

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def spec(self) -> str:
        # adb listens on a name of this computer only if that is `localhost`
        return f"tcp:{'localhost' if self.is_here else _bracketed(self.host)}:{self.port}"

    @property
    def is_here(self) -> bool:
        return is_loopback(self.host)

    @property
    def start_advice(self) -> str:
        if not self.is_here:
            command = f"adb -a -P {self.port} nodaemon server"
            return f"start it with `{command}` on {self.host}, and let its port through"
        if self.port == USER_PORT:
            return "start it with `adb start-server`"
        return f"start it with `adb -P {self.port} start-server`, or the tunnel to it"

    def connect(self, timeout_s: float) -> socket.socket:
        """A new connection to it. Raises OSError."""
        connected = socket.create_connection((self.host, self.port), timeout=timeout_s)
        # not left to those who take the socket over: every service sends small messages
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected


@dataclass(frozen=True)
class UnixAddress:
    """A Unix socket; the modes of the file and its folder decide who may connect."""

    path: str
    host: ClassVar[str] = "localhost"
    port: ClassVar[int] = 0
    is_here: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.spec

    @property
    def spec(self) -> str:
        return f"localfilesystem:{self.path}"

    @property
    def start_advice(self) -> str:
        return "start what serves this socket again, such as `qnn-harness simulator farm`"

    def connect(self, timeout_s: float) -> socket.socket:
        """A new connection to it. Raises OSError."""
        return unix_connection(self.path, timeout_s)


@dataclass(frozen=True)
class SshAddress:
    """A server on a computer that ssh leads to: `[user@]host`, as ssh's own configuration knows it.

    `behind` and `port` are where the server listens, as seen from there.
    """

    login: str
    ssh_port: int | None = None
    behind: str = "127.0.0.1"
    port: int = USER_PORT
    is_here: ClassVar[bool] = False

    def __str__(self) -> str:
        ssh_port = "" if self.ssh_port is None else f":{self.ssh_port}"
        server = (self.behind, self.port)
        behind = "" if server == ("127.0.0.1", USER_PORT) else f" ({TcpAddress(*server)})"
        return f"ssh://{self.login}{ssh_port}{behind}"

    @property
    def host(self) -> str:
        return self.login.rpartition("@")[2] if is_loopback(self.behind) else self.behind

    @property
    def spec(self) -> str:
        """This computer's end of the tunnel, as `adb -L` takes it while there is one."""
        # few users of addresses need it, and it imports ctypes
        from harness.core.socket_folder import host_file

        return UnixAddress(str(host_file(self, "socket"))).spec

    @property
    def start_advice(self) -> str:
        advice = TcpAddress(self.behind, self.port).start_advice
        return f"{advice}, on {self.host}" if is_loopback(self.behind) else advice

    @property
    def tunnel(self) -> SharedConnection:
        """The ssh connection whose socket leads to the server.

        Starting it may take 15 s, whatever timeout its users have: others wait for it, too.
        """
        from harness.transport.ssh_connection import shared_connection

        login, server = SshLogin(self.login, self.ssh_port), TcpAddress(self.behind, self.port)
        return shared_connection(login, self, forward=str(server), name=str(self), least_s=15.0)

    def connect(self, timeout_s: float) -> socket.socket:
        """A new connection to it, by the tunnel. Raises OutOfReachError with what ssh said."""
        return self.tunnel.connect(timeout_s)


ServerAddress = TcpAddress | UnixAddress | SshAddress


def user_server(environment: Mapping[str, str]) -> TcpAddress | UnixAddress:
    """Return the address where adb looks for its server. Raises ConfigError for another one."""
    spec, port = (environment.get(name, "") for name in (SOCKET, "ANDROID_ADB_SERVER_PORT"))
    if path := re.fullmatch("localfilesystem:(/.+)", spec):
        return UnixAddress(path[1])
    place = re.fullmatch(r"tcp:(?:\[?([^/\[\]]+)\]?:)?([1-9]\d{0,4})", spec, re.ASCII)
    if place and int(place[2]) < 65536:
        return TcpAddress(place[1] or "127.0.0.1", int(place[2]))
    if spec:
        choices = ["tcp:HOST:PORT", "localfilesystem:/PATH"]
        raise ConfigError(f"{spec[:200]!r} is not supported", field=SOCKET, choices=choices)
    return TcpAddress(port=int(port) if port.isdecimal() else USER_PORT)


USER_SERVER: Final = user_server(os.environ)
"""The address of the user's own adb server, where adb looks for it."""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


TLS: Final = "._adb-tls-connect._tcp"
"""The end of a phone's name on Wi-Fi, whose current port adb server 36 finds."""


def has_address(serial: str) -> bool:
    """Return whether a serial is a network address, so that adb has to connect the device."""
    return ":" in serial or TLS in serial
