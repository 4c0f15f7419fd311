"""The service `sync:`: transfers of files and folders, any number on one stream.

Messages as in AOSP's packages/modules/adb/SYNC.TXT and file_sync_protocol.h. A generator runs the
dialogue. It yields whenever it needs more input or must wait until the host has taken
the output, and is resumed by either.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Generator
from typing import Final

from harness.simulator.protocol import Stream
from harness.simulator.storage import Storage, Upload

Steps = Generator[None, None, None]
_MAX_DATA: Final = 64 * 1024  # the content of one DATA message
_READ_DATA: Final = 15  # DATA messages put into one write: close to, but below 1 MiB
_MAX_PATH: Final = 1024  # as adbd has it
_NOTHING: Final = memoryview(b"")

# Every request and answer begins with an id and a number.
_MESSAGE: Final = struct.Struct("<4sI")
_HEAD: Final = _MESSAGE.size
_STAT_V1: Final = struct.Struct("<4sIII")
_STAT_V2: Final = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY_V1: Final = struct.Struct("<4sIIII")

# The fields of a file in the second versions, after an errno.
_FIELDS: Final = ("dev", "ino", "mode", "nlink", "uid", "gid", "size", "atime", "mtime", "ctime")


class _Refused(Exception):
    """A request cannot be served; `is_last` if later requests cannot be parsed either."""

    def __init__(self, why: str, *, is_last: bool = False) -> None:
        super().__init__(why)
        self.is_last = is_last


def _fail(text: str) -> bytes:
    reason = text.encode("utf-8", "replace")
    return _MESSAGE.pack(b"FAIL", len(reason)) + reason


def _fields_v1(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return 0, 0, 0
    return status.st_mode, status.st_size & 0xFFFFFFFF, int(status.st_mtime) & 0xFFFFFFFF


def _fields_v2(status: os.stat_result | None, error: int) -> tuple[int, ...]:
    return (error, *(int(getattr(status, f"st_{name}", 0)) for name in _FIELDS))


def _status(
    path: str, resolve: Callable[[str], str], *, follow: bool = False
) -> tuple[os.stat_result | None, int]:
    try:
        return os.stat(resolve(path), follow_symlinks=follow), 0
    except OSError as failure:
        return None, failure.errno or errno.EIO


class SyncSession:
    """The device's side of one sync stream."""

    def __init__(self, stream: Stream, storage: Storage, note: Callable[[str], None]) -> None:
        self._stream = stream
        self._storage = storage
        self._note = note
        self._input = _NOTHING
        self._output = bytearray()
        self._steps = self._serve()
        self._is_over = False
        self._advance()

    def received(self, data: memoryview) -> bool:
        """Take requests and file contents.

        Acknowledges before it answers, as adbd does. It
        buffers what it cannot use yet; the host must wait only during that.
        """
        waiting = bool(self._input)
        if waiting:
            self._input = memoryview(bytes(self._input) + bytes(data))
        else:
            self._input = data
            self._stream.acknowledge()
        self._advance()
        if self._input and not waiting:
            self._input = memoryview(bytes(self._input))
        return not self._input

    def writable(self) -> None:
        self._flush()
        self._advance()
        if not self._input:
            self._stream.acknowledge()

    def closed(self) -> None:
        self._is_over = True
        self._steps.close()

    def _advance(self) -> None:
        if self._is_over:
            self._input = _NOTHING
            return
        try:
            next(self._steps)
        except StopIteration:
            self._is_over = True
            self._input = _NOTHING
            self._stream.close()

    def _flush(self) -> None:
        if self._output and self._stream.ready:
            size = self._stream.max_write
            self._stream.write(self._output[:size])
            del self._output[:size]

    def _answer(self, data: bytes | bytearray) -> Steps:
        self._output += data
        self._flush()
        while len(self._output) >= self._stream.max_write:
            yield

    def _idle(self) -> Steps:
        while self._output or not self._stream.ready:
            yield

    def _exactly(self, count: int) -> Generator[None, None, bytes]:
        collected = b""
        while len(collected) < count:
            while not self._input:
                yield
            piece = self._input[: count - len(collected)]
            self._input = self._input[len(piece) :]
            collected += piece
        return collected

    def _serve(self) -> Steps:
        while True:
            request, length = _MESSAGE.unpack((yield from self._exactly(_HEAD)))
            if request == b"QUIT":
                break
            try:
                if length > _MAX_PATH:
                    raise _Refused("path too long", is_last=True)
                path = os.fsdecode((yield from self._exactly(length)))
                handle = _REQUESTS.get(request)
                if handle is None:
                    raise _Refused(f"unknown command {request.hex()}", is_last=True)
                if "\0" in path:
                    raise _Refused("path has a NUL in it", is_last=True)
                yield from handle(self, request, path)
            except _Refused as refused:
                yield from self._answer(_fail(str(refused)))
                if refused.is_last:
                    break
        yield from self._idle()

    def _stat(self, request: bytes, path: str) -> Steps:
        follow = request == b"STA2"
        resolve = self._storage.resolve if follow else self._storage.resolve_entry
        status, error = _status(path, resolve, follow=follow)
        if request == b"STAT":
            yield from self._answer(_STAT_V1.pack(request, *_fields_v1(status)))
        else:
            yield from self._answer(_STAT_V2.pack(request, *_fields_v2(status, error)))

    def _list(self, request: bytes, path: str) -> Steps:
        try:
            folder = self._storage.resolve(path)
            names = [".", "..", *os.listdir(folder)]
        except OSError:
            folder, names = "", []  # adbd answers an empty list as well
        entries = bytearray()
        for name in names:
            status, _ = _status(os.path.join(folder, name), str)
            raw = os.fsencode(name)
            if status is not None:
                entries += _ENTRY_V1.pack(b"DENT", *_fields_v1(status), len(raw)) + raw
            if len(entries) >= self._stream.max_write:
                yield from self._answer(entries)
                entries.clear()
        # as long as an entry without a name
        yield from self._answer(entries + b"DONE" + bytes(_ENTRY_V1.size - 4))

    def _receive(self, request: bytes, path: str) -> Steps:
        self._note(f"recv {path}")
        try:
            fd = self._storage.open_for_reading(path)
        except OSError as error:
            raise _Refused(f"open failed: {error.strerror}") from error
        try:
            yield from self._send_content(fd)
        except OSError as error:
            raise _Refused(f"read failed: {error.strerror}") from error
        finally:
            os.close(fd)

    def _send_content(self, fd: int) -> Steps:
        messages = min(_READ_DATA, (self._stream.max_write - _HEAD) // (_HEAD + _MAX_DATA)) or 1
        content, done = _read_messages(fd, messages), _MESSAGE.pack(b"DONE", 0)
        while content:
            following = _read_messages(fd, messages)
            # in the same write: adb's server forwards a small one after it 40 ms later,
            # once the client has acknowledged the first (Nagle, and delayed ACK)
            yield from self._write_all(memoryview(content if following else content + done))
            content = following
            if not following:
                return
        yield from self._write_all(memoryview(done))

    def _write_all(self, data: memoryview) -> Steps:
        while data:
            yield from self._idle()
            size = self._stream.max_write
            self._stream.write(data[:size])
            data = data[size:]

    def _send(self, request: bytes, spec: str) -> Steps:
        path, _, number = spec.rpartition(",")
        if not (number.isdecimal() and number.isascii() and len(number) < 11):
            raise _Refused(f"bad mode in {spec!r}", is_last=True)
        mode = int(number)
        self._note(f"send {path}")
        if not stat.S_ISREG(mode):
            raise _Refused("only regular files can be pushed", is_last=True)
        upload: Upload | None = None
        try:
            try:
                upload = self._storage.upload(path, mode)
            except OSError as error:
                yield from self._answer(_fail(f"couldn't create file: {_text(error)}"))
            while True:
                request, number = _MESSAGE.unpack((yield from self._exactly(_HEAD)))
                if request == b"DONE":
                    if upload is not None:
                        yield from self._answer(_commit(upload, number))
                    return
                if request != b"DATA" or number > _MAX_DATA:
                    raise _Refused("invalid data message", is_last=True)
                while number:
                    while not self._input:
                        yield
                    piece, self._input = self._input[:number], self._input[number:]
                    number -= len(piece)
                    if upload is None:
                        continue  # adbd reads on, too, after it has sent FAIL
                    try:
                        upload.write(piece)
                    except OSError as error:
                        upload.abort()
                        upload = None
                        yield from self._answer(_fail(f"write failed: {_text(error)}"))
        finally:
            if upload is not None:
                upload.abort()


def _read_messages(fd: int, count: int) -> bytes:
    """Return up to `count` DATA messages of a file, nothing at its end."""
    data = os.read(fd, count * _MAX_DATA)
    pieces = (data[start : start + _MAX_DATA] for start in range(0, len(data), _MAX_DATA))
    return b"".join(_MESSAGE.pack(b"DATA", len(piece)) + piece for piece in pieces)


def _commit(upload: Upload, mtime: int) -> bytes:
    try:
        upload.commit(mtime)
    except OSError as error:
        return _fail(f"couldn't create file: {_text(error)}")
    return _MESSAGE.pack(b"OKAY", 0)


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


_Handler = Callable[[SyncSession, bytes, str], Steps]
_REQUESTS: Final[dict[bytes, _Handler]] = {
    b"STAT": SyncSession._stat,
    b"STA2": SyncSession._stat,
    b"LST2": SyncSession._stat,
    b"LIST": SyncSession._list,
    b"RECV": SyncSession._receive,
    b"SEND": SyncSession._send,
}
