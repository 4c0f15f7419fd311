"""A search on disk, reports/<id>-bisect/: its log, which is all of its state, and its runs."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self

from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.lines import AppendedLines
from harness.ground.files.names_inside import NotInsideError, refuse_links
from harness.ground.files.whole_file import read_bounded, write_whole
from harness.ground.host.platform import locking_process
from harness.search.bisect.log import (
    AnySpec,
    Begun,
    Entry,
    FirstLine,
    Log,
    read_log,
    to_line,
)
from harness.search.bisect.task import Task
from harness.verdict.results.run_folder import making_folders, new_run_id
from harness.verdict.results.run_numbers import number_folder, ordered

LOG: Final = "log.jsonl"
RUNS: Final = "runs"
_MAX_BYTES = 256 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


class SearchFolder(Generic[AnySpec]):
    """The folder of a search, held by one process at a time while it is written to."""

    begins: ClassVar[type[FirstLine]]
    noun: ClassVar[str]
    suffix: ClassVar[str]
    written: ClassVar[tuple[str, ...]] = ()
    """The folders in it in which files are written over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words: Sequence[str] | None = None
        """The words for pytest, with the secrets that the log does not keep, if they are known."""
        self._lines: AppendedLines | None = None

    @classmethod
    def create(cls, reports: Path, begun: FirstLine) -> Self:
        """Makes a new one with the first line of its log, and holds it.

        Raises ConfigError if the folder for reports cannot be used, InfraError if the disk fails.
        """
        with making_folders(reports):
            folder = cls(reports.resolve() / (new_run_id() + cls.suffix))
            folder.path.mkdir()
            number_folder(folder.path, cls.noun)
            write_whole(folder.path / LOG, to_line(begun).encode())
        folder.words = begun.spec.pytest_arguments
        folder.hold()
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """One that exists. Raises ConfigError if that is none."""
        if not (path / LOG).is_file():
            raise ConfigError(f"is no {cls.noun}: there is no {LOG}", file=path)
        return cls(path.resolve())

    def discard(self) -> None:
        """Lets go of it and removes it with all its runs."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def hold(self) -> None:
        """Keeps other processes from going on with it; ends a torn last line by dropping it.

        Raises ConfigError if another process is at it, and where a link would be followed;
        InfraError if the disk fails.
        """
        try:
            refuse_links(self.path, below=False)
            for folder in (self.path / name for name in self.written):
                if folder.exists():
                    refuse_links(folder)
            self._lines = AppendedLines(self.path / LOG, alone=True)
        except NotInsideError as error:
            raise ConfigError(str(error.strerror), file=error.filename) from error
        except BlockingIOError as error:
            problem = f"this {self.noun} is still run by {locking_process(self.path / LOG)}"
            raise ConfigError(problem, file=self.path) from error
        except OSError as error:
            raise InfraError(f"cannot read {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Lets go of it; safe to call twice."""
        if self._lines is not None:
            self._lines.close()

    def append(self, entry: Entry) -> None:
        """Writes an entry to the log, which is held.

        When this returns, it survives the death of the computer. Raises InfraError.
        """
        assert self._lines is not None
        self._lines.append(to_line(entry).encode())

    def read(self) -> Log[AnySpec]:
        """The log as it stands, with `words`. Raises ConfigError for what is none."""
        path = self.path / LOG
        text = log_text(path)
        log = read_log(text, self.begins, file=str(path))
        if self.words is None:
            return log
        spec: Any = log.spec
        words = tuple(self.words)
        return replace(log, spec=spec.model_copy(update={"pytest_arguments": words}))

    def reports_of(self, log: Log[AnySpec]) -> Path:
        """Where the run of the log's last question has its reports: runs/003-2.49.40."""
        asked = log.asked()
        return self.path / RUNS / f"{len(asked):03}-{_UNSAFE.sub('-', '-'.join(asked[-1]))[:80]}"


class BisectFolder(SearchFolder[Task]):
    """The folder of a bisection, held by one process at a time while it is written to."""

    begins, noun, suffix = Begun, "bisection", "-bisect"

    @classmethod
    def newest(cls, reports: Path) -> Self:
        """The one that was begun last. Raises ConfigError if there is none."""
        found = _all(reports)
        if not found:
            raise ConfigError("holds no bisection", file=reports)
        return cls(found[-1].resolve())

    @classmethod
    def last_of(cls, reports: Path, case: str, since: str) -> Self | None:
        """The newest that bisects a case, begun since a night; None if that night is gone."""
        night = reports / since
        found = ordered([*_all(reports), night]) if night.is_dir() else []
        for path in reversed(found):
            if path == night:
                break
            with contextlib.suppress(ConfigError):
                if cls(path).read().spec.case == case:
                    return cls(path.resolve())
        return None

    @classmethod
    def to_go_on_with(cls, reports: Path) -> Self:
        """The newest that is not over; the newest of all if all are over.

        Logs that cannot be read are passed over while there are others. Raises ConfigError if
        there is none.
        """
        problem: ConfigError | None = None
        for path in reversed(_all(reports)):
            folder = cls(path.resolve())
            try:
                if not folder.read().is_over:
                    return folder
            except ConfigError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return cls.newest(reports)


def log_text(path: Path) -> str:
    """A log's text; bytes that are no UTF-8 become question marks.

    Raises ConfigError naming the file if it cannot be read, or is too long for a log.
    """
    try:
        return read_bounded(path, _MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        long = error.errno == errno.EFBIG
        problem = "is too long for a log" if long else f"cannot be read: {error.strerror}"
        raise ConfigError(problem, file=path) from error


def _all(reports: Path) -> list[Path]:
    return ordered(log.parent for log in reports.glob(f"*-bisect/{LOG}"))
