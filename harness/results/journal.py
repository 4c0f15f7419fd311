"""results.jsonl: the truth about a run, appended case by case, readable after any death."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic import TypeAdapter, ValidationError

from harness.errors import ConfigError, InfraError, InternalError
from harness.errors.outgoing_text import without_secrets_in
from harness.files.whole_file import disk_errors
from harness.results.record import CaseRecord, DeviceEvent, DeviceRecord, Line, final_attempts

MAX_LINE_BYTES: Final = 16 << 20
_SYNC_EVERY_S = 0.5
_ANY_FIELDS: Final = set(CaseRecord.model_fields)
_LINE: Final[TypeAdapter[CaseRecord | DeviceEvent]] = TypeAdapter(Line)
_CASE: Final[TypeAdapter[Any]] = TypeAdapter(CaseRecord)
_KIND_OF_EVENTS: Final = b'"kind":"device"'


class Journal:
    """An append-only results.jsonl, for one process or several at once.

    A line is one `write` on a descriptor opened for appending, so that lines of several processes
    do not mix and whatever was appended survives the death of this process, however it dies.
    Against the death of the machine it is synced to disk when half a second has passed since the
    last time, and on `close`: at most half a second of results can be lost so, and syncing costs
    at most two calls a second.

    If an earlier writer died within a line, that line is ended first, so that it spoils no other.
    """

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises InfraError if that is impossible."""
        self.path = path
        with disk_errors(f"cannot write {path}"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._synced_at = time.monotonic()
        size = os.fstat(self._file).st_size
        self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"

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
            valid = _LINE.validate_python(record)
        except ValidationError as error:
            raise InternalError(f"a record does not fit its model: {error}") from error
        if b":/" in (line := valid.model_dump_json().encode()):
            valid = _LINE.validate_python(without_secrets_in(valid.model_dump(mode="json")))
            line = valid.model_dump_json().encode()
        line += b"\n"
        if len(line) > MAX_LINE_BYTES:
            about = valid.case if isinstance(valid, CaseRecord) else valid.device
            raise InternalError(f"the record of {about} has {len(line)} bytes")
        self._write(b"\n" + line if self._torn else line)
        if time.monotonic() - self._synced_at >= _SYNC_EVERY_S:
            self._sync()

    def close(self) -> None:
        """Syncs and closes; safe to call twice."""
        if self._file >= 0:
            self._sync()
            os.close(self._file)
            self._file = -1

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            raise InternalError(f"{self.path} is closed already")
        with disk_errors(f"cannot write {self.path}"):
            written = os.write(self._file, line)
        self._torn = written < len(line)
        if self._torn:
            # Only a full disk writes less than it was asked to.
            raise InfraError(f"cannot write {self.path}: no space left on the disk")

    def _sync(self) -> None:
        with disk_errors(f"cannot sync {self.path}"):
            os.fsync(self._file)
        self._synced_at = time.monotonic()


@dataclass(frozen=True)
class Damage:
    """A line (1-based) that is no record, and why."""

    line: int
    problem: str


@dataclass(frozen=True)
class Contents:
    """What a journal holds: the cases' records in order, the lines that are none, and the rest."""

    records: tuple[CaseRecord, ...]
    damage: tuple[Damage, ...]
    events: tuple[DeviceEvent, ...] = ()

    @cached_property
    def cases(self) -> list[CaseRecord]:
        """The last attempt at each case."""
        return final_attempts(self.records)


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


@uncollected()
def read_journal(path: Path) -> Contents:
    """Reads a results.jsonl, also one whose writer died in the middle of a line.

    Lines that are no records of this schema (cut off, damaged, longer than 16 MiB) are reported
    and left out. Raises ConfigError if the file cannot be read at all.
    """
    records: list[CaseRecord] = []
    damage: list[Damage] = []
    events: list[DeviceEvent] = []
    devices: dict[tuple[object, ...], DeviceRecord] = {}
    for number, line in enumerate(journal_lines(path), start=1):
        parsed = _parse(line)
        if isinstance(parsed, CaseRecord):
            _make_lean(parsed, devices)
            records.append(parsed)
        elif isinstance(parsed, DeviceEvent):
            events.append(parsed)
        elif parsed is not None:
            damage.append(Damage(number, parsed))
    return Contents(tuple(records), tuple(damage), tuple(events))


def _make_lean(record: CaseRecord, devices: dict[tuple[object, ...], DeviceRecord]) -> None:
    """Takes half of a record's memory away: devices that are alike are one, and nobody asks which
    fields were written."""
    if (device := record.device) is not None:
        # of the free keys the text, since 1 is not true
        key = (*device.__dict__.values(), str(device.__pydantic_extra__))
        record.__dict__["device"] = devices.setdefault(key, device)
    object.__setattr__(record, "__pydantic_fields_set__", _ANY_FIELDS)


def _parse(
    line: bytes, kind: TypeAdapter[Any] | None = None
) -> CaseRecord | DeviceEvent | str | None:
    if not line.strip():
        return None
    if len(line) > MAX_LINE_BYTES:
        return "is too long"
    # nearly all are cases: asking each of which kind it is takes a quarter of reading it
    likely = _LINE if _KIND_OF_EVENTS in line else _CASE
    try:
        return (kind or likely).validate_json(line)
    except ValidationError as error:
        if kind is None:
            return _parse(line, _LINE)
        if not line.endswith(b"\n"):
            return "is cut off: its writer died while writing it"
        first = error.errors(include_url=False, include_input=False)[0]
        # the first part tells which kind of line it was taken for
        where = ".".join(str(part) for part in first["loc"][1:])
        return f"{where}: {first['msg']}" if where else first["msg"]


def journal_lines(path: Path) -> Iterator[bytes]:
    """Lines with their ends; of one beyond 16 MiB only as much as shows that it is.

    Raises ConfigError if the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            yield from _lines(stream)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES + 1)
