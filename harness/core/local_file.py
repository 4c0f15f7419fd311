"""Files on this computer: their large parts copied, sets of them for devices, lines appended."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from harness.core.errors import InfraError, InternalError
from harness.core.verified_folder import VerifiedFile
from harness.core.whole_file import disk_errors

_CHUNK: Final = 1 << 20
_MOST_AT_ONCE: Final = 1 << 30
# what a file system answers that cannot do it, or not to that other one
_NOT_HERE: Final = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}


def sha256_of_range(source: BinaryIO, offset: int, size: int) -> str:
    """The sha256 of so many bytes, in hex. Raises OSError, EOFError if the file ends before."""
    digest, left = hashlib.sha256(), size
    source.seek(offset)
    while left and (part := source.read(min(left, _CHUNK))):
        digest.update(part)
        left -= len(part)
    if left:
        raise EOFError(f"it ends {left} bytes early")
    return digest.hexdigest()


def copy_range(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
    """Writes `size` bytes of a file from `offset` on into another one, which is empty.

    Raises OSError, EOFError if the file ends before; what was written until then stays.
    """
    write.truncate(size)
    at, end = offset, offset + size
    while at < end:
        begin, at = _next_data(read, at, end)
        _copy(read, begin, write, begin - offset, at - begin)
    if os.fstat(read.fileno()).st_size < end:
        raise EOFError(f"it ends {end - os.fstat(read.fileno()).st_size} bytes early")


def hold(file: Path, target: Path) -> None:
    """Gives a file another name, by a hard link or else a copy, unless that name is taken.

    Raises OSError.
    """
    try:
        os.link(file.resolve(), target)
    except FileExistsError:
        return
    except OSError:  # another file system, or one without links
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        with file.open("rb") as read, beside.open("wb") as write:
            copy_range(read, 0, os.fstat(read.fileno()).st_size, write)
        beside.replace(target)


def _next_data(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    """Where bytes that are no hole begin and end; nothing at `end` if only holes are left."""
    try:
        begin = min(os.lseek(file.fileno(), at, os.SEEK_DATA), end)
        return begin, min(os.lseek(file.fileno(), begin, os.SEEK_HOLE), end)
    except OSError as error:
        # ENXIO: no data behind it; EINVAL: a file system that knows of no holes
        if error.errno == errno.ENXIO:
            return end, end
        if error.errno == errno.EINVAL:
            return at, end
        raise


def _copy(read: BinaryIO, at: int, write: BinaryIO, to: int, size: int) -> None:
    source, target = read.fileno(), write.fileno()
    by_range = sys.platform == "linux"
    while size:
        if sys.platform == "linux" and by_range:
            try:
                done = os.copy_file_range(source, target, min(size, _MOST_AT_ONCE), at, to)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                by_range = False
                continue
        elif sys.platform == "linux":
            os.lseek(target, to, os.SEEK_SET)
            done = os.sendfile(target, source, at, min(size, _MOST_AT_ONCE))
        else:
            done = os.pwrite(target, os.pread(source, min(size, _CHUNK), at), to)
        if not done:
            raise EOFError(f"it ends {size} bytes early")
        at, to, size = at + done, to + done, size - done


@dataclass(frozen=True)
class LocalFile:
    """A file on this computer that goes to devices, and its name in the set it is of (slashes).

    `size` in bytes, `sha256` in hex, `mode` as on the device.
    """

    path: Path
    name: str
    size: int
    sha256: str
    mode: int = 0o644

    @classmethod
    def of(cls, file: VerifiedFile) -> LocalFile:
        """A file of a verified folder, by its name there."""
        return cls(file.path, file.name, file.size, file.sha256)


def content_key(files: Iterable[LocalFile]) -> str:
    """A name for a set of files by their names, hashes and modes: hex, the same in any order."""
    lines = sorted(f"{file.name}\0{file.sha256}\0{file.mode:o}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class AppendedLines:
    """A file to which lines are appended, by one process or by several at once.

    A line is one `write` on a descriptor opened for appending. So lines of several processes do not
    mix, and what was appended survives the death of this process. Against the death of the machine
    it is synced to disk when `sync_every_s` have passed since the last time, and on `close`.

    If an earlier writer died within a line, that line is ended first, so that it spoils no other.
    Where one process at a time writes (`alone`), that line is taken out.
    """

    def __init__(self, path: Path, *, alone: bool = False, sync_every_s: float = 0.0) -> None:
        """Opens or creates the file.

        Raises InfraError if that is impossible, BlockingIOError if another process has it `alone`.
        """
        self.path = path
        self._every_s, self._synced_at = sync_every_s, time.monotonic()
        with disk_errors(f"cannot write {path}"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if alone:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(f"cannot write {path}"):
                size = os.fstat(self._file).st_size
                self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
                if alone and self._torn:
                    whole = os.pread(self._file, size, 0).rfind(b"\n") + 1
                    os.ftruncate(self._file, whole)
                    self._torn = False
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: bytes) -> None:
        """Writes a line, which ends with its end; then it survives the death of this process.

        Raises InternalError once it is closed, InfraError if it cannot be written (the next line
        then begins anew).
        """
        if self._file < 0:
            raise InternalError(f"{self.path} is closed already")
        content = b"\n" + line if self._torn else line
        with disk_errors(f"cannot write {self.path}"):
            written = os.write(self._file, content)
        self._torn = written < len(content)
        if self._torn:
            # Only a full disk writes less than it was asked to.
            raise InfraError(f"cannot write {self.path}: no space left on the disk")
        if time.monotonic() - self._synced_at >= self._every_s:
            self._sync()

    def close(self) -> None:
        """Syncs and closes; safe to call twice."""
        if self._file >= 0:
            self._sync()
            os.close(self._file)
            self._file = -1

    def _sync(self) -> None:
        with disk_errors(f"cannot sync {self.path}"):
            os.fsync(self._file)
        self._synced_at = time.monotonic()


def lines_of(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, each with where it begins; the last may lack its end.

    A line that has more than `most_bytes` is cut behind the first byte too many.
    """
    at = 0
    while line := stream.readline(most_bytes + 1):
        yield at, line
        at += len(line)
        while len(line) > most_bytes and not line.endswith(b"\n"):
            line = stream.readline(most_bytes + 1)
            at += len(line)
