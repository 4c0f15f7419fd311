"""adb's transport protocol, without any I/O: packets, and the streams that they carry.

Numbers as in AOSP's packages/modules/adb/protocol.txt and adb.h. Per stream and direction one WRTE
is under way: the next may follow when the other side said OKAY, which it does once it has consumed
the data. But a server whose client hung up sends all that the client had written without waiting
(it does on Unix sockets, whose end epoll tells unasked).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = struct.unpack("<6I", b"CNXNAUTHOPENOKAYWRTECLSE")
AUTH_TOKEN: Final = 1
AUTH_SIGNATURE: Final = 2
AUTH_RSAPUBLICKEY: Final = 3

VERSION: Final = 0x01000001
"""The oldest version taken: from it on both sides omit checksums once they are connected."""

MAX_PAYLOAD: Final = 1 << 20
"""The largest payload this side takes, in bytes."""

MAX_HANDSHAKE_PAYLOAD: Final = 16 * 1024
"""The largest payload taken before the other side has proven who it is, in bytes."""

MIN_PAYLOAD: Final = 4096
"""The smallest maximum that any adb ever announced (MAX_PAYLOAD_V1), in bytes."""

MAX_STREAMS: Final = 1024
"""Limit on the open streams of a connection; a further OPEN is refused."""

# Limit on the writes that wait for their OKAY; their data is kept.
_MAX_UNANSWERED: Final = 8
_HEADER: Final = struct.Struct("<6I")
HEADER_BYTES: Final = _HEADER.size

Payload = bytes | bytearray | memoryview
Send = Callable[[int, int, int, Payload], None]
"""Sends one packet: command, arg0, arg1, payload. The payload may be kept until it is sent."""


class BadPacket(ValueError):
    """The other side sent bytes that are not adb's protocol."""


class Packet(NamedTuple):
    """One packet. `payload` may point into a receive buffer: see PacketReader.next."""

    command: int
    arg0: int
    arg1: int
    payload: bytes | memoryview


def header(command: int, arg0: int, arg1: int, length: int, check: int = 0) -> bytes:
    """Return the 24 bytes before a payload of `length` bytes."""
    return _HEADER.pack(command, arg0, arg1, length, check, command ^ 0xFFFFFFFF)


def encode(packet: Packet) -> bytes:
    """Encode a whole packet, without a checksum."""
    command, arg0, arg1, payload = packet
    return header(command, arg0, arg1, len(payload)) + payload


class AdbPacketReader:
    """Splits received bytes into packets, without copying payloads.

    The caller fills `space()`, reports the count to `filled`, then takes packets with `next` until
    it returns None. `max_payload` bounds what a header may announce; memory is about twice that.
    """

    def __init__(self, max_payload: int) -> None:
        self._start = self._end = 0
        self._view = memoryview(b"")
        self.max_payload = 0
        self.resize(max_payload)

    def resize(self, max_payload: int) -> None:
        """Set another bound, keeping the bytes that were received."""
        capacity = 2 * (HEADER_BYTES + max_payload)
        if self.max_payload < max_payload:
            pending = self._view[self._start : self._end]
            fresh = memoryview(bytearray(capacity))
            fresh[: len(pending)] = pending
            self._view, self._start, self._end = fresh, 0, len(pending)
        self.max_payload = max_payload

    def space(self) -> memoryview:
        """Return a buffer for the next bytes, at least one. Earlier payloads become invalid."""
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._view) - self._end < self._count_missing():
            pending = self._end - self._start
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        self._end += count

    def next(self) -> Packet | None:
        """Return the next whole packet, None when more bytes are needed.

        Its payload points into the buffer and is valid until the next call of `space`. Raises
        ProtocolError when the bytes are not a packet or it is too large.
        """
        available = self._end - self._start
        if available < HEADER_BYTES:
            return None
        command, arg0, arg1, length, _, magic = _HEADER.unpack_from(self._view, self._start)
        if magic != command ^ 0xFFFFFFFF:
            raise BadPacket(f"not a packet: command {command:#010x}, magic {magic:#010x}")
        if length > self.max_payload:
            raise BadPacket(f"payload of {length} bytes, at most {self.max_payload} are accepted")
        if available < HEADER_BYTES + length:
            return None
        first = self._start + HEADER_BYTES
        self._start = first + length
        return Packet(command, arg0, arg1, self._view[first : self._start])

    def _count_missing(self) -> int:
        """Return the bytes missing in the current packet; its header was checked by `next`."""
        available = self._end - self._start
        if available < HEADER_BYTES:
            return HEADER_BYTES - available
        length: int = _HEADER.unpack_from(self._view, self._start)[3]
        return HEADER_BYTES + length - available


