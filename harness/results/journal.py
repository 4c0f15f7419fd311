"""results.jsonl: the record of a run, appended case by case, readable after any crash."""

from __future__ import annotations

import contextlib
import gc
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from queue import Queue
from typing import Any, Final, Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from harness.core.bounded_json import (
    OTHER_SCHEMA,
    JsonError,
    other_schema,
    parse_model,
    require_bounded,
)
from harness.core.errors import ConfigError, InternalError
from harness.core.files import AppendedLines, lines_of
from harness.core.outgoing_text import counted, without_secrets_in
from harness.core.paths_inside import open_below
from harness.lab.health import DeviceEvent
from harness.results.coverage import Tally
from harness.results.record import SCHEMA, CaseRecord, JournalLine

LINE: Final[TypeAdapter[CaseRecord | DeviceEvent]] = TypeAdapter(JournalLine)
_CASE: Final[TypeAdapter[CaseRecord]] = TypeAdapter(CaseRecord)
MAX_VALUES: Final = 300_000
"""The most commas and brackets of a line, outside of texts."""
_OF_EVENTS: Final = b'"kind":"device"'


def line_of(line: bytes) -> CaseRecord | DeviceEvent:
    """Return the record of a line. Raises JsonError or ValidationError if it is none."""
    # nearly all are cases: finding the kind of each takes a quarter of the time to read it
    adapter: TypeAdapter[Any] = LINE if _OF_EVENTS in line else _CASE
    try:
        record: CaseRecord | DeviceEvent = parse_model(adapter, line, MAX_VALUES)
        return record
    except ValidationError:
        pass  # the error may be large: free it before the next one is made
    return parse_model(LINE, line, MAX_VALUES)


Reader = Callable[[Iterable[CaseRecord]], Any]
"""A function that makes something of records, in one loop over them."""


class BatchedRecords(Iterable[CaseRecord]):
    """Records that do not fit in memory: each batch is valid until the next one is requested."""

    @abstractmethod
    def batches(self) -> Iterator[list[CaseRecord]]:
        """Return the records in batches."""

    def __iter__(self) -> Iterator[CaseRecord]:
        return chain.from_iterable(self.batches())


class _CutShortError(BaseException):
    """Raised in a reader, which must not handle it, if the records end early."""


class _ReaderQueue(BatchedRecords):
    """The batches for one reader; the next one comes when the reader has finished the last."""

    def __init__(self) -> None:
        self.queue = Queue[list[CaseRecord] | _CutShortError | None]()
        # a single iterator: advancing it marks the batch before as done
        self._remaining = self._from_queue()

    def batches(self) -> Iterator[list[CaseRecord]]:
        return self._remaining

    def _from_queue(self) -> Iterator[list[CaseRecord]]:
        while (batch := self.queue.get()) is not None:
            if isinstance(batch, _CutShortError):
                raise batch
            yield batch
            del batch
            self.queue.task_done()

    def read(self, reader: Reader) -> Any:
        """Run a reader, and discard the batches that it does not read."""
        try:
            return reader(self)
        finally:
            for _ in self._remaining:
                pass


def read_once(records: Iterable[CaseRecord], *readers: Reader) -> list[Any]:
    """Run readers over the same records, and return their results.

    A large journal is read once, one batch at a time: each reader has its own thread, and gets the
    next batch when all have finished the one before. A reader may call `read_once` itself.
    """
    if not isinstance(records, BatchedRecords):
        listed = [*records]
        return [reader(listed) for reader in readers]
    handed = [_ReaderQueue() for _ in readers]
    with ThreadPoolExecutor(len(readers)) as threads:
        futures = [
            threads.submit(each.read, reader) for each, reader in zip(handed, readers, strict=True)
        ]
        end: _CutShortError | None = _CutShortError()  # no reader may conclude from a part
        try:
            for batch in records.batches():
                for each in handed:
                    each.queue.put(batch)
                del batch
                for each in handed:
                    each.queue.join()
            end = None
        finally:
            for each in handed:
                each.queue.put(end)
    return [future.result() for future in futures]


