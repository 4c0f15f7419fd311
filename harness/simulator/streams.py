"""Streams over one adb connection: OPEN, OKAY, WRTE and CLSE with their flow control, no I/O.

Per stream and direction one WRTE is under way: the next may follow when the other side said OKAY,
which it does once it has consumed the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from harness.simulator.protocol import CLSE, OKAY, OPEN, WRTE, Packet

MAX_STREAMS: Final = 1024
"""How many streams one connection may have open; a further OPEN is refused."""

Data = bytes | bytearray | memoryview
Send = Callable[[int, int, int, Data], None]
"""Sends one packet: command, arg0, arg1, payload. The payload may be kept until it is sent."""


class Endpoint(Protocol):
    """What stands behind a stream on the device. None of its methods may block for long."""

    def received(self, data: memoryview) -> bool:
        """Takes what the host wrote, valid during this call only.

        True once it is consumed; False when `Stream.acknowledge` will be called later.
        """

    def writable(self) -> None:
        """The host has taken the last write: another one may follow."""

    def closed(self) -> None:
        """The host closed the stream or the connection ended; nothing can be written any more."""


class Stream:
    """The device's end of one stream."""

    __slots__ = ("_remote", "_streams", "closed", "endpoint", "local", "owes_okay", "ready")

    def __init__(self, streams: Streams, local: int, remote: int) -> None:
        self._streams = streams
        self._remote = remote
        self.local = local
        self.endpoint: Endpoint | None = None
        self.ready = True
        self.closed = False
        self.owes_okay = False

    @property
    def max_write(self) -> int:
        """How many bytes one `write` may carry."""
        return self._streams.max_payload

    def write(self, data: Data) -> None:
        """Sends data; only while `ready`, which it ends until the endpoint's `writable`.

        The data must not change before that.
        """
        self.ready = False
        self._streams.send(WRTE, self.local, self._remote, data)

    def acknowledge(self) -> None:
        """Tells the host that what it wrote is consumed, so that it may write more."""
        if self.owes_okay and not self.closed:
            self.owes_okay = False
            self._streams.send(OKAY, self.local, self._remote, b"")

    def close(self) -> None:
        """Ends the stream from the device's side; the endpoint is not told."""
        if not self.closed:
            self._streams.forget(self)
            self._streams.send(CLSE, self.local, self._remote, b"")

    def opened(self) -> None:
        """Tells the host that the service is there."""
        self._streams.send(OKAY, self.local, self._remote, b"")

    def belongs_to(self, remote: int) -> bool:
        """Whether the host's end of this stream has that number."""
        return self._remote == remote


Service = Callable[[Stream], Endpoint]
"""Starts a service on an open stream. Raises OSError or ValueError if it cannot be started."""


class Streams:
    """All streams of one connection; `find_service` gives None for a service that is unknown."""

    def __init__(
        self, send: Send, find_service: Callable[[bytes], Service | None], *, max_payload: int
    ) -> None:
        self.send = send
        self.max_payload = max_payload
        self._find_service = find_service
        self._open: dict[int, Stream] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def handle(self, packet: Packet) -> None:
        """Does what a packet asks for; ones for unknown streams are ignored, as by adbd."""
        if packet.command == OPEN:
            self._handle_open(packet.arg0, bytes(packet.payload))
            return
        stream = self._open.get(packet.arg1)
        if stream is None:
            return
        if packet.command == CLSE:
            # arg0 is 0 when the host gives up a stream that it never saw opened
            if packet.arg0 == 0 or stream.belongs_to(packet.arg0):
                self._handle_close(stream)
        elif not stream.belongs_to(packet.arg0):
            return
        elif packet.command == OKAY:
            if not stream.ready:
                stream.ready = True
                if stream.endpoint is not None:
                    stream.endpoint.writable()
        elif packet.command == WRTE:
            self._handle_write(stream, memoryview(packet.payload))

    def close_all(self) -> None:
        """The connection is gone: every endpoint is told."""
        for stream in list(self._open.values()):
            self.forget(stream)
            if stream.endpoint is not None:
                stream.endpoint.closed()

    def forget(self, stream: Stream) -> None:
        """Takes a stream out of the table."""
        stream.closed = True
        stream.ready = False
        self._open.pop(stream.local, None)

    def _handle_open(self, remote: int, name: bytes) -> None:
        if remote == 0:
            return
        service = self._find_service(name.rstrip(b"\0"))
        if service is None or len(self._open) >= MAX_STREAMS:
            self.send(CLSE, 0, remote, b"")
            return
        stream = Stream(self, self._next_number(), remote)
        self._open[stream.local] = stream
        stream.opened()
        try:
            stream.endpoint = service(stream)
        except (OSError, ValueError):
            stream.close()

    def _handle_write(self, stream: Stream, data: memoryview) -> None:
        if stream.owes_okay:  # a host that does not wait would make us buffer without a bound
            stream.close()
            if stream.endpoint is not None:
                stream.endpoint.closed()
            return
        stream.owes_okay = True
        if stream.endpoint is None or stream.endpoint.received(data):
            stream.acknowledge()

    def _handle_close(self, stream: Stream) -> None:
        # adbd answers a CLSE with its own
        stream.close()
        if stream.endpoint is not None:
            stream.endpoint.closed()

    def _next_number(self) -> int:
        self._last = self._last % 0xFFFFFFFF + 1
        while self._last in self._open:
            self._last = self._last % 0xFFFFFFFF + 1
        return self._last
