"""A bisection on disk, reports/<id>-bisect/: its log, which is all of its state, and its runs."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final, Self

from harness.bisect.answers import Place
from harness.bisect.log import Asked, Begun, Entry, Log, read_log, to_line
from harness.errors import ConfigError, InfraError
from harness.results.rundir import new_run_id
from harness.results.whole_file import write_whole

LOG: Final = "log.jsonl"
RUNS: Final = "runs"
_SUFFIX = "-bisect"
_MAX_BYTES = 256 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


class BisectFolder:
    """The folder of a bisection, held by one process at a time while it is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    @classmethod
    def create(cls, reports: Path, begun: Begun) -> Self:
        """Makes a new one with the first line of its log, and holds it.

        Raises ConfigError if the folder for reports cannot be used, InfraError if the disk fails.
        """
        path = reports.resolve() / (new_run_id() + _SUFFIX)
        try:
            path.mkdir(parents=True)
            write_whole(path / LOG, to_line(begun).encode())
        except OSError as error:
            raise ConfigError(f"cannot hold reports: {error.strerror}", file=reports) from error
        folder = cls(path)
        folder.hold()
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """One that exists. Raises ConfigError if that is none."""
        if not (path / LOG).is_file():
            raise ConfigError(f"is no bisection: there is no {LOG}", file=path)
        return cls(path.resolve())

    @classmethod
    def newest(cls, reports: Path) -> Self:
        """The one that was begun last. Raises ConfigError if there is none."""
        found = sorted(log.parent for log in reports.glob(f"*{_SUFFIX}/{LOG}"))
        if not found:
            raise ConfigError("holds no bisection", file=reports)
        return cls(found[-1].resolve())

    def hold(self) -> None:
        """Keeps other processes from going on with it; ends a torn last line by dropping it.

        Raises ConfigError if another process is at it, InfraError if the disk fails.
        """
        path = self.path / LOG
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(self._file).st_size
            if size:
                tail = os.pread(self._file, size, 0)
                os.ftruncate(self._file, tail.rfind(b"\n") + 1)
        except BlockingIOError as error:
            raise ConfigError("another process is at this bisection", file=self.path) from error
        except OSError as error:
            raise InfraError(f"cannot write {path}: {error.strerror}") from error

    def close(self) -> None:
        """Lets go of it; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, entry: Entry) -> None:
        """Writes an entry; when this returns, it survives the death of the computer.

        Raises InfraError if it cannot be written.
        """
        line = to_line(entry).encode()
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise InfraError(f"cannot write {self.path / LOG}: {error.strerror}") from error
        if written < len(line):
            raise InfraError(f"cannot write {self.path / LOG}: no space left on the disk")

    def read(self) -> Log:
        """The log as it stands. Raises ConfigError for what is none."""
        path = self.path / LOG
        return read_log(read_text(path), file=str(path))

    def reports_of(self, log: Log, number: int | None = None) -> Path:
        """Where the run of the log's last question, or of its `number`th, has its reports."""
        asked = [entry for entry in log.entries if isinstance(entry, Asked)]
        count = number or len(asked)
        return self.path / RUNS / run_name(count, asked[count - 1].at)


def run_name(count: int, at: Place) -> str:
    """The folder of a run: 003-2.49.40."""
    return f"{count:03}-{_UNSAFE.sub('-', '-'.join(at))[:80]}"


def read_text(path: Path) -> str:
    """A log's text. Raises ConfigError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError("is too long for a log", file=path)
    return data.decode("utf-8", "replace")
