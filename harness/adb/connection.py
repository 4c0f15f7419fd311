"""adbutils' connection to an adb server, every wait of it bounded by one deadline."""

from __future__ import annotations

import socket

from adbutils import AdbConnection
from adbutils.errors import AdbConnectionError, AdbTimeout

from harness.adb.deadline import Deadline
from harness.adb.faults import AdbFailError, ProtocolError

MAX_REQUEST_BYTES = 0xFFFF
"""A request to the adb server carries its length in four hex digits."""


class BoundedConnection(AdbConnection):  # type: ignore[misc]  # adbutils carries no types
    """An AdbConnection that never waits beyond `deadline` and never starts a server.

    adbutils starts `adb start-server` (on the user's own port, whatever port was asked for) when
    nothing answers, and waits without a bound afterwards; both are taken out here. Use it as a
    context manager: it closes the socket unless `detach` handed it out. Raises adbutils'
    AdbConnectionError or AdbTimeout, AdbFailError, ProtocolError, OSError, EOFError.
    """

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        self._address = (host, port)
        self._deadline = deadline
        self._socket: socket.socket | None = None
        super().__init__(host, port)

    def _safe_connect(self) -> socket.socket:
        host, port = self._address
        try:
            self._socket = socket.create_connection(
                self._address, timeout=self._deadline.remaining() or 1e-3
            )
        except TimeoutError as error:
            raise AdbTimeout(
                f"adb server at {host}:{port} does not answer within {self._deadline.seconds:g} s"
            ) from error
        except OSError as error:
            raise AdbConnectionError(
                f"no adb server at {host}:{port}: {error.strerror or error}"
            ) from error
        # not left to those who take the socket over: every service sends small messages
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    @property
    def conn(self) -> socket.socket:
        """The socket, its timeout set to what is left of the deadline."""
        if self._socket is None:
            raise AdbConnectionError("connection is closed")
        remaining = self._deadline.remaining()
        if remaining <= 0:
            raise AdbTimeout(f"no answer within {self._deadline.seconds:g} s")
        self._socket.settimeout(remaining)
        return self._socket

    @property
    def closed(self) -> bool:
        """Whether there is no socket any more."""
        return self._socket is None

    def close(self) -> None:
        """Closes the socket at once (adbutils sleeps 10 ms first)."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def detach(self) -> socket.socket:
        """Hands the socket to the caller, who closes it from now on."""
        taken, self._socket = self.conn, None
        return taken

    def send_command(self, cmd: str | bytes) -> None:
        """Sends one request. Raises ProtocolError when it is longer than the protocol can say."""
        request = cmd.encode("utf-8", "surrogateescape") if isinstance(cmd, str) else cmd
        if len(request) > MAX_REQUEST_BYTES:
            raise ProtocolError(f"a request of {len(request)} bytes does not fit")
        self.conn.sendall(b"%04x%b" % (len(request), request))

    def check_okay(self) -> None:
        """Reads the status of the last request. Raises AdbFailError with the server's text."""
        status = self.read_exact(4)
        if status == b"OKAY":
            return
        if status == b"FAIL":
            raise AdbFailError(self.read_string_block())
        raise ProtocolError(f"adb server answered {status!r}")

    def read_string_block(self) -> str:
        """Reads one text with its length before it."""
        length = int(self.read_exact(4), 16)
        text: bytes = self.read_exact(length)
        return text.decode("utf-8", "replace")
