"""results.jsonl: the truth about a run, appended case by case, readable after any death."""

from __future__ import annotations

import contextlib
import gc
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Self, TypeAlias, overload

from pydantic import ValidationError

from harness.ground.errors import ConfigError, InternalError
from harness.ground.errors.outgoing_text import counted, without_secrets_in
from harness.ground.errors.schemas import OTHER_SCHEMA, other_schema
from harness.ground.files.bounded_json import JsonError, require_bounded
from harness.ground.files.lines import AppendedLines, lines_of
from harness.ground.files.names_inside import open_below
from harness.verdict.results.line import LINE, MAX_VALUES, line_of
from harness.verdict.results.record import (
    SCHEMA,
    CaseRecord,
    DeviceEvent,
    FinalAttempts,
    final_attempts,
)

MAX_LINE_BYTES: Final = 8 << 20
_HELD_BYTES: Final = 48 << 20
"""Records that take more memory than this together are read anew at each iteration."""
_MOST_TOLD: Final = 100
_MOST_PROBLEMS: Final = 100
_PROBLEM_CHARS: Final = 300
_SYNC_EVERY_S = 0.5


class Journal:
    """An append-only results.jsonl, for one process or several at once (`AppendedLines`).

    The death of the machine loses at most half a second of results, and syncing costs at most two
    calls a second.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """Open it. Raise BlockingIOError if another process has it `alone`."""
        self.path = path
        self._lines = AppendedLines(path, alone=alone, sync_every_s=_SYNC_EVERY_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, record: CaseRecord | DeviceEvent | Mapping[str, object]) -> None:
        """Writes one record; when this returns, it survives the death of this process.

        Raises InternalError for what is no record or too large, InfraError if it cannot be
        written (the next record then begins a new line).
        """
        try:
            valid = LINE.validate_python(record)
        except ValidationError as error:
            raise InternalError(f"a record does not fit its model: {error}") from error
        if b":/" in (line := valid.model_dump_json().encode()):
            valid = LINE.validate_python(without_secrets_in(valid.model_dump(mode="json")))
            line = valid.model_dump_json().encode()
        line += b"\n"
        try:
            _require_small(line)
        except JsonError as error:
            about = valid.case if isinstance(valid, CaseRecord) else valid.device
            raise InternalError(f"the record of {about} {error}") from error
        self._lines.append(line)

    def close(self) -> None:
        """Syncs and closes; safe to call twice."""
        self._lines.close()


@dataclass(frozen=True, slots=True)
class Damage:
    """A line (1-based) that is no record, and why."""

    line: int
    problem: str

    @property
    def is_foreign(self) -> bool:
        return self.problem.startswith(OTHER_SCHEMA)


LineContent: TypeAlias = CaseRecord | DeviceEvent | Damage
"""What a line of a journal is."""


class LeftOut:
    """The lines of a journal that are no records: how many, and of the first ones why."""

    def __init__(self, damage: Iterable[Damage] = ()) -> None:
        self.count = 0
        self.foreign: Damage | None = None
        """The first one that is of another schema."""
        self._first: list[Damage] = []
        for one in damage:
            self.add(one)

    def add(self, damage: Damage) -> None:
        """One more."""
        self.count += 1
        if self.foreign is None and damage.is_foreign:
            self.foreign = damage
        if len(self._first) < _MOST_TOLD:
            self._first.append(damage)

    @property
    def first(self) -> tuple[Damage, ...]:
        return tuple(self._first)

    def told(self, journal: Path, most: int = 5) -> Iterator[str]:
        """What to say of them, a line for each of the first ones and one for the others."""
        for one in self._first[:most]:
            yield f"{journal}:{one.line}: left out, not a record: {one.problem}"
        if self.count > most:
            yield f"{journal}: {counted(self.count - most, 'more line')} left out: not a record"


@dataclass(frozen=True)
class Contents:
    """What a journal holds: the cases' records in order, the lines that are none, and the rest.

    `damage` has the first hundred of `damaged` lines.
    """

    records: Sequence[CaseRecord]
    damage: tuple[Damage, ...]
    events: tuple[DeviceEvent, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut, compare=False)

    @cached_property
    def cases(self) -> Sequence[CaseRecord]:
        if isinstance(self.records, JournalRecords):
            return self.records.final()
        return final_attempts(self.records)


class JournalRecords(Sequence[CaseRecord]):
    """Records of a large journal, by where they begin in it; each iteration reads them anew."""

    def __init__(self, path: Path, places: Sequence[int]) -> None:
        self._path, self._places = path, places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[CaseRecord]:
        return self._read(self._places)

    @overload
    def __getitem__(self, index: int) -> CaseRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CaseRecord]: ...
    def __getitem__(self, index: int | slice) -> CaseRecord | Sequence[CaseRecord]:
        if isinstance(index, slice):
            return [*self._read(self._places[index])]
        return next(self._read([self._places[index]]))

    def picked(self, indices: Iterable[int]) -> JournalRecords:
        """Those of these indices."""
        return JournalRecords(self._path, array("Q", map(self._places.__getitem__, indices)))

    def final(self) -> JournalRecords:
        """The last attempt at each case."""
        last: dict[str, tuple[int, int]] = {}
        for place, record in zip(self._places, self, strict=True):
            if record.attempt >= last.get(record.case, (0, 0))[0]:
                last[record.case] = record.attempt, place
        return _FinalRecords(self._path, array("Q", (place for _, place in last.values())))

    def _read(self, places: Iterable[int]) -> Iterator[CaseRecord]:
        try:
            with open_below(self._path.parent, self._path.name) as stream:
                for place in places:
                    stream.seek(place)
                    record = line_of(stream.readline(MAX_LINE_BYTES + 1))
                    if not isinstance(record, CaseRecord):
                        raise ConfigError("was changed while it was read", file=self._path)
                    yield record
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=self._path) from error
        except ValueError as error:
            raise ConfigError("was changed while it was read", file=self._path) from error


class _FinalRecords(JournalRecords, FinalAttempts):
    """The last attempts in a large journal."""


def picked(records: Sequence[CaseRecord], indices: Iterable[int]) -> Sequence[CaseRecord]:
    """Some of the records; those of a large journal stay there."""
    if isinstance(records, JournalRecords):
        return records.picked(indices)
    return [records[index] for index in indices]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles: among many records, which make none, it takes as long
    as reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def lines_in(path: Path) -> Iterator[tuple[int, LineContent]]:
    """The number of each line of a results.jsonl, from 1, and what it is, one at a time.

    Raises ConfigError as `read_journal`.
    """
    return ((number, content) for number, _, _, content in _numbered(path))


def _numbered(path: Path) -> Iterator[tuple[int, int, bytes, LineContent]]:
    """The number of each line, where it begins, its text, and what it is.

    All that reads journals reads them here, so that all agree on what is a record. Lines that are
    no records of this schema (cut off, damaged, too long) are `Damage`; empty ones are nothing.
    Raises ConfigError if the file cannot be read, or is wholly of another schema.
    """
    held, foreign = False, list[Damage]()
    for number, (place, line) in enumerate(_journal_lines(path), start=1):
        parsed = _parse(line)
        if parsed is None:
            continue
        if isinstance(parsed, str):
            damage = Damage(number, parsed)
            if not held and not foreign and damage.is_foreign:
                foreign = [damage]
            yield number, place, line, damage
        else:
            held = True
            yield number, place, line, parsed
    if foreign and not held:
        raise ConfigError(foreign[0].problem, file=path, line=foreign[0].line)


def cases_in(path: Path, left_out: LeftOut) -> Iterator[tuple[int, CaseRecord]]:
    """The records of cases among them; what is left out is noted. Raises ConfigError."""
    for number, content in lines_in(path):
        if isinstance(content, CaseRecord):
            yield number, content
        elif isinstance(content, Damage):
            left_out.add(content)


@uncollected()
def read_journal(path: Path) -> Contents:
    """Reads a results.jsonl, also one whose writer died in the middle of a line.

    Where its records would take much memory, they are read anew at each iteration. Lines that are
    no records are reported and left out. Raises ConfigError if it cannot be read, or is wholly of
    another schema.
    """
    records: list[CaseRecord] = []
    places = array("Q")
    left_out = LeftOut()
    events: list[DeviceEvent] = []
    room = _HELD_BYTES
    for _, place, line, content in _numbered(path):
        if isinstance(content, CaseRecord):
            places.append(place)
            room -= _memory_of(line)
            if room >= 0:
                records.append(content)
            else:
                records.clear()
        elif isinstance(content, DeviceEvent):
            events.append(content)
        else:
            left_out.add(content)
    held = tuple(records) if room >= 0 else JournalRecords(path, places)
    return Contents(held, left_out.first, tuple(events), left_out)


def _memory_of(line: bytes) -> int:
    values = sum(line.count(mark) for mark in (b",", b"[", b"{"))
    return 2 * len(line) + 64 * values


def _require_small(line: bytes) -> None:
    """Raises JsonError for a line that is more than is read at once."""
    if len(line) > MAX_LINE_BYTES:
        raise JsonError(f"has more than {MAX_LINE_BYTES >> 20} MiB")
    require_bounded(line, MAX_VALUES)


def _parse(line: bytes) -> CaseRecord | DeviceEvent | str | None:
    if not line.strip():
        return None
    try:
        _require_small(line)
        return line_of(line)
    except JsonError as error:
        return str(error)
    except ValidationError as error:
        return _problem(error, line)


def _problem(error: ValidationError, line: bytes) -> str:
    if not line.endswith(b"\n"):
        return "is cut off: its writer died while writing it"
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count()} of its fields do not fit"
    found = error.errors(include_url=False)
    # the first part tells which kind of line it was taken for
    problems = {".".join(str(part) for part in one["loc"][1:]): one for one in found}
    if "schema" in problems:
        return other_schema(problems["schema"]["input"], SCHEMA)
    where, first = next(iter(problems.items()))
    return (f"{where}: {first['msg']}" if where else first["msg"])[:_PROBLEM_CHARS]


def _journal_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        # the folder may be somebody else's
        with open_below(path.parent, path.name) as stream:
            yield from lines_of(stream, MAX_LINE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