class Endpoint(Protocol):
    """The service behind a stream on the device. None of its methods may block for long."""

    def received(self, data: memoryview) -> bool:
        """Take data of the host, valid during this call only.

        True once it is consumed; False when `Stream.acknowledge` will be called later.
        """

    def writable(self) -> None:
        """Called when the host has taken the last write: another one may follow."""

    def closed(self) -> None:
        """Called when the host closed the stream or the connection ended; nothing can be written.

        `Stream.lost` tells which.
        """


class Stream:
    """The device's end of a stream: its number is `local`, that of the host's end `remote`."""

    def __init__(self, streams: Streams, local: int, remote: int) -> None:
        self._streams = streams
        self.remote = remote
        self.local = local
        self.endpoint: Endpoint | None = None
        self.ready = True
        self.closed = False
        self.lost = False
        self.unanswered = 0

    @property
    def max_write(self) -> int:
        return self._streams.max_payload

    def write(self, data: Payload) -> None:
        """Send data; only while `ready`, which is False then until the endpoint's `writable`.

        The data must not change before that.
        """
        self.ready = False
        self._streams.send(WRTE, self.local, self.remote, data)

    def acknowledge(self) -> None:
        """Tell the host that all it wrote is consumed, so that it may write more."""
        if self.unanswered and not self.closed:
            self.unanswered = 0
            self._streams.send(OKAY, self.local, self.remote, b"")

    def close(self) -> None:
        """Close the stream from the device's side, without a call of the endpoint."""
        if not self.closed:
            self._streams.forget(self)
            self._streams.send(CLSE, self.local, self.remote, b"")


StreamService = Callable[[Stream], Endpoint]
"""Starts a service on an open stream. Raises OSError or ValueError if it cannot be started."""


class Streams:
    """All streams of one connection; `find_service` gives None for a service that is unknown."""

    def __init__(
        self, send: Send, find_service: Callable[[bytes], StreamService | None], *, max_payload: int
    ) -> None:
        self.send = send
        self.max_payload = max_payload
        self._find_service = find_service
        self._open: dict[int, Stream] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def handle(self, packet: Packet) -> None:
        """Handle a packet; packets for unknown streams are ignored, as by adbd."""
        if packet.command == OPEN:
            self._handle_open(packet.arg0, bytes(packet.payload))
            return
        stream = self._open.get(packet.arg1)
        if stream is None:
            return
        if packet.command == CLSE:
            # arg0 is 0 when the host gives up a stream that it never saw opened
            if packet.arg0 == 0 or stream.remote == packet.arg0:
                self._handle_close(stream)
        elif stream.remote != packet.arg0:
            return
        elif packet.command == OKAY:
            if not stream.ready:
                stream.ready = True
                if stream.endpoint is not None:
                    stream.endpoint.writable()
        elif packet.command == WRTE:
            self._handle_write(stream, memoryview(packet.payload))

    def close_all(self) -> None:
        for stream in list(self._open.values()):
            stream.lost = True
            self.forget(stream)
            if stream.endpoint is not None:
                stream.endpoint.closed()

    def forget(self, stream: Stream) -> None:
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
        self._last = self._last % 0xFFFFFFFF + 1
        while self._last in self._open:
            self._last = self._last % 0xFFFFFFFF + 1
        stream = Stream(self, self._last, remote)
        self._open[stream.local] = stream
        self.send(OKAY, stream.local, remote, b"")
        try:
            stream.endpoint = service(stream)
        except (OSError, ValueError):
            stream.close()

    def _handle_write(self, stream: Stream, data: memoryview) -> None:
        # a host that never waits would make us buffer without a bound
        if stream.unanswered >= _MAX_UNANSWERED:
            self._handle_close(stream)
            return
        stream.unanswered += 1
        if stream.endpoint is None or stream.endpoint.received(data):
            stream.acknowledge()

    def _handle_close(self, stream: Stream) -> None:
        # adbd answers a CLSE with its own
        stream.close()
        if stream.endpoint is not None:
            stream.endpoint.closed()