MAX_LINE_BYTES: Final = 8 << 20
_BATCH_BYTES: Final = 128 << 10
"""The size of a batch of records, by the bytes of their lines."""
_HELD_BYTES: Final = 48 << 20
"""If the records take more memory than this, they are read again at each iteration."""
_MOST_LINES: Final = 100
_MOST_PROBLEMS: Final = 100
_PROBLEM_CHARS: Final = 300
_SYNC_EVERY_S = 0.5


class Journal:
    """An append-only results.jsonl, for one process or several at once (`AppendedLines`).

    A power cut loses at most half a second of results, and syncing costs at most two calls a
    second.
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
        """Write one record, which then survives a crash of this process.

        Raises InternalError if it is no record or too large, InfraError if it cannot be written
        (the next record then starts a new line).
        """
        try:
            valid = LINE.validate_python(record)
        except ValidationError as error:
            raise InternalError(f"a record does not match its model: {error}") from error
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
        """Sync and close; safe to call twice."""
        self._lines.close()


@dataclass(frozen=True, slots=True)
class Damage:
    """A line (1-based) that is no record, and the reason."""

    line: int
    problem: str

    @property
    def is_foreign(self) -> bool:
        return self.problem.startswith(OTHER_SCHEMA)


LineContent: TypeAlias = CaseRecord | DeviceEvent | Damage
"""The content of a line of a journal."""


@dataclass
class SkippedLines:
    """The lines of a journal that are no records: their number, and the first ones with reasons.

    `foreign` is the first line of another schema.
    """

    count: int = 0
    foreign: Damage | None = None
    first: list[Damage] = field(default_factory=list)

    def add(self, damage: Damage) -> None:
        """Add a line."""
        self.count += 1
        if self.foreign is None and damage.is_foreign:
            self.foreign = damage
        if len(self.first) < _MOST_LINES:
            self.first.append(damage)

    def messages(self, journal: Path, most: int = 5) -> Iterator[str]:
        """Yield a message for each of the first lines, and one for all the others."""
        for damage in self.first[:most]:
            yield f"{journal}:{damage.line}: left out, not a record: {damage.problem}"
        if self.count > most:
            yield f"{journal}: {counted(self.count - most, 'more line')} left out: not a record"


class JournalRecords(BatchedRecords):
    """Records of a large journal, by their offsets; each iteration reads them again."""

    def __init__(self, path: Path, places: Sequence[int]) -> None:
        self._path, self._places = path, places

    def __len__(self) -> int:
        return len(self._places)

    def picked(self, indices: Iterable[int]) -> JournalRecords:
        """Return the records with these indexes."""
        return JournalRecords(self._path, array("Q", map(self._places.__getitem__, indices)))

    def batches(self) -> Iterator[list[CaseRecord]]:
        batch, size = list[CaseRecord](), 0
        try:
            with open_below(self._path.parent, self._path.name) as stream:
                for place in self._places:
                    stream.seek(place)
                    line = stream.readline(MAX_LINE_BYTES + 1)
                    if not isinstance(record := line_of(line), CaseRecord):
                        raise ConfigError("was changed while it was read", file=self._path)
                    batch.append(record)
                    size += len(line)
                    del record
                    if size >= _BATCH_BYTES:
                        yield batch
                        batch, size = [], 0
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=self._path) from error
        except ValueError as error:
            raise ConfigError("was changed while it was read", file=self._path) from error
        if batch:
            yield batch


Records: TypeAlias = Sequence[CaseRecord] | JournalRecords
"""Records in memory, or records that are read again at each iteration."""


@dataclass(frozen=True)
class Contents:
    """The contents of a journal: records of cases in order, device events, damaged lines.

    `damage` has the first hundred damaged lines, `left_out` counts all.
    """

    records: Records
    damage: tuple[Damage, ...]
    events: tuple[DeviceEvent, ...] = ()
    left_out: SkippedLines = field(default_factory=SkippedLines, compare=False)
    counted: Tally | None = field(default=None, compare=False)

    @cached_property
    def tally(self) -> Tally:
        return self.counted or Tally(self.records)

    @cached_property
    def cases(self) -> Records:
        """The last attempt at each case, in the order in which the cases first appeared."""
        return self._picked(self.tally.last)

    @property
    def earlier(self) -> Records:
        """The attempts that were not the last ones."""
        last = set(self.tally.last)
        return self._picked(i for i in range(len(self.records)) if i not in last)

    def _picked(self, indices: Iterable[int]) -> Records:
        if isinstance(self.records, JournalRecords):
            return self.records.picked(indices)
        return [self.records[index] for index in indices]


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Disable Python's garbage collector: records make no cycles, and searching many of them for
    cycles takes as long as reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def lines_in(path: Path) -> Iterator[tuple[int, LineContent]]:
    """Yield the number of each line of a results.jsonl, from 1, and its content.

    Raises ConfigError as `read_journal` does.
    """
    return ((number, content) for number, _, _, content in _numbered(path))


def _numbered(path: Path) -> Iterator[tuple[int, int, bytes, LineContent]]:
    """Yield the number of each line, its offset, its text and its content.

    All readers of journals use this, so that they agree on what is a record. Lines that are no
    records of this schema (cut off, damaged, too long) are `Damage`; empty ones are skipped.
    Raises ConfigError if the file cannot be read, or all of it has another schema.
    """
    has_records, foreign = False, list[Damage]()
    for number, (place, line) in enumerate(_journal_lines(path), start=1):
        parsed = _parse(line)
        if parsed is None:
            continue
        if isinstance(parsed, str):
            damage = Damage(number, parsed)
            if not has_records and not foreign and damage.is_foreign:
                foreign = [damage]
            yield number, place, line, damage
        else:
            has_records = True
            yield number, place, line, parsed
    if foreign and not has_records:
        raise ConfigError(foreign[0].problem, file=path, line=foreign[0].line)


def cases_in(path: Path) -> Iterator[tuple[int, CaseRecord]]:
    """Yield the line numbers and records of cases. Raises ConfigError as `read_journal` does."""
    for number, content in lines_in(path):
        if isinstance(content, CaseRecord):
            yield number, content


@without_gc()
def read_journal(path: Path) -> Contents:
    """Read a results.jsonl, also one whose writer died in the middle of a line.

    If its records would take much memory, they are read again at each iteration. Lines that are no
    records are reported and left out. Raises ConfigError if it cannot be read, or all of it has
    another schema.
    """
    records: list[CaseRecord] = []
    places = array("Q")
    left_out, tally = SkippedLines(), Tally()
    events: list[DeviceEvent] = []
    room = _HELD_BYTES
    for _, place, line, content in _numbered(path):
        if isinstance(content, CaseRecord):
            places.append(place)
            tally.add(content)
            room -= 2 * len(line) + 64 * sum(line.count(mark) for mark in (b",", b"[", b"{"))
            if room >= 0:
                records.append(content)
            else:
                records.clear()
        elif isinstance(content, DeviceEvent):
            events.append(content)
        else:
            left_out.add(content)
    kept_records = tuple(records) if room >= 0 else JournalRecords(path, places)
    return Contents(kept_records, tuple(left_out.first), tuple(events), left_out, tally)


def _require_small(line: bytes) -> None:
    """Raise JsonError for a line that is too large."""
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
        return "is truncated: its writer died while writing it"
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count()} of its fields are not valid"
    errors = error.errors(include_url=False)
    # the first part is the kind of line it was taken for
    problems = {".".join(str(part) for part in entry["loc"][1:]): entry for entry in errors}
    if "schema" in problems:
        return other_schema(problems["schema"]["input"], SCHEMA)
    field_path, first = next(iter(problems.items()))
    return (f"{field_path}: {first['msg']}" if field_path else first["msg"])[:_PROBLEM_CHARS]


def _journal_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        # the folder may be somebody else's
        with open_below(path.parent, path.name) as stream:
            yield from lines_of(stream, MAX_LINE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
