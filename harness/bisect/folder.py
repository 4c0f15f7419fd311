"""A search on disk, reports/<id>-bisect/: its log, which is all of its state, and its runs.

The first line is the spec. A run is `asked` before it begins and `answered` when it ended. So a log
whose writer died shows what was under way; what was not answered is asked again. `resumed` says
that somebody saw to the lab. People may edit it: correct an answer, take lines out. A place that
was asked stays known, even if it would not be asked again.
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

from pydantic import Field, JsonValue, TypeAdapter

from harness.bisect.match import Evidence, Point, Question, RunAnswer
from harness.bisect.search import Task
from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.local_file import AppendedLines
from harness.core.names_inside import NotInsideError, refuse_links
from harness.core.outgoing_text import without_secrets_in
from harness.core.platform import locking_process
from harness.core.schema_field import Schema1
from harness.core.whole_file import read_bounded, write_whole
from harness.diagnosis.error import Part
from harness.results.run_folder import making_folders, new_run_id, number_folder, ordered

_MAX_LINE_CHARS: Final = 64 << 20
"""The first line of a minimization has the paths of all contexts."""
_At = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]


class FirstLine(Part):
    """The first line of any log: what is searched, and what a run is made of."""

    schema_number: Schema1 = 1
    kind: Literal["begun"] = "begun"
    spec: Any

    def points(self) -> Container[Point] | None:
        """Where the search can ask for runs; None where it is not known beforehand."""
        return None


class Begun(FirstLine):
    """The first line of a bisection's log."""

    spec: Task

    def points(self) -> Container[Point]:
        """The candidates, or pairs of them."""
        return frozenset(self.spec.search.points())


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
    """Somebody saw to the lab, or began again after the writer died."""

    kind: Literal["resumed"] = "resumed"


class Concluded(Part):
    """What was found; a note only, which a replay finds again by itself."""

    kind: Literal["concluded"] = "concluded"
    text: str
    detail: dict[str, JsonValue] = Field(default={})


Entry = FirstLine | Question | Answered | Resumed | Concluded
AnySpec = TypeVar("AnySpec")
_Line = Question | Answered | Resumed | Concluded


@dataclass(frozen=True)
class Log(Generic[AnySpec]):
    """The log of any search, as it was read."""

    spec: AnySpec
    entries: tuple[_Line, ...]

    @property
    def is_over(self) -> bool:
        return bool(self.entries) and isinstance(self.entries[-1], Concluded)

    def evidence(self) -> Evidence:
        """Everything that was answered."""
        evidence = Evidence()
        for entry in self.entries:
            if isinstance(entry, Answered):
                evidence = evidence.plus(entry.at, entry.answer)
            elif isinstance(entry, Resumed):
                evidence = evidence.resumed()
        return evidence

    def answers(self) -> list[Answered]:
        """What runs told so far, even if only that the lab failed."""
        return [entry for entry in self.entries if isinstance(entry, Answered)]

    def asked(self) -> list[Point]:
        """What was asked, also what was never answered because its run died."""
        return [entry.at for entry in self.entries if isinstance(entry, Question)]

    def under_way(self) -> Question | None:
        """What was asked last and not answered."""
        last: Question | None = None
        for entry in self.entries:
            if isinstance(entry, Question):
                last = entry
            elif isinstance(entry, Answered):
                last = None
        return last


BisectLog = Log[Task]


def to_line(entry: Entry) -> str:
    """An entry as a line with its end, without secrets."""
    safe = without_secrets_in(entry.model_dump(mode="json"))
    return json.dumps(safe, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_log(
    text: str,
    begins: type[FirstLine] = Begun,
    *,
    file: str | None = None,
) -> Log[Any]:
    """Reads a log. `begins` is the kind of its first line, by default that of a bisection.

    A last line without its end is what a writer left that died: it is left out. Raises ConfigError
    that names the line for what is no entry or no point of the spec.
    """
    read = _reader(begins)
    begun: FirstLine | None = None
    points: Container[Point] | None = None
    entries: list[_Line] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_CHARS:
            raise ConfigError("is too long", file=file, line=number)
        try:
            entry = parse_model(read, line)
        except ValueError as error:
            raise ConfigError(problem_in(error), file=file, line=number) from error
        if begun is None:
            if not isinstance(entry, begins):
                break
            begun, points = entry, entry.points()
            continue
        if isinstance(entry, FirstLine):
            raise ConfigError("a second search begins here", file=file, line=number)
        if isinstance(entry, Question | Answered) and points is not None and entry.at not in points:
            shown = " with ".join(entry.at)[:200]
            raise ConfigError(f"{shown!r} is not a candidate", file=file, line=number, field="at")
        entries.append(entry)
    if begun is None:
        raise ConfigError("does not begin with the spec of a search", file=file, line=1)
    return Log(begun.spec, tuple(entries))


@lru_cache
def _reader(begins: type[FirstLine]) -> TypeAdapter[FirstLine | _Line]:
    line: Any = Annotated[begins | _Line, Field(discriminator="kind")]
    return TypeAdapter(line)


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
