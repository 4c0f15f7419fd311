"""Files on this computer: copies of ranges, sets of files for devices, appended lines."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from harness.core.errors import InfraError, InternalError
from harness.core.whole_file import disk_errors

_CHUNK: Final = 1 << 20
_MOST_AT_ONCE: Final = 1 << 30


def sha256_of_range(source: BinaryIO, offset: int, size: int) -> str:
    """Return the sha256 of `size` bytes, in hex. Raises OSError, EOFError at the end."""
    digest, remaining = hashlib.sha256(), size
    source.seek(offset)
    while remaining and (part := source.read(min(remaining, _CHUNK))):
        digest.update(part)
        remaining -= len(part)
    if remaining:
        raise EOFError(f"it ends {remaining} bytes early")
    return digest.hexdigest()


def copy_range(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
    """Copy `size` bytes of a file from `offset` on to another file, which is empty.

    Raises OSError, EOFError if the file ends before; what was written until then stays.
    """
    while size:
        count = os.sendfile(write.fileno(), read.fileno(), offset, min(size, _MOST_AT_ONCE))
        if not count:
            raise EOFError(f"it ends {size} bytes early")
        offset, size = offset + count, size - count


def link_or_copy(file: Path, target: Path) -> None:
    """Make a hard link to a file, or else a copy, unless the target exists. Raises OSError."""
    try:
        os.link(file.resolve(), target)
    except FileExistsError:
        return
    except OSError:  # another file system, or one without links
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(file, temporary)
        temporary.replace(target)


@dataclass(frozen=True)
class LocalFile:
    """A file on this computer; `name` is relative to its set or folder, with slashes.

    `size` in bytes, `sha256` in hex, `mode` as on the device.
    """

    path: Path
    name: str
    size: int
    sha256: str
    mode: int = 0o644


def content_key(files: Iterable[LocalFile]) -> str:
    """Return a hash of a set of files by their names, hashes and modes, in any order (hex)."""
    lines = sorted(f"{file.name}\0{file.sha256}\0{file.mode:o}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class AppendedLines:
    """A file to which lines are appended, by one process or by several at once.

    A line is one `write` on a descriptor opened for appending. So lines of several processes do not
    mix, and appended lines survive the death of this process. They are synced to disk when
    `sync_every_s` have passed since the last time, and on `close`.

    If an earlier writer died within a line, that line is ended first, so that it damages no other.
    If only one process at a time writes (`alone`), that line is removed.
    """

    def __init__(self, path: Path, *, alone: bool = False, sync_every_s: float = 0.0) -> None:
        """Open or create the file.

        Raises InfraError if that fails, BlockingIOError if another process has it `alone`.
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
        """Write a line, including its newline; then it survives the death of this process.

        Raises InternalError once it is closed, InfraError if it cannot be written (the next line
        then begins on a new line).
        """
        if self._file < 0:
            raise InternalError(f"{self.path} is closed already")
        content = b"\n" + line if self._torn else line
        with disk_errors(f"cannot write {self.path}"):
            written = os.write(self._file, content)
        self._torn = written < len(content)
        if self._torn:
            # only a full disk makes a write shorter than requested
            raise InfraError(f"cannot write {self.path}: no space left on the disk")
        if time.monotonic() - self._synced_at >= self._every_s:
            self._sync()

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if self._file >= 0:
            self._sync()
            os.close(self._file)
            self._file = -1

    def _sync(self) -> None:
        with disk_errors(f"cannot sync {self.path}"):
            os.fsync(self._file)
        self._synced_at = time.monotonic()


def lines_of(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) for each line of a file; the last may lack its newline.

    A line of more than `most_bytes` is cut after the first byte too many.
    """
    offset = 0
    while line := stream.readline(most_bytes + 1):
        yield offset, line
        offset += len(line)
        while len(line) > most_bytes and not line.endswith(b"\n"):
            line = stream.readline(most_bytes + 1)
            offset += len(line)
