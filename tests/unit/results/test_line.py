"""Lines of journals: those of records, however they are written, and what is none."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from harness.results.journal import line_of
from harness.results.record import CaseRecord, DeviceEvent
from tests.unit.results.records import error, record

CASE = record(
    case="suites/test_context_count.py::test_contexts[sim-v73-htp-2.51.0-66]",
    outcome="failed",
    error=error(message='it said "schema":1, and "kind":"device"'),
)
EVENT = DeviceEvent(
    run="r",
    device="d",
    event="health",
    state="good",
    started=datetime(2026, 1, 1, tzinfo=UTC),
    duration_s=0.1,
)


def line(content: CaseRecord | DeviceEvent, **changed: object) -> bytes:
    """As the journal writes it: no spaces, the schema first."""
    document = json.loads(content.model_dump_json(by_alias=True)) | changed
    return json.dumps(document, separators=(",", ":")).encode()


def test_lines_of_today() -> None:
    assert line(CASE).startswith(b'{"schema":2,"kind":"case"')
    assert line_of(line(CASE)) == CASE
    assert line_of(line(EVENT)) == EVENT


def test_a_line_that_another_program_wrote() -> None:
    for content in (CASE, EVENT):
        document = json.loads(line(content))
        for text in (
            json.dumps(document),
            json.dumps(document, indent=1),
            json.dumps(dict(sorted(document.items()))),
        ):
            assert line_of(text.encode()) == content


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'{"schema":1,',
        b'{"schema":1}',
        b'{"schema":1,"kind":"device"}',
        line(CASE, schema=3),
        line(CASE, schema="1"),
        line(CASE, schema=True),
        line(EVENT, schema=0),
        line(CASE, kind="other"),
        line(CASE, placement=[]),
        line(CASE, placement=[], measurements={"of": {"schema": 1}}),
        line(CASE)[:-1],
        line(CASE, schema=1),
        line(CASE, started="then"),
        line(CASE, axes=None, device=3),
    ],
)
def test_what_is_no_line(text: bytes) -> None:
    with pytest.raises(ValidationError):
        line_of(text)
