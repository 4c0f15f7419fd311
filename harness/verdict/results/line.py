"""Lines of a journal as records (pure)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from harness.ground.files.bounded_json import parse_model
from harness.verdict.results.record import CaseRecord, DeviceEvent, JournalLine

LINE: Final[TypeAdapter[CaseRecord | DeviceEvent]] = TypeAdapter(JournalLine)
_CASE: Final[TypeAdapter[CaseRecord]] = TypeAdapter(CaseRecord)
MAX_VALUES: Final = 300_000
"""A line has at most so many commas and brackets outside of texts."""
_OF_EVENTS: Final = b'"kind":"device"'


def line_of(line: bytes) -> CaseRecord | DeviceEvent:
    """Return the record of a line. Raises JsonError or ValidationError for what is none."""
    # nearly all are cases: asking each of which kind it is takes a quarter of reading it
    adapter: TypeAdapter[Any] = LINE if _OF_EVENTS in line else _CASE
    try:
        record: CaseRecord | DeviceEvent = parse_model(adapter, line, MAX_VALUES)
        return record
    except ValidationError:
        pass  # which may be large: it goes before the next one comes
    return parse_model(LINE, line, MAX_VALUES)
