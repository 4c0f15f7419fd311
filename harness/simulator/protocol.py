"""adb's transport protocol: packets to bytes and back, without any I/O.

Numbers as in AOSP's packages/modules/adb/protocol.txt and adb.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple


def _word(name: bytes) -> int:
    return int.from_bytes(name, "little")


CNXN: Final = _word(b"CNXN")
AUTH: Final = _word(b"AUTH")
OPEN: Final = _word(b"OPEN")
OKAY: Final = _word(b"OKAY")
WRTE: Final = _word(b"WRTE")
CLSE: Final = _word(b"CLSE")

AUTH_TOKEN: Final = 1
AUTH_SIGNATURE: Final = 2
AUTH_RSAPUBLICKEY: Final = 3

VERSION: Final = 0x01000001
"""From this version on both sides leave checksums out (0 is sent, nothing is checked)."""

MAX_PAYLOAD: Final = 1 << 20
"""The largest payload this side takes, in bytes."""

MAX_HANDSHAKE_PAYLOAD: Final = 16 * 1024
"""The largest payload taken before the other side has proven who it is, in bytes."""

MIN_PAYLOAD: Final = 4096
"""The smallest maximum that any adb ever announced (MAX_PAYLOAD_V1), in bytes."""

_HEADER: Final = struct.Struct("<6I")
HEADER_BYTES: Final = _HEADER.size


class ProtocolError(ValueError):
    """The other side sent bytes that are not adb's protocol."""


class Packet(NamedTuple):
    """One packet. `payload` may point into a receive buffer: see PacketReader.next."""

    command: int
    arg0: int
    arg1: int
    payload: bytes | memoryview
    checksum: int = 0


def checksum(parts: Iterable[bytes | bytearray | memoryview]) -> int:
    """The sum of all bytes modulo 2**32; adb calls it a CRC."""
    return sum(sum(part) for part in parts) & 0xFFFFFFFF


def header(command: int, arg0: int, arg1: int, length: int, check: int = 0) -> bytes:
    """The 24 bytes before a payload of `length` bytes."""
    return _HEADER.pack(command, arg0, arg1, length, check, command ^ 0xFFFFFFFF)


def encode(packet: Packet) -> bytes:
    """A whole packet as bytes, its `checksum` field as it is."""
    command, arg0, arg1, payload, check = packet
    return header(command, arg0, arg1, len(payload), check) + payload


class PacketReader:
    """Finds packets in what is received, without copying payloads.

    The caller fills `space()`, says how much with `filled`, then takes packets with `next` until
    it gives None. `max_payload` bounds what a header may announce; memory is about twice that.
    """

    def __init__(self, max_payload: int) -> None:
        self._start = self._end = 0
        self._view = memoryview(b"")
        self.max_payload = 0
        self.resize(max_payload)

    def resize(self, max_payload: int) -> None:
        """Sets another bound; what was received already is kept."""
        capacity = 2 * (HEADER_BYTES + max_payload)
        if self.max_payload < max_payload:
            kept = self._view[self._start : self._end]
            fresh = memoryview(bytearray(capacity))
            fresh[: len(kept)] = kept
            self._view, self._start, self._end = fresh, 0, len(kept)
        self.max_payload = max_payload

    def space(self) -> memoryview:
        """Where the next bytes go, at least one. Payloads handed out before become invalid."""
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._view) - self._end < self._missing():
            kept = self._end - self._start
            self._view[:kept] = self._view[self._start : self._end]
            self._start, self._end = 0, kept
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Says that `count` bytes were put at the beginning of `space()`."""
        self._end += count

    def next(self) -> Packet | None:
        """The next whole packet, None when more bytes are needed.

        Its payload points into the buffer and is valid until the next call of `space`. Raises
        ProtocolError when the bytes are not a packet or it is too large.
        """
        available = self._end - self._start
        if available < HEADER_BYTES:
            return None
        command, arg0, arg1, length, check, magic = _HEADER.unpack_from(self._view, self._start)
        if magic != command ^ 0xFFFFFFFF:
            raise ProtocolError(f"not a packet: command {command:#010x}, magic {magic:#010x}")
        if length > self.max_payload:
            raise ProtocolError(f"payload of {length} bytes, at most {self.max_payload} are taken")
        if available < HEADER_BYTES + length:
            return None
        first = self._start + HEADER_BYTES
        self._start = first + length
        return Packet(command, arg0, arg1, self._view[first : self._start], check)

    def _missing(self) -> int:
        """Bytes wanted for the packet under way; its header was checked by `next`."""
        available = self._end - self._start
        if available < HEADER_BYTES:
            return HEADER_BYTES - available
        length: int = _HEADER.unpack_from(self._view, self._start)[3]
        return HEADER_BYTES + length - available
