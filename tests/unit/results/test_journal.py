"""The journal: what is appended is read again, whatever else stands in the file, and how often."""

import gc
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import ValidationError

from harness.core.bounded_json import JsonError
from harness.core.errors import ConfigError, InfraError, InternalError
from harness.lab.health import DeviceEvent
from harness.results import journal
from harness.results.journal import (
    BatchedRecords,
    Journal,
    JournalRecords,
    Reader,
    line_of,
    read_journal,
    read_once,
)
from harness.results.record import CaseRecord
from tests.snapshots import Snapshot
from tests.unit.results.records import error, record, records


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
    path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
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
    with snapshot.raises(ConfigError):
        list(large.records)
    path.unlink()
    with snapshot.raises(ConfigError):
        list(large.records)


def test_what_is_no_record_is_refused_and_not_written(path: Path) -> None:
    with Journal(path) as opened:
        with pytest.raises(InternalError):
            opened.append({"schema": 1})
        with pytest.raises(InternalError, match="8 MiB"):
            opened.append(record(measurements={"x": "y" * 20_000_000}))
    assert path.read_bytes() == b""


def test_a_closed_journal_takes_nothing(path: Path) -> None:
    opened = Journal(path)
    opened.close()
    opened.close()
    with pytest.raises(InternalError):
        opened.append(record())


def test_a_torn_line_is_reported_and_spoils_no_other(path: Path, snapshot: Snapshot) -> None:
    with Journal(path) as opened:
        opened.append(record(case="a"))
        opened.append(record(case="b"))
    path.write_bytes(path.read_bytes()[:-30])
    contents = read_journal(path)
    assert [item.case for item in contents.records] == ["a"]
    assert [item.line for item in contents.damage] == [2]
    assert contents.damage[0].problem == snapshot
    with Journal(path) as opened:
        opened.append(record(case="c"))
    contents = read_journal(path)
    assert [item.case for item in contents.records] == ["a", "c"]
    assert [item.line for item in contents.damage] == [2]


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
    assert [item.line for item in contents.damage] == [2]


def test_places_that_cannot_be_used(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(InfraError):
        Journal(tmp_path / "gone" / "results.jsonl")
    with snapshot.raises(ConfigError):
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


def test_a_line_that_another_program_wrote() -> None:
    assert line(CASE).startswith(b'{"schema":2,"kind":"case"')
    for content in (CASE, EVENT):
        document = json.loads(line(content))
        for text in (
            line(content).decode(),
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
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema":2,"kind":"device"}',
        line(CASE, schema=3),
        line(CASE, schema="2"),
        line(CASE, schema=True),
        line(EVENT, schema=0),
        line(CASE, kind="other"),
        line(CASE, placement=[]),
        line(CASE)[:-1],
        line(CASE, schema=1),
        line(CASE, axes=None, device=3),
    ],
)
def test_what_is_no_line(text: bytes) -> None:
    with pytest.raises((ValidationError, JsonError)):
        line_of(text)


CASES = [record(case=str(number)) for number in range(7)]


class Batches(BatchedRecords):
    """Batches of these sizes, which count how often they are asked for."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes, self.times = [*sizes], 0

    def batches(self) -> Iterator[list[CaseRecord]]:
        self.times += 1
        cases = iter(CASES)
        return (list(islice(cases, size)) for size in self.sizes)


def names(cases: Iterable[CaseRecord]) -> list[str]:
    return [case.case for case in cases]


def first(count: int, cases: Iterable[CaseRecord]) -> list[str]:
    return names(islice(cases, count))


def shared(*readers: Reader) -> Reader:
    return lambda cases: read_once(cases, *readers)


READERS: list[Reader] = [
    names,
    partial(first, 0),
    partial(first, 1),
    partial(first, 3),
    shared(names, partial(first, 2)),
    shared(shared(names), partial(first, 0)),
]


@given(
    st.lists(st.integers(1, 3), max_size=5),
    st.lists(st.sampled_from(READERS), min_size=1, max_size=6),
)
def test_each_reader_makes_the_same_of_batches_as_of_a_list(
    sizes: list[int], readers: list[Reader]
) -> None:
    batches = Batches(sizes)
    results: list[Any] = read_once(batches, *readers)
    assert results == read_once(CASES[: sum(sizes)], *readers)
    assert batches.times == 1


def test_no_batch_comes_before_all_are_done_with_the_one_before() -> None:
    steps: list[str] = []

    class Told(BatchedRecords):
        def batches(self) -> Iterator[list[CaseRecord]]:
            for number, case in enumerate(CASES):
                steps.append(f"batch {number}")
                yield [case]

    def reader(cases: Iterable[CaseRecord]) -> None:
        steps.extend(case.case for case in cases)

    read_once(Told(), reader, shared(reader, reader))
    assert steps == [text for n in range(7) for text in (f"batch {n}", *[str(n)] * 3)]


def fails(_: Iterable[CaseRecord]) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("wrap", [lambda reader: reader, shared])
def test_what_a_reader_raises_is_raised(wrap: Callable[[Reader], Reader]) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        read_once(Batches([3, 3]), names, wrap(fails), names)


def test_what_reading_raises_is_raised() -> None:
    class Torn(BatchedRecords):
        def batches(self) -> Iterator[list[CaseRecord]]:
            yield CASES[:2]
            raise OSError("the file is gone")

    results = []

    def reader(cases: Iterable[CaseRecord]) -> None:
        results.append(names(cases))

    for wrapped in (reader, shared(reader)):
        with pytest.raises(OSError, match="the file is gone"):
            read_once(Torn(), wrapped, partial(first, 1))
    assert results == [], "nothing is made of a part of them"
