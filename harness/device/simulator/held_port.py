"""A loopback port that stays a device's own while it reboots."""

from __future__ import annotations

import socket
from typing import Final

from harness.ground.errors import InfraError

_TRIES: Final = 16


class HeldPort:
    """A port of 127.0.0.1, bound as long as this process or a fork of it has it open.

    It refuses connections until `listen`, and again after `refuse`. Nobody else can bind it in
    between: Linux lets two sockets share a port that nobody listens on if both say SO_REUSEADDR,
    whoever they belong to, so this one says it only where it must, at `listen`. There it must,
    since connections that have ended would keep the port from being used again for a minute.
    """

    BACKLOG: Final = 128

    def __init__(self) -> None:
        self.socket = _bound()
        # inherited by every connection; asyncio sets it only where the protocol was named
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def number(self) -> int:
        number: int = self.socket.getsockname()[1]
        return number

    def listen(self) -> None:
        """Lets connections in. Raises OSError."""
        _share(self.socket, True)
        self.socket.listen(self.BACKLOG)

    def refuse(self) -> None:
        """Lets no connection in any more, in all processes that have it open; safe to call twice.

        None of them may accept connections at this time: one that is accepted now inherits that it
        does not share the port, and keeps it from being used for a minute after its end.
        """
        # Not after: who waits for this moment could bind the port in between.
        _share(self.socket, False)
        # Only then: one that does not listen would pass it on to its later connections.
        if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self.socket.shutdown(socket.SHUT_RDWR)


def _bound() -> socket.socket:
    for _ in range(_TRIES):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            address = found.getsockname()
        bound = socket.socket()
        try:
            # by number: a port that the kernel chose is given back by `shutdown`
            bound.bind(address)
            return bound
        except OSError:
            bound.close()
    raise InfraError("no port of 127.0.0.1 can be had")


def _share(one: socket.socket, shared: bool) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
