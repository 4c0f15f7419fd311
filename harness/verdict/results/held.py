"""Records of which only small parts are held; what may be large is read again from its journal.

A run may have hundreds of thousands of cases, and what a case measured takes up to twenty times as
much memory as it has bytes in its journal.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json

from harness.ground.errors import ConfigError
from harness.verdict.failure.error import ErrorRecord, clean_text, named_text
from harness.verdict.results.json_value import as_json
from harness.verdict.results.line import case_of
from harness.verdict.results.record import CaseRecord, DeviceRecord, Expected, PlacementRecord

PLACE_BITS: Final = 24
"""So many bits of a place are a line's length; the others are where it begins."""
_SHORT_CHARS: Final = 500
_MOST_SHARED: Final = 10_000
_MOST_ERRORS: Final = 300
_MOST_HELD_CHARS: Final = 4000
_MOST_AXES: Final = 32
_SMALL: Final = (
    *("run", "case", "test", "engine", "suite", "line", "outcome", "cause", "fixed", "outputs"),
    *("started", "duration_s", "attempt"),
)
_LARGE: Final = ("runtime", "preflight", "checks", "emulated", "logs")
_FIELDS: Final = frozenset(CaseRecord.model_fields)


class OpenJournal:
    """A journal that was read, to read lines of it again though it may have been replaced since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._last: tuple[int, dict[str, Any]] = -1, {}

    def keep(self, stream: BinaryIO) -> None:
        """Keeps the file that is being read open."""
        self._file = os.dup(stream.fileno())
        weakref.finalize(self, os.close, self._file)

    def again(self, place: int, case: str) -> bytes:
        """The line of a case at its place. Raises ConfigError if it is there no more."""
        line = os.pread(self._file, place & (1 << PLACE_BITS) - 1, place >> PLACE_BITS)
        if self._last[0] != place:
            try:
                said = from_json(line)
            except ValueError:
                said = None
            if not isinstance(said, dict) or named_text(said.get("case")) != case:
                raise ConfigError("was changed while it was read", file=self._path)
            self._last = place, said
        return line

    def said(self, place: int, case: str) -> dict[str, Any]:
        """The line at a place, as JSON."""
        if self._last[0] != place:
            self.again(place, case)
        return self._last[1]

    def measured(self, place: int, case: str, name: str) -> JsonValue:
        """A measurement of the case at a place; None of none. Raises ConfigError as `again`."""
        found = self.said(place, case).get("measurements")
        return as_json(found.get(name)) if isinstance(found, dict) else None

    def axes(self, place: int, case: str) -> dict[str, Any]:
        """Its axes. Raises ConfigError as `again`."""
        found = as_json(self.said(place, case).get("axes"))
        return found if isinstance(found, dict) else {}


class HeldRecord(CaseRecord):
    """A record that reads what may be large from its journal whenever it is asked for it.

    These are error, measurements, checks, preflight, runtime, emulated, logs, and axes where there
    are many.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _FIELDS:
                return super().__getattr__(name)
            if name in ("measurements", "axes"):
                return as_json(self._said().get(name, {}))
            if name == "logs":
                return tuple(str(clean_text(one)) for one in self._said()[name])
            if name == "error":
                return ErrorRecord.model_validate(self._said()[name])
            return getattr(self.whole(), name)

    def measured(self, name: str) -> Any:
        """As of any record; what it has not measured is not looked for in its journal."""
        fields = self.__dict__
        known = fields["_names"]
        if known is not None and name not in known:
            return None
        return fields["_journal"].measured(fields["_place"], self.case, name)

    def measured_names(self) -> tuple[str, ...]:
        """As of any record."""
        known = self.__dict__["_names"]
        return tuple(self.measurements) if known is None else known

    def whole(self) -> CaseRecord:
        """The record with all that it has."""
        fields = self.__dict__
        try:
            return case_of(fields["_journal"].again(fields["_place"], self.case))
        except ValidationError as error:
            raise ConfigError("was changed while it was read") from error

    def model_copy(self, **more: Any) -> CaseRecord:  # type: ignore[override]
        """Of the whole record."""
        return self.whole().model_copy(**more)

    def __eq__(self, other: object) -> bool:
        return self.whole() == (other.whole() if isinstance(other, CaseRecord) else other)

    __hash__ = None  # type: ignore[assignment]

    def _said(self) -> dict[str, Any]:
        fields = self.__dict__
        said: dict[str, Any] = fields["_journal"].said(fields["_place"], self.case)
        return said


