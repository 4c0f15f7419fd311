"""Tables of the measurements of whole suites: figures, marks and bounds, worked out by hand."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any
from urllib.parse import unquote

import pytest

from harness.report.document import Span, Table
from harness.report.html import html_text
from harness.report.sections import RunData, drift_tables, pairings, sharings
from harness.results.journal import Contents
from harness.results.output_drift import DriftPoint, Output, OutputDifference
from harness.results.record import CaseRecord, Check, held, undecided
from tests.snapshots import Snapshot
from tests.unit.results.records import DEVICE, error, record


def pairing(prepare: str, execute: str, **changed: Any) -> CaseRecord:
    axes = {"backend": "htp", "qnn": "2.51.0", "prepare": prepare, "execute": execute}
    memory = {"before": 100, "loaded": 4_000_100, "bound": 4_000_100, "first": 4_000_100}
    fields: dict[str, Any] = {
        "case": f"suites/test_mem_type_pairing.py::test[{prepare}-{execute}]",
        "axes": axes,
        "measurements": {
            "shared_buffer_bytes": memory,
            "io_bytes": 4_000_000,
            "first_inference_us": 12_705,
            "steady_p50_us": 581.0,
            "copies_shown": 2,
        },
        "checks": [
            held("io_allocated_at_load", True, "as it must"),
            held("io_allocated_at_first_inference", False, "nothing came"),
            held("copies_per_inference", True, "two"),
            undecided("steady_latency_same", "noise"),
        ],
    }
    return record(**(fields | changed))


def spans_of(table: Table) -> list[list[Span]]:
    """Its rows, of which each cell is one span."""
    rows = [[cell for cell in row if isinstance(cell, Span)] for row in table.rows]
    assert [*map(len, rows)] == [*map(len, table.rows)]
    return rows


def shown(tables: Iterable[Table]) -> Iterator[str]:
    """Titles, columns and rows; of each cell its text, mark and title."""
    for table in tables:
        yield table.title
        yield f"  {' | '.join(table.columns)}"
        for row in spans_of(table):
            parts = ((cell.text, cell.mark and f"[{cell.mark}]", cell.title) for cell in row)
            yield f"  {' | '.join(' '.join(filter(None, part)) for part in parts)}"


def test_memory_types_stand_as_documented_beside_what_was_measured(snapshot: Snapshot) -> None:
    older = pairing("raw", "raw").axes | {"qnn": "2.47.0"}
    blind = [undecided("io_allocated_at_load", "no DSP here")]
    broken = {"checks": blind, "outcome": "failed", "error": error(message="it broke")}
    tables = pairings(
        [
            *(pairing(*pair) for pair in product(("raw", "memhandle"), repeat=2)),
            pairing("raw", "memhandle", outcome="unsupported", checks=[], measurements={}),
            pairing("raw", "raw", axes=older, **broken),
            record(),
        ]
    )
    assert list(shown(tables)) == snapshot
    link = unquote(spans_of(tables[0])[0][0].link)
    assert link == "#case=suites/test_mem_type_pairing.py::test[raw-raw]"
    page = html_text(RunData("r", Contents((pairing("raw", "raw"),), ())))
    assert 'href="#case=suites/test_mem_type_pairing.py%3A%3Atest%5Braw-raw%5D"' in page
    assert pairings([pairing("raw", "raw", checks=[], outcome="failed")]) == []
    assert pairings([pairing("raw", "nothing of ours")]) == []


def test_what_sharing_saved_is_told_in_bytes(snapshot: Snapshot) -> None:
    case = record(
        axes={"strategy": "max"},
        measurements={
            "expected_spill_fill_bytes": 6_900_000,
            "expected_saving_bytes": 8_700_000,
            "shared_buffer_bytes": {"before": 0, "executed": 6_900_000},
            "reference": {"shared_buffer_bytes": {"before": 0, "executed": 15_500_000}},
        },
        checks=[
            held("memory_saved[0-1-2]", True, "all"),
            held("memory_saved[2-1-0]", False, "less"),
            held("memory_given_back[0-1-2]", True, "all"),
            held("outputs_equal[0-1-2]", True, "the same"),
        ],
    )
    # nothing is saved where either side is unknown
    grown = {"shared_buffer_bytes": {"before": 1_000_000, "executed": 3_000_000}}
    sides = (grown | {"reference": grown}, grown, {"reference": grown})
    others = [shared(1, measurements={"expected_saving_bytes": 5} | side) for side in sides]
    assert list(shown(sharings([case, record(), *others]))) == snapshot


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
    [(999, "999 µs"), (1000, "1.00 ms"), (1_234_567, "1,234.57 ms"), ("9", ""), (True, "")],
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
    column = "Then, p50"
    for checks, cell in [
        ([other, fine], Span("9 µs", "passed", "fine")),
        ([fine, blind], Span("9 µs", "skipped", "blind")),
        ([blind, bad, fine], Span("9 µs", "failed", "bad")),
        ([other], Span("9 µs")),
    ]:
        assert measured({"steady_p50_us": 9}, checks)[column] == cell
    assert measured({}, [bad])[column] == Span("broken", "failed", "bad")


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


def test_what_is_not_the_same_twice_at_one_place_is_an_error() -> None:
    points = {
        ("a", "htp", "2.9.0"): (0, 1),
        ("a", "htp", "2.10.0"): (0,),
        ("a", "gpu", "2.9.0"): (1,),
    }
    (table,) = drift_tables([drifted(points)])
    assert table.columns == ("Output", "Where", "QNN 2.9.0", "QNN 2.10.0")
    assert drift_tables([]) == []
    marks = [[cell.mark for cell in row[2:]] for row in spans_of(table)]
    assert marks == [["error", "passed"], ["failed", None]]
    assert [row[1].text for row in spans_of(table)] == ["a htp", "a gpu"]
