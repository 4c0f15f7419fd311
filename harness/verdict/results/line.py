"""A line of a journal read, of whatever schema it is (pure)."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from harness.verdict.results import schema_1
from harness.verdict.results.record import SCHEMA, CaseRecord, DeviceEvent, JournalLine

LINE: Final[TypeAdapter[CaseRecord | DeviceEvent]] = TypeAdapter(JournalLine)
_CASE: Final[TypeAdapter[CaseRecord]] = TypeAdapter(CaseRecord)
_OF_EVENTS: Final = b'"kind":"device"'
_BEGIN_OF_1: Final = b'{"schema":1,'
_MAY_BE_OF_1: Final = re.compile(rb'"schema"\s*:\s*1\b')
READ: Final = (schema_1.SCHEMA, SCHEMA)
"""The schemas that this version reads."""


def line_of(line: bytes) -> CaseRecord | DeviceEvent:
    """The record of a line. Raises ValidationError for what is none."""
    if not line.startswith(_BEGIN_OF_1):
        # nearly all are cases: asking each of which kind it is takes a quarter of reading it
        likely: TypeAdapter[Any] = LINE if _OF_EVENTS in line else _CASE
        try:
            found: CaseRecord | DeviceEvent = likely.validate_json(line)
            return found
        except ValidationError:
            pass
    said = _said(line) if _MAY_BE_OF_1.search(line) else None
    if isinstance(said, dict) and said.get("schema") == schema_1.SCHEMA:
        return LINE.validate_python(schema_1.upgraded(said))
    del said  # which may be large
    return LINE.validate_json(line)


def case_of(line: bytes) -> CaseRecord:
    """The record of a line that is one of a case. Raises ValidationError for what is none."""
    return _CASE.validate_python(line_of(line))


def _said(line: bytes) -> object:
    """Its JSON; None if it is none."""
    try:
        return from_json(line)
    except ValueError:
        return None
