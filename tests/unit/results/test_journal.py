"""The journal: what is appended is read again, whatever else stands in the file."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.core.errors import ConfigError, InfraError, InternalError
from harness.results import journal
from harness.results.journal import Journal, JournalRecords, read_journal
from harness.results.record import CaseRecord
from tests.unit.results.records import record, records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def test_appending_and_reading(path: Path) -> None:
    records = [record(case="a"), record(case="b", outcome="failed")]
    with Journal(path) as opened:
        for item in records:
            opened.append(item)
        assert list(read_journal(path).records) == records
    with Journal(path) as again:
        again.append(record(case="c").model_dump(mode="json"))
    contents = read_journal(path)
    assert [item.case for item in contents.records] == ["a", "b", "c"]
    assert contents.damage == ()
    assert path.read_bytes().count(b"\n") == 3


def test_records_that_take_much_memory_are_read_anew_each_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [record(case=case, attempt=number) for number in (1, 2) for case in "abc"][:5]
    with Journal(path) as opened:
        for item in records:
            opened.append(item)
    path.write_bytes(path.read_bytes() + b"broken\n")
    contents = read_journal(path)
    monkeypatch.setattr(journal, "_HELD_BYTES", 0)
    large = read_journal(path)
    assert (contents.damage, type(large.records)) == (large.damage, JournalRecords)
    assert [*large.records] == [*large.records] == [*contents.records] == records
    assert [*large.cases] == [*contents.cases] == [records[3], records[4], records[2]]
    assert [*large.earlier] == [*contents.earlier] == records[:2]
    assert (len(large.records), len(large.cases), len(large.earlier)) == (5, 3, 2)
    path.write_bytes(path.read_bytes()[7:])
    with pytest.raises(ConfigError, match="was changed while it was read"):
        list(large.records)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        list(large.records)


def test_a_new_journal_is_empty(path: Path) -> None:
    Journal(path).close()
    assert read_journal(path) == journal.Contents((), ())


def test_what_is_no_record_is_refused_and_not_written(path: Path) -> None:
    with Journal(path) as opened:
        with pytest.raises(InternalError, match="does not fit its model"):
            opened.append({"schema": 1})
        with pytest.raises(InternalError, match="has more than 8 MiB"):
            opened.append(record(measurements={"x": "y" * 20_000_000}))
    assert path.read_bytes() == b""


def test_a_closed_journal_takes_nothing(path: Path) -> None:
    opened = Journal(path)
    opened.close()
    opened.close()
    with pytest.raises(InternalError, match="closed already"):
        opened.append(record())


def test_a_torn_line_is_reported_and_spoils_no_other(path: Path) -> None:
    with Journal(path) as opened:
        opened.append(record(case="a"))
        opened.append(record(case="b"))
    path.write_bytes(path.read_bytes()[:-30])
    contents = read_journal(path)
    assert [item.case for item in contents.records] == ["a"]
    assert [(item.line, item.problem) for item in contents.damage] == [
        (2, "is cut off: its writer died while writing it")
    ]
    with Journal(path) as opened:
        opened.append(record(case="c"))
    contents = read_journal(path)
    assert [item.case for item in contents.records] == ["a", "c"]
    assert [item.line for item in contents.damage] == [2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"schema": 3}\n', "is of schema 3; this version reads schema 2: a newer "),
        (b'{"schema": "2"}\n', "is damaged: its schema is '2', which is no number; this version "),
        (b"[]\n", "object"),
        (b"\xff\xfe\n", "Invalid JSON"),
        (b"{}\n", "Field required"),
        (b"[" * 100_000 + b"\n", "nested deeper"),
    ],
)
def test_foreign_lines_are_reported(path: Path, line: bytes, problem: str) -> None:
    path.write_bytes(line + record().model_dump_json().encode() + b"\n")
    contents = read_journal(path)
    assert len(contents.records) == 1
    (damage,) = contents.damage
    assert damage.line == 1
    assert problem in damage.problem


def test_lines_are_read_however_they_are_spelt(path: Path) -> None:
    event = {
        "kind": "device",
        "run": "r",
        "device": "phone",
        "event": "health",
        "state": "good",
        "started": "2026-11-21T06:00:00Z",
        "duration_s": 0.5,
    }
    case = json.loads(record(axes={"kind": "device"}).model_dump_json())
    lines = [
        json.dumps(content, separators=separators)
        for content in (event, case)
        for separators in [(",", ":"), (", ", ": ")]
    ]
    path.write_text("\n".join(lines))
    contents = read_journal(path)
    assert not contents.damage
    assert [event.device for event in contents.events] == ["phone"] * 2
    assert [record.axes for record in contents.records] == [{"kind": "device"}] * 2


def test_reading_leaves_the_search_for_cycles_as_it_was(path: Path) -> None:
    with pytest.raises(ConfigError):
        read_journal(path)
    assert gc.isenabled()


def test_overlong_lines_are_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_LINE_BYTES", 2000)
    good = record().model_dump_json().encode() + b"\n"
    path.write_bytes(good + b"x" * 9000 + b"\n" + good)
    contents = read_journal(path)
    assert len(contents.records) == 2
    assert [(item.line, item.problem) for item in contents.damage] == [(2, "has more than 0 MiB")]


def test_a_full_disk_is_the_labs_fault() -> None:
    opened = Journal(Path("/dev/full"))
    with pytest.raises(InfraError, match="No space left on device"):
        opened.append(record())


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot write"):
        Journal(tmp_path / "gone" / "results.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_journal(tmp_path / "gone.jsonl")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records(), max_size=4), st.binary(max_size=60), st.data())
def test_every_complete_line_is_read_wherever_the_file_is_cut(
    path: Path, records: list[CaseRecord], rubbish: bytes, data: st.DataObject
) -> None:
    lines = [item.model_dump_json().encode() + b"\n" for item in records]
    whole = b"".join(lines) + rubbish.replace(b"{", b"")
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    complete = sum(end <= cut for end in ends)
    contents = read_journal(path)
    assert [*contents.records][:complete] == records[:complete]
    # One more is right if only its line's end is missing.
    assert len(contents.records) - complete in (0, 1)
