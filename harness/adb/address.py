"""Where an adb server listens: on a TCP port, or on a Unix socket that only its owner reaches."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import ClassVar, Final

USER_PORT: Final = 5037
"""Where adb listens unless it is told otherwise."""


@dataclass(frozen=True)
class TcpAddress:
    """A TCP port; on this computer every local account can connect to it."""

    host: str = "127.0.0.1"
    port: int = USER_PORT

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def spec(self) -> str:
        """As `adb -L` and ADB_SERVER_SOCKET take it."""
        # adb listens on a name of this computer only if that is `localhost`
        return f"tcp:{'localhost' if self.is_here else self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether the server is on this computer, as far as its address says."""
        return is_loopback(self.host)

    @property
    def start_command(self) -> str:
        """What a person types to start such a server, on the host where it is."""
        if not self.is_here:
            return f"adb -a -P {self.port} nodaemon server"
        return "adb start-server" if self.port == USER_PORT else f"adb -P {self.port} start-server"

    def connect(self, timeout_s: float) -> socket.socket:
        """A new connection to it. Raises OSError."""
        connected = socket.create_connection((self.host, self.port), timeout=timeout_s)
        # not left to those who take the socket over: every service sends small messages
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected


@dataclass(frozen=True)
class UnixAddress:
    """A Unix socket; who may connect is said by the modes of the file and its folder."""

    path: str
    host: ClassVar[str] = "localhost"
    is_here: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.spec

    @property
    def spec(self) -> str:
        """As `adb -L` and ADB_SERVER_SOCKET take it."""
        return f"localfilesystem:{self.path}"

    @property
    def start_command(self) -> str:
        """What a person types to start such a server."""
        return f"adb -L {self.spec} start-server"

    def connect(self, timeout_s: float) -> socket.socket:
        """A new connection to it. Raises OSError."""
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(timeout_s)
            connected.connect(self.path)
        except BaseException:
            connected.close()
            raise
        return connected


ServerAddress = TcpAddress | UnixAddress

USER_SERVER: Final = TcpAddress()
"""Where the user's own adb server listens."""


def is_loopback(host: str) -> bool:
    """Whether an address is one of this computer's own, as far as it says so itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
