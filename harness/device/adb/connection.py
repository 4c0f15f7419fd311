"""One connection to an adb server, every wait of it bounded by one deadline."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final, Self

from harness.device.adb.address import ServerAddress, SshAddress
from harness.device.adb.reach import Reach
from harness.device.adb.tunnel import connect_through
from harness.device.transport.faults import (
    AdbFailError,
    NoServerError,
    OutOfReachError,
    ProtocolError,
)
from harness.ground.host.deadline import Deadline

_PATIENT_S: Final = 2.0
MAX_REQUEST_BYTES = 0xFFFF
"""A request to the adb server carries its length in four hex digits."""


class BoundedConnection:
    """A connection that never waits beyond `deadline` and never starts a server.

    Use it as a context manager: it closes the socket unless `detach` handed it out. Raises
    NoServerError, TimeoutError, AdbFailError, ProtocolError, OSError, EOFError.
    """

    def __init__(self, address: ServerAddress, deadline: Deadline) -> None:
        self._deadline = deadline
        self._socket: socket.socket | None = None
        self._address = address
        self._unheard = _reach(address)
        try:
            self._socket = _connected(address, deadline, self._unheard)
        except OutOfReachError:
            raise
        except (TimeoutError, BlockingIOError) as error:
            # a Unix socket says EAGAIN at once where a TCP port lets one wait in line
            raise TimeoutError(
                f"adb server at {address} does not answer within {deadline.seconds:g} s"
            ) from error
        except OSError as error:
            why = error.strerror or error
            raise NoServerError(f"no adb server at {address}: {why}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> socket.socket:
        """The socket, its timeout set to what is left of the deadline."""
        if self._socket is None:
            raise NoServerError("connection is closed")
        remaining = self._deadline.remaining()
        if remaining <= 0:
            raise TimeoutError(f"no answer within {self._deadline.seconds:g} s")
        self._socket.settimeout(remaining)
        return self._socket

    def close(self) -> None:
        """Closes the socket; safe to call twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def detach(self) -> socket.socket:
        """Hands the socket to the caller, who closes it from now on."""
        taken, self._socket = self._ready(), None
        return taken

    def send_command(self, command: str | bytes) -> None:
        """Sends one request. Raises ProtocolError when it is longer than the protocol can say."""
        text = command.encode("utf-8", "surrogateescape") if isinstance(command, str) else command
        if len(text) > MAX_REQUEST_BYTES:
            raise ProtocolError(f"a request of {len(text)} bytes does not fit")
        with self._silence():
            self._ready().sendall(b"%04x%b" % (len(text), text))

    def check_okay(self) -> None:
        """Reads the status of the last request. Raises AdbFailError with the server's text."""
        status = self._read(4)
        if status == b"OKAY":
            return
        if status == b"FAIL":
            raise AdbFailError(self.read_string_block())
        raise ProtocolError(f"{self._address} did not answer as an adb server does: {status!r}")

    def read_string_block(self) -> str:
        """Reads one text with its length before it."""
        return self._read(int(self._read(4), 16)).decode("utf-8", "replace")

    def _read(self, length: int) -> bytes:
        data = b""
        with self._silence():
            while len(data) < length:
                piece = self._ready().recv(length - len(data))
                if not piece:
                    raise EOFError(f"{len(data)} of {length} bytes came")
                data += piece
        if self._unheard is not None:
            self._unheard.found()
            self._unheard = None
        return data

    @contextlib.contextmanager
    def _silence(self) -> Iterator[None]:
        """ssh takes connections also where nobody listens at the other end of its tunnel."""
        try:
            yield
        except (ConnectionError, EOFError) as error:
            if self._unheard is None:
                raise
            why = f"no adb server at {self._address}: {error}"
            self._unheard.lost(why)
            raise NoServerError(why) from error


def connect_to(address: ServerAddress, timeout_s: float) -> socket.socket:
    """A new connection to a server, by a tunnel where it is behind ssh. Raises OSError."""
    if isinstance(address, SshAddress):
        return connect_through(address, timeout_s)
    return address.connect(timeout_s)


def _reach(address: ServerAddress) -> Reach | None:
    if address.is_here:
        return None
    return Reach(address)


def _connected(address: ServerAddress, deadline: Deadline, reach: Reach | None) -> socket.socket:
    """A connection; a server elsewhere that was not reached is not tried by everybody."""
    timeout_s = deadline.remaining() or 1e-3
    if reach is None:
        return connect_to(address, timeout_s)
    reach.require()
    try:
        return connect_to(address, timeout_s)
    except OSError as error:
        # who had no time to wait has learned nothing
        if not isinstance(error, TimeoutError) or timeout_s >= _PATIENT_S:
            told = isinstance(error, OutOfReachError)
            why = f"adb server at {address} is out of reach: {error.strerror or error}"
            reach.lost(str(error) if told else why)
        raise
