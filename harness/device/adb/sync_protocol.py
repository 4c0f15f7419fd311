"""The bytes of adb's file service `sync:`, versions 1 and 2. Pure.

Documented in the Android sources (packages/modules/adb, SYNC.TXT and file_sync_protocol.h): a
request is four letters, a length and a path; numbers are little-endian.
"""

from __future__ import annotations

import errno
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.device.transport.faults import ProtocolError
from harness.device.transport.files import RemoteStat, path_bytes

CHUNK_BYTES = 64 * 1024
"""The most that one DATA message may carry."""

_WORD = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<III")
_STAT_V2 = struct.Struct("<IQQIIIIQqqq")
_MAX_TEXT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Dialect:
    """Which versions of the messages a device understands."""

    stat_v2: bool
    send_v2: bool

    @classmethod
    def of(cls, features: frozenset[str]) -> Dialect:
        """The newest messages that a device with these features knows."""
        return cls("stat_v2" in features, "sendrecv_v2" in features)

    def stat(self, path: str, *, follow: bool) -> bytes:
        """A request for a file's attributes; v1 cannot follow links."""
        if self.stat_v2:
            return request(b"STA2" if follow else b"LST2", path)
        return request(b"STAT", path)

    def receive(self, path: str) -> bytes:
        """A request for a file's content."""
        if self.send_v2:
            return request(b"RCV2", path) + _WORD.pack(b"RCV2", 0)
        return request(b"RECV", path)

    def send(self, path: str, mode: int) -> bytes:
        """The start of sending a regular file; `mode` are its permission bits."""
        mode = stat.S_IFREG | (mode & 0o7777)
        if self.send_v2:
            return request(b"SND2", path) + struct.pack("<4sII", b"SND2", mode, 0)
        return request(b"SEND", f"{path},{mode}")


def request(kind: bytes, path: str) -> bytes:
    """A request about a path. Raises InfraError for a path that adbd cannot take."""
    encoded = path_bytes(path)
    return _WORD.pack(kind, len(encoded)) + encoded


def data_header(length: int) -> bytes:
    """What stands before `length` bytes of a file."""
    return _WORD.pack(b"DATA", length)


def done(mtime_s: int) -> bytes:
    """The end of a sent file, with its modification time."""
    return _WORD.pack(b"DONE", max(0, min(mtime_s, 0xFFFFFFFF)))


@dataclass(frozen=True)
class Okay:
    """A sent file was taken."""


@dataclass(frozen=True)
class Fail:
    """The device refused; after that it closes the stream."""

    text: str


@dataclass(frozen=True)
class FileData:
    """A piece of a file, not necessarily a whole message."""

    content: bytes


@dataclass(frozen=True)
class FileEnd:
    """The end of a file."""


Reply = Okay | Fail | FileData | FileEnd | RemoteStat


class ReplyReader:
    """Cuts what a device sends into replies, however it arrives.

    Lengths are bounded; file content is handed on as it comes. Raises ProtocolError for anything
    the protocol does not allow.
    """

    def __init__(self) -> None:
        self._held = b""
        self._data_left = 0

    def feed(self, data: bytes) -> Iterator[Reply]:
        """The replies that `data` completes."""
        if self._data_left and not self._held and len(data) <= self._data_left:
            self._data_left -= len(data)
            if data:
                yield FileData(data)
            return
        held, self._held = memoryview(self._held + data), b""
        position = 0
        try:
            while position < len(held):
                if self._data_left:
                    piece = bytes(held[position : position + self._data_left])
                    position += len(piece)
                    self._data_left -= len(piece)
                    yield FileData(piece)
                    continue
                reply, taken = self._one(held[position:])
                if taken == 0:
                    break
                position += taken
                if reply is not None:
                    yield reply
        finally:
            self._held = bytes(held[position:])

    def _one(self, held: memoryview) -> tuple[Reply | None, int]:
        """One reply and the bytes it took; (None, 0) if it is not complete."""
        if len(held) < 4:
            return None, 0
        kind = bytes(held[:4])
        if kind in (b"STAT", b"STA2", b"LST2"):
            layout = _STAT_V1 if kind == b"STAT" else _STAT_V2
            size = len(kind) + layout.size
            if len(held) < size:
                return None, 0
            if layout is _STAT_V1:
                mode, length, mtime = layout.unpack_from(held, len(kind))
                return RemoteStat(mode, length, mtime, 0 if mode else errno.ENOENT), size
            error, _, _, mode, _, _, _, length, _, mtime, _ = layout.unpack_from(held, len(kind))
            return RemoteStat(mode, length, mtime, error), size
        if kind not in (b"OKAY", b"FAIL", b"DATA", b"DONE"):
            raise ProtocolError(f"unknown sync reply {kind!r}")
        if len(held) < _WORD.size:
            return None, 0
        length = _WORD.unpack_from(held)[1]
        if kind == b"OKAY":
            return Okay(), _WORD.size
        if kind == b"DONE":
            return FileEnd(), _WORD.size
        if kind == b"DATA":
            if length > CHUNK_BYTES:
                raise ProtocolError(f"sync data of {length} bytes in one message")
            self._data_left = length
            return None, _WORD.size
        if length > _MAX_TEXT_BYTES:
            raise ProtocolError(f"sync failure text of {length} bytes")
        end = _WORD.size + length
        if len(held) < end:
            return None, 0
        return Fail(bytes(held[_WORD.size : end]).decode("utf-8", "replace")), end