class HeldRecords:
    """Makes held records of one journal, which share what many of them have alike."""

    def __init__(self, journal: OpenJournal) -> None:
        self._journal = journal
        self._shared: dict[Any, Any] = {}
        self._errors: dict[ErrorRecord, ErrorRecord] = {}

    def held(self, record: CaseRecord, place: int) -> HeldRecord:
        """A record, of which what is large stays at its place."""
        new = HeldRecord.__new__(HeldRecord)
        # set one by one, so that their dicts share their keys; always in one order
        set_ = object.__setattr__
        fields = record.__dict__
        for name in _SMALL:
            set_(new, name, self._one(fields[name]) if name not in _OWN else fields[name])
        set_(new, "placement", self.placement(record.placement))
        set_(new, "device", self._device(record.device))
        set_(new, "expected", self._expected(record.expected))
        set_(new, "_journal", self._journal)
        set_(new, "_place", place)
        set_(new, "_names", self._names(record.measurements))
        if (axes := self.axes(record.axes)) is not None:
            set_(new, "axes", axes)
        if record.error is None:
            set_(new, "error", None)
        elif (error := self._error(record.error)) is not None:
            set_(new, "error", error)
        if not record.measurements:
            set_(new, "measurements", {})
        for name in _LARGE:
            if not fields[name]:
                set_(new, name, fields[name])
        set_(new, "__pydantic_fields_set__", _FIELDS)
        return new

    def _one(self, value: Any) -> Any:
        if type(value) is not str or len(value) > _SHORT_CHARS:
            return value
        return self._known(value, value)

    def _known(self, key: Any, value: Any) -> Any:
        if len(self._shared) > _MOST_SHARED:
            self._shared.clear()
        return self._shared.setdefault(key, value)

    def placement(self, placement: PlacementRecord | None) -> PlacementRecord | None:
        """The placement, which many cases share."""
        if placement is None:
            return None
        known: PlacementRecord = self._known(placement, placement)
        return known

    def _device(self, device: DeviceRecord | None) -> DeviceRecord | None:
        if device is None:
            return None
        # of the free keys the text, since 1 is not true
        key = (*device.__dict__.values(), str(device.__pydantic_extra__))
        known: DeviceRecord = self._known(key, device)
        return known

    def _expected(self, expected: Expected | None) -> Expected | None:
        if expected is None:
            return None
        known: Expected = self._known((Expected, expected.known_issue), expected)
        return known

    def _names(self, measurements: dict[str, Any]) -> tuple[str, ...] | None:
        names = tuple(measurements)
        if len(names) > _MOST_AXES or sum(map(len, names)) > _MOST_HELD_CHARS:
            return None
        known: tuple[str, ...] = self._known(("names", names), names)
        return known

    def axes(self, axes: dict[str, Any]) -> dict[str, Any] | None:
        """The axes, if they are as small as usual; values that many cases have are shared."""
        if len(axes) > _MOST_AXES:
            return None
        short: dict[str, Any] = {}
        for name, value in axes.items():
            if isinstance(value, dict | list) or len(name) > _SHORT_CHARS:
                return None
            if type(value) is str and len(value) > _SHORT_CHARS:
                return None
            short[self._one(name)] = self._one(value)
        # 1 is neither true nor 1.0
        key = ("axes", *short.items(), *map(type, short.values()))
        known: dict[str, Any] = self._known(key, short)
        return known

    def _error(self, error: ErrorRecord) -> ErrorRecord | None:
        """The error, shared by the cases that have it; None if it is large, or one of very many."""
        if len(error.chain) + len(error.libraries) > _MOST_AXES:
            return None
        if len(error.message) > _MOST_HELD_CHARS:
            return None
        known = self._errors.get(error)
        if known is None and len(self._errors) < _MOST_ERRORS:
            known = self._errors[error] = error
        return known


_OWN: Final = frozenset({"case", "test", "started", "duration_s", "attempt", "line", "fixed"})
