"""The service `sync:`: files and folders in and out, one stream for as many as the host likes.

One generator does the talking in plain order. It yields whenever it needs more input or must
wait until the host has taken what was written, and is resumed by whichever comes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator
from typing import Final

from harness.simulator import sync_wire as wire
from harness.simulator.storage import Storage, Upload
from harness.simulator.streams import Stream

Steps = Generator[None, None, None]
_READ_DATA: Final = 15  # DATA messages put into one write: close to, but below 1 MiB
_NOTHING: Final = memoryview(b"")


class SyncSession:
    """The device's side of one sync stream."""

    def __init__(
        self,
        stream: Stream,
        storage: Storage,
        features: frozenset[str],
        note: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._storage = storage
        self._features = features
        self._note = note
        self._input = _NOTHING
        self._output = bytearray()
        self._steps = self._serve()
        self._over = False
        self._advance()

    def received(self, data: memoryview) -> bool:
        """Takes requests and file contents."""
        self._input = data
        self._advance()
        if self._input:
            self._input = memoryview(bytes(self._input))
            return False
        return True

    def writable(self) -> None:
        """Sends more of what is waiting."""
        self._flush()
        self._advance()
        if not self._input:
            self._stream.acknowledge()

    def closed(self) -> None:
        """Gives up the file under way, if any."""
        self._over = True
        self._steps.close()

    def _advance(self) -> None:
        if self._over:
            self._input = _NOTHING
            return
        try:
            next(self._steps)
        except StopIteration:
            self._over = True
            self._input = _NOTHING
            self._stream.close()

    def _flush(self) -> None:
        if self._output and self._stream.ready:
            size = self._stream.max_write
            self._stream.write(self._output[:size])
            del self._output[:size]

    def _answer(self, data: bytes) -> Steps:
        self._output += data
        self._flush()
        while len(self._output) >= self._stream.max_write:
            yield

    def _idle(self) -> Steps:
        """Waits until the host has taken everything."""
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
            request, length = wire.MESSAGE.unpack((yield from self._exactly(wire.MESSAGE.size)))
            if request == b"QUIT":
                break
            if length > wire.MAX_PATH:
                yield from self._answer(wire.fail("path too long"))
                break
            path = os.fsdecode((yield from self._exactly(length)))
            feature = wire.FOLLOWED_BY_FEATURE.get(request)
            handle = _REQUESTS.get(request)
            if handle is None or (feature is not None and feature not in self._features):
                yield from self._answer(wire.fail(f"unknown command {request.hex()}"))
                break
            if "\0" in path:
                yield from self._answer(wire.fail("path has a NUL in it"))
                break
            if not (yield from handle(self, request, path)):
                break
        yield from self._idle()

    def _stat(self, request: bytes, path: str) -> Generator[None, None, bool]:
        status, error = None, 0
        try:
            if request == b"STA2":
                status = os.stat(self._storage.resolve(path))
            else:
                status = os.lstat(self._storage.resolve_entry(path))
        except OSError as failure:
            error = failure.errno or errno.EIO
        if request == b"STAT":
            yield from self._answer(wire.stat_v1(status))
        else:
            yield from self._answer(wire.stat_v2(request, status, error))
        return True

    def _list(self, request: bytes, path: str) -> Generator[None, None, bool]:
        v2 = request == b"LIS2"
        try:
            folder = self._storage.resolve(path)
            names = [".", "..", *os.listdir(folder)]
        except OSError:
            folder, names = "", []  # adbd answers an empty list as well
        for name in names:
            status, error = None, 0
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError as failure:
                error = failure.errno or errno.EIO
            if status is not None or v2:
                yield from self._answer(wire.entry(v2, os.fsencode(name), status, error))
        yield from self._answer(wire.end_of_entries(v2))
        return True

    def _receive(self, request: bytes, path: str) -> Generator[None, None, bool]:
        if request == b"RCV2":
            _, flags = wire.RECV_V2.unpack((yield from self._exactly(wire.RECV_V2.size)))
            if flags:
                yield from self._answer(wire.fail(f"compression is not supported ({flags:#x})"))
                return True
        self._note(f"recv {path}")
        try:
            fd = self._storage.open_for_reading(path)
        except OSError as error:
            yield from self._answer(wire.fail(f"open failed: {error.strerror}"))
            return True
        try:
            yield from self._send_content(fd)
        except OSError as error:
            yield from self._answer(wire.fail(f"read failed: {error.strerror}"))
        finally:
            os.close(fd)
        return True

    def _send_content(self, fd: int) -> Steps:
        head = wire.MESSAGE.size
        step = head + wire.MAX_DATA
        count = max(1, min(_READ_DATA, self._stream.max_write // step))
        # two blocks in turn: one is read while the other is on its way and must not change
        block, other = memoryview(bytearray(count * step)), memoryview(bytearray(count * step))
        while True:
            size = os.readv(fd, [block[i * step + head : (i + 1) * step] for i in range(count)])
            if size == 0:
                break
            whole, rest = divmod(size, wire.MAX_DATA)
            for index in range(whole + bool(rest)):
                length = wire.MAX_DATA if index < whole else rest
                wire.MESSAGE.pack_into(block, index * step, b"DATA", length)
            yield from self._write_all(block[: whole * step + (head + rest if rest else 0)])
            block, other = other, block
        yield from self._answer(wire.MESSAGE.pack(b"DONE", 0))

    def _write_all(self, data: memoryview) -> Steps:
        while data:
            yield from self._idle()
            size = self._stream.max_write
            self._stream.write(data[:size])
            data = data[size:]

    def _send(self, request: bytes, spec: str) -> Generator[None, None, bool]:
        if request == b"SND2":
            raw = yield from self._exactly(wire.SEND_V2.size)
            _, mode, flags = wire.SEND_V2.unpack(raw)
            path = spec
            if flags:
                yield from self._answer(wire.fail(f"flags {flags:#x} are not supported"))
                return False
        else:
            path, _, number = spec.rpartition(",")
            if not (number.isdecimal() and number.isascii() and len(number) < 11):
                yield from self._answer(wire.fail(f"bad mode in {spec!r}"))
                return False
            mode = int(number)
        self._note(f"send {path}")
        if stat.S_ISLNK(mode):
            return (yield from self._take_link(path))
        return (yield from self._take_file(path, mode))

    def _take_link(self, path: str) -> Generator[None, None, bool]:
        request, length = wire.MESSAGE.unpack((yield from self._exactly(wire.MESSAGE.size)))
        if request != b"DATA" or not 0 < length <= wire.MAX_PATH:
            yield from self._answer(wire.fail("invalid data message: expected ID_DATA"))
            return False
        target = (yield from self._exactly(length)).rstrip(b"\0")
        request, _ = wire.MESSAGE.unpack((yield from self._exactly(wire.MESSAGE.size)))
        if request != b"DONE":
            yield from self._answer(wire.fail("invalid data message: expected ID_DONE"))
            return False
        try:
            self._storage.link(path, target)
        except (OSError, ValueError) as error:
            yield from self._answer(wire.fail(f"failed to create symlink: {_text(error)}"))
        else:
            yield from self._answer(wire.okay())
        return True

    def _take_file(self, path: str, mode: int) -> Generator[None, None, bool]:
        upload: Upload | None = None
        try:
            try:
                upload = self._storage.upload(path, mode)
            except OSError as error:
                yield from self._answer(wire.fail(f"couldn't create file: {_text(error)}"))
            while True:
                request, number = wire.MESSAGE.unpack((yield from self._exactly(wire.MESSAGE.size)))
                if request == b"DONE":
                    if upload is not None:
                        yield from self._answer(_commit(upload, number))
                    return True
                if request != b"DATA" or number > wire.MAX_DATA:
                    yield from self._answer(wire.fail("invalid data message"))
                    return False
                while number:
                    while not self._input:
                        yield
                    piece, self._input = self._input[:number], self._input[number:]
                    number -= len(piece)
                    if upload is None:
                        continue  # adbd as well reads on after it has said FAIL
                    try:
                        upload.write(piece)
                    except OSError as error:
                        upload.abort()
                        upload = None
                        yield from self._answer(wire.fail(f"write failed: {_text(error)}"))
        finally:
            if upload is not None:
                upload.abort()


def _commit(upload: Upload, mtime: int) -> bytes:
    try:
        upload.commit(mtime)
    except OSError as error:
        return wire.fail(f"couldn't create file: {_text(error)}")
    return wire.okay()


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


_REQUESTS: Final[dict[bytes, Callable[[SyncSession, bytes, str], Generator[None, None, bool]]]] = {
    b"STAT": SyncSession._stat,
    b"STA2": SyncSession._stat,
    b"LST2": SyncSession._stat,
    b"LIST": SyncSession._list,
    b"LIS2": SyncSession._list,
    b"RECV": SyncSession._receive,
    b"RCV2": SyncSession._receive,
    b"SEND": SyncSession._send,
    b"SND2": SyncSession._send,
}
