"""A search on disk, reports/<id>-bisect/: its log, which is its whole state, and its runs.

The first line is the spec. A run is logged as `asked` before it begins and as `answered` when it
ended. So the log of a writer that died shows the pending run, which is run again. `resumed` means
that the lab was repaired. Users may edit the log: correct an answer, remove lines. An answer stays
valid even if the search would no longer ask for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from harness.bisect.bad_condition import Evidence, Point, Question, RunAnswer
from harness.bisect.search import Task
from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.files import AppendedLines, read_bounded, write_whole
from harness.core.json_record import Part, Schema1
from harness.core.linux_processes import locking_process
from harness.core.outgoing_text import without_secrets_in
from harness.core.paths_inside import NotInsideError, refuse_links
from harness.results.run_folder import making_folders, new_run_id, number_folder, ordered

_MAX_LINE_CHARS: Final = 64 << 20
"""The first line of a reduction lists the paths of all contexts."""
_At = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]


AnySpec = TypeVar("AnySpec")


class Begun(Part, Generic[AnySpec]):
    """The first line of a log: the spec of the search."""

    schema_number: Schema1 = 1
    kind: Literal["begun"] = "begun"
    spec: AnySpec


class Answered(Part):
    """A run ended on a `device`. `run` and `case` say where its record is, `detail` is free."""

    kind: Literal["answered"] = "answered"
    at: _At
    answer: RunAnswer
    why: str = ""
    seconds: float | None = None
    device: str | None = None
    run: str | None = None
    case: str | None = None
    detail: dict[str, JsonValue] = Field(default={})


class Resumed(Part):
    """The search was resumed after a failure of the lab or the death of the writer."""

    kind: Literal["resumed"] = "resumed"


class Concluded(Part):
    """The finding; only a note, since a replay derives it again."""

    kind: Literal["concluded"] = "concluded"
    text: str


_Line = Question | Answered | Resumed | Concluded
Entry = Begun[Any] | _Line


@dataclass(frozen=True)
class Log(Generic[AnySpec]):
    """The log of a search."""

    spec: AnySpec
    entries: tuple[_Line, ...]

    @property
    def is_over(self) -> bool:
        return bool(self.entries) and isinstance(self.entries[-1], Concluded)

    def evidence(self) -> Evidence:
        evidence = Evidence()
        for entry in self.entries:
            if isinstance(entry, Answered):
                evidence = evidence.plus(entry.at, entry.answer)
            elif isinstance(entry, Resumed):
                evidence = evidence.resumed()
        return evidence

    def answers(self) -> list[Answered]:
        """Return the answers so far, with those that only say that the lab failed."""
        return [entry for entry in self.entries if isinstance(entry, Answered)]

    def pending(self) -> Question | None:
        last: Question | None = None
        for entry in self.entries:
            if isinstance(entry, Question):
                last = entry
            elif isinstance(entry, Answered):
                last = None
        return last


BisectLog = Log[Task]


def to_line(entry: Entry) -> str:
    """Return an entry as a line with a newline, without secrets."""
    safe = without_secrets_in(entry.model_dump(mode="json"))
    return json.dumps(safe, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_log(text: str, spec: type[BaseModel] = Task, *, file: str | None = None) -> Log[Any]:
    """Read a log; `spec` is the model of its search, by default a bisection.

    A last line without a newline comes from a writer that died, and is dropped. Raises ConfigError
    naming the line for an invalid entry or a point that is not in the spec.
    """
    adapter = _reader(spec)
    first: Begun[Any] | None = None
    points: Container[Point] | None = None
    entries: list[_Line] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_CHARS:
            raise ConfigError("is too long", file=file, line=number)
        try:
            entry = parse_model(adapter, line)
        except ValueError as error:
            raise ConfigError(problem_in(error), file=file, line=number) from error
        if first is None:
            if not isinstance(entry, Begun):
                break
            first = entry
            points = entry.spec.points() if isinstance(entry.spec, Task) else None
            continue
        if isinstance(entry, Begun):
            raise ConfigError("a second search begins here", file=file, line=number)
        if isinstance(entry, Question | Answered) and points is not None and entry.at not in points:
            shown = " with ".join(entry.at)[:200]
            raise ConfigError(f"{shown!r} is not a candidate", file=file, line=number, field="at")
        entries.append(entry)
    if first is None:
        raise ConfigError("does not begin with the spec of a search", file=file, line=1)
    return Log(first.spec, tuple(entries))


@lru_cache
def _reader(spec: type[BaseModel]) -> TypeAdapter[Begun[Any] | _Line]:
    line: Any = Annotated[Begun[spec] | _Line, Field(discriminator="kind")]  # type: ignore[valid-type]
    return TypeAdapter(line)


LOG: Final = "log.jsonl"
RUNS: Final = "runs"
_MAX_BYTES = 256 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


class SearchFolder(Generic[AnySpec]):
    """The folder of a search; a process locks it to write to it."""

    spec: ClassVar[type[BaseModel]]
    noun: ClassVar[str]
    suffix: ClassVar[str]
    written: ClassVar[tuple[str, ...]] = ()
    """Its subfolders in which files are overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pytest_arguments: Sequence[str] | None = None
        """The arguments for pytest with their secrets, which the log lacks, if they are known."""
        self._lines: AppendedLines | None = None

    @classmethod
    def create(cls, reports: Path, spec: Any) -> Self:
        """Create and lock a new folder for a search.

        Raises ConfigError if the folder for reports cannot be used, InfraError if the disk fails.
        """
        with making_folders(reports):
            folder = cls(reports.resolve() / (new_run_id() + cls.suffix))
            folder.path.mkdir()
            number_folder(folder.path, cls.noun)
            write_whole(folder.path / LOG, to_line(Begun(spec=spec)).encode())
        folder.pytest_arguments = spec.pytest_arguments
        folder.lock()
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing folder. Raises ConfigError if it is not one of a search."""
        if not (path / LOG).is_file():
            raise ConfigError(f"is not a {cls.noun}: it has no {LOG}", file=path)
        return cls(path.resolve())

    def discard(self) -> None:
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def lock(self) -> None:
        """Lock the log against other processes, and drop an incomplete last line.

        Raises ConfigError if another process holds the lock or a path is a symbolic link,
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
            problem = f"{locking_process(self.path / LOG)} is still running this {self.noun}"
            raise ConfigError(problem, file=self.path) from error
        except OSError as error:
            raise InfraError(f"cannot read {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Release the lock; may be called twice."""
        if self._lines is not None:
            self._lines.close()

    def append(self, entry: Entry) -> None:
        """Append an entry to the locked log, and sync it to disk. Raises InfraError."""
        assert self._lines is not None
        self._lines.append(to_line(entry).encode())

    def read(self) -> Log[AnySpec]:
        """Read the log, with `pytest_arguments`. Raises ConfigError for an invalid one."""
        path = self.path / LOG
        log = read_log(log_text(path), self.spec, file=str(path))
        if self.pytest_arguments is None:
            return log
        spec: Any = log.spec
        update = {"pytest_arguments": tuple(self.pytest_arguments)}
        return replace(log, spec=spec.model_copy(update=update))

    def reports_of(self, log: Log[AnySpec]) -> Path:
        """Return the reports folder of the last question's run: runs/003-2.49.40."""
        points = [entry.at for entry in log.entries if isinstance(entry, Question)]
        return self.path / RUNS / f"{len(points):03}-{_UNSAFE.sub('-', '-'.join(points[-1]))[:80]}"


class BisectFolder(SearchFolder[Task]):
    """The folder of a bisection; a process locks it to write to it."""

    spec, noun, suffix = Task, "bisection", "-bisect"

    @classmethod
    def newest(cls, reports: Path) -> Self:
        """Return the newest. Raises ConfigError if there is none."""
        folders = _all(reports)
        if not folders:
            raise ConfigError("has no bisection", file=reports)
        return cls(folders[-1].resolve())

    @classmethod
    def last_of(cls, reports: Path, case: str, since: str) -> Self | None:
        """Return the newest of a case that is newer than a night; None if that night is gone."""
        night = reports / since
        folders = ordered([*_all(reports), night]) if night.is_dir() else []
        for path in reversed(folders):
            if path == night:
                break
            with contextlib.suppress(ConfigError):
                if cls(path).read().spec.case == case:
                    return cls(path.resolve())
        return None

    @classmethod
    def newest_open(cls, reports: Path) -> Self:
        """Return the newest that is not over; the newest of all if all are over.

        Unreadable logs are skipped. Raises ConfigError if there is none.
        """
        for path in reversed(_all(reports)):
            with contextlib.suppress(ConfigError):
                if not (folder := cls(path.resolve())).read().is_over:
                    return folder
        return cls.newest(reports)


def log_text(path: Path) -> str:
    """Return the text of a log, with invalid UTF-8 replaced.

    Raises ConfigError naming the file if it cannot be read, or is too long for a log.
    """
    try:
        return read_bounded(path, _MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        long = error.errno == errno.EFBIG
        problem = "is too large for a log" if long else f"cannot be read: {error.strerror}"
        raise ConfigError(problem, file=path) from error


def _all(reports: Path) -> list[Path]:
    return ordered(log.parent for log in reports.glob(f"*-bisect/{LOG}"))
