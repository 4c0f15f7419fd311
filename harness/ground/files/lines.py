"""Lines that are only ever appended to a file, which can be read after any death of its writer."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.ground.errors import InfraError, InternalError
from harness.ground.files.whole_file import disk_errors


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
