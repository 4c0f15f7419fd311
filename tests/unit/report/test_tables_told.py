"""Figures, marks and bounds of the page's tables, each worked out by hand."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from harness.report.document import Span
from harness.report.sections import drift_tables, pairings, sharings
from harness.results.drift import DriftPoint, Output, OutputDifference
from harness.results.record import CaseRecord, Check, held, undecided
from tests.unit.report.test_tables import pairing, spans_of
from tests.unit.results.records import DEVICE, error, record


def drifted(points: dict[tuple[str, str, str], tuple[int, ...]]) -> Output:
    differs = OutputDifference(elements=3, total=9, max_steps=2, max_abs=0.5, cosine=0.99)
    return Output(
        context="m",
        output="y",
        points=tuple(
            DriftPoint(device=device, backend=backend, qnn=qnn, variants=variants)
            for (device, backend, qnn), variants in points.items()
        ),
        differences=(None, differs),
    )


def measured(memory: dict[str, Any], checks: list[Check] | None = None) -> dict[str, Span]:
    """The cells of one pairing by their columns."""
    fields = {} if checks is None else {"checks": checks}
    (table,) = pairings([pairing("raw", "raw", measurements=memory, **fields)])
    assert len(spans_of(table)) == 1
    return dict(zip(table.columns, spans_of(table)[0], strict=True))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 µs"),
        (999, "999 µs"),
        (1000, "1.00 ms"),
        (1_234_567, "1,234.57 ms"),
        ("9", ""),
        (True, ""),
        (None, ""),
    ],
)
def test_times_are_told_in_what_reads_best(value: object, text: str) -> None:
    assert measured({"first_inference_us": value})["First inference"].text == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (0, 5_000, "0.01 MB"),
        (1, 1, "0.00 MB"),
        (9_000_000, 0, "-9.00 MB"),
        (0, 1.5, ""),
        (None, 1, ""),
    ],
)
def test_growth_is_told_in_megabytes(before: object, after: object, text: str) -> None:
    cell = measured({"shared_buffer_bytes": {"before": before, "loaded": after}})["At load"]
    assert (cell.text or "held") == (text or "held")
    assert measured({"shared_buffer_bytes": 3})["At load"].text == "held"


def test_the_worst_of_several_checks_of_a_name_counts() -> None:
    fine, blind = held("steady_latency_same[a]", True, "fine"), undecided("x", "blind")
    blind = blind.model_copy(update={"name": "steady_latency_same[b]"})
    bad = held("steady_latency_same[c]", False, "bad")
    other = held("steady_latency_same_too", False, "another")
    column = "Then, median"
    for checks, cell in [
        ([other, fine], Span("9 µs", "passed", "fine")),
        ([fine, blind], Span("9 µs", "skipped", "blind")),
        ([blind, bad, fine], Span("9 µs", "failed", "bad")),
        ([other], Span("9 µs")),
    ]:
        assert measured({"steady_median_us": 9}, checks)[column] == cell
    assert measured({}, [bad])[column] == Span("broken", "failed", "bad")


def test_what_is_documented_of_each_pair() -> None:
    pairs = [(prepare, other) for prepare in ("raw", "memhandle") for other in ("raw", "memhandle")]
    (table,) = pairings([pairing(*pair) for pair in pairs])
    index = table.columns.index("I/O allocated, as documented")
    copied = table.columns.index("Copied, as documented")
    assert [(row[0].text, row[index].text, row[copied].text) for row in spans_of(table)] == [
        ("raw -> raw", "at load", "yes"),
        ("raw -> memhandle", "at load", "no"),
        ("memhandle -> raw", "at the first inference", "yes"),
        ("memhandle -> memhandle", "never", "no"),
    ]
    assert pairings([pairing("raw", "nothing of ours")]) == []


def test_an_outcome_says_why() -> None:
    bad = pairing("raw", "raw", outcome="failed", error=error(message="it broke"))
    (table,) = pairings([bad])
    assert spans_of(table)[0][1] == Span("failed", "failed", "it broke")
    assert measured({})["Outcome"] == Span("passed", "passed", "")


def shared(number: int, **more: Any) -> CaseRecord:
    fields: dict[str, Any] = {
        "case": f"s[{number}]",
        "axes": {"strategy": "max", "number": number},
        "measurements": {"expected_saving_bytes": 1},
        "checks": [held("memory_saved", True, "yes")],
    }
    return record(**(fields | more))


def test_tables_with_most_that_was_judged_come_first_and_forty_are_shown() -> None:
    many = [shared(number) for number in range(45)]
    more = [shared(44, case="s[again]"), shared(44, case="s[unjudged]", checks=[])]
    tables = sharings([*many, *more])
    assert [entry.title for entry in tables] == [
        f"sim-v73, number {number}" for number in (44, *range(39))
    ]
    cases = [unquote(row[0].link.removeprefix("#case=")) for row in spans_of(tables[0])]
    assert cases == ["s[44]", "s[again]", "s[unjudged]"]
    assert [table.title for table in sharings([shared(1, device=None), shared(1)])] == [
        "?",
        "sim-v73",
    ]
    assert [table.title for table in sharings([shared(1), shared(1, device=DEVICE)])] == ["sim-v73"]


def test_two_hundred_rows_of_a_table_are_shown() -> None:
    rows = [shared(1, case=f"s[{index}]", axes={"strategy": str(index)}) for index in range(201)]
    (table,) = sharings(rows)
    assert (len(spans_of(table)), spans_of(table)[199][0].text) == (200, "199")
    points = {(f"d{index}", "htp", "2.9.0"): (index % 2,) for index in range(201)}
    (drift,) = drift_tables([drifted(points)])
    assert [len(spans_of(drift)), *{row[0].link for row in spans_of(drift)}] == [200, ""]


def test_nothing_is_saved_where_either_side_is_unknown() -> None:
    grown = {"shared_buffer_bytes": {"before": 1_000_000, "executed": 3_000_000}}
    for spill_fill, reference, saved in [
        (grown, {"reference": grown}, "0.00 MB"),
        (grown, {}, "held"),
        ({}, {"reference": grown}, "held"),
    ]:
        case = shared(1, measurements={"expected_saving_bytes": 5} | spill_fill | reference)
        (table,) = sharings([case])
        cells = dict(zip(table.columns, spans_of(table)[0], strict=True))
        assert cells["Saved"].text == saved
        assert cells["To be saved"].text == "0.00 MB"
        assert (cells["Shared buffers"].text, cells["Given back"].text) == ("", "")


def test_what_is_not_the_same_twice_at_one_place_is_an_error() -> None:
    points = {
        ("a", "htp", "2.9.0"): (0, 1),
        ("a", "htp", "2.10.0"): (0,),
        ("a", "gpu", "2.9.0"): (1,),
    }
    (table,) = drift_tables([drifted(points)])
    marks = [[cell.mark for cell in row[2:]] for row in spans_of(table)]
    assert marks == [["error", "passed"], ["failed", None]]
    assert [row[1].text for row in spans_of(table)] == ["a htp", "a gpu"]
