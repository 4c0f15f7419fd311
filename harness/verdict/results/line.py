"""Lines of a journal as records (pure)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from harness.verdict.results.record import CaseRecord, DeviceEvent, JournalLine

LINE: Final[TypeAdapter[CaseRecord | DeviceEvent]] = TypeAdapter(JournalLine)
_CASE: Final[TypeAdapter[CaseRecord]] = TypeAdapter(CaseRecord)
_OF_EVENTS: Final = b'"kind":"device"'


def line_of(line: bytes) -> CaseRecord | DeviceEvent:
    """Return the record of a line. Raises ValidationError for what is none."""
    # nearly all are cases: asking each of which kind it is takes a quarter of reading it
    adapter: TypeAdapter[Any] = LINE if _OF_EVENTS in line else _CASE
    try:
        record: CaseRecord | DeviceEvent = adapter.validate_json(line)
        return record
    except ValidationError:
        pass  # which may be large: it goes before the next one comes
    return LINE.validate_json(line)
