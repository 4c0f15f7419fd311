"""Tables of the measurements of whole suites."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from harness.report.document import Span, Table
from harness.report.html import html_text
from harness.report.sections import RunData, drift_tables, pairings, sharings
from harness.results.drift import DriftPoint, Output, OutputDifference
from harness.results.journal import Contents
from harness.results.record import CaseRecord, held, undecided
from tests.unit.results.records import record


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
            "steady_median_us": 581.0,
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


def texts(table: Table) -> dict[str, list[str]]:
    """Rows by what their first cells say."""
    return {row[0].text: [cell.text for cell in row[1:]] for row in spans_of(table)}


def test_memory_types_stand_as_documented_beside_what_was_measured() -> None:
    unsupported = pairing("raw", "memhandle", outcome="unsupported", checks=[], measurements={})
    (table,) = pairings([pairing("raw", "raw"), unsupported, record()])
    cells = ["at load", "4.00 MB", "0.00 MB", "yes", "2", "12.71 ms", "581 µs"]
    assert texts(table)["raw -> raw"] == ["passed", *cells]
    blank = ["at load", "", "", "no", "", "", ""]
    assert texts(table)["raw -> memhandle"] == ["unsupported", *blank]
    marks = [cell.mark for cell in spans_of(table)[0]]
    assert marks == [None, "passed", None, "passed", "failed", None, "passed", None, "skipped"]
    assert spans_of(table)[0][4].title == "nothing came"
    assert (
        unquote(spans_of(table)[0][0].link)
        == "#case=suites/test_mem_type_pairing.py::test[raw-raw]"
    )


def test_what_no_target_shows_is_unseen_and_not_nothing() -> None:
    blind = [undecided("io_allocated_at_load", "no DSP here")]
    (table,) = pairings([pairing("raw", "raw", checks=blind)])
    assert spans_of(table)[0][3] == Span("unseen", "skipped", "no DSP here")


def test_a_table_holds_what_differs_in_its_axes_only() -> None:
    older = pairing("raw", "raw", axes=pairing("raw", "raw").axes | {"qnn": "2.47.0"})
    tables = pairings([pairing("raw", "raw"), pairing("memhandle", "raw"), older])
    assert [entry.title for entry in tables] == ["sim-v73, qnn 2.51.0", "sim-v73, qnn 2.47.0"]
    assert [len(spans_of(entry)) for entry in tables] == [2, 1]
    nothing_judged = [pairing("raw", "raw", checks=[], outcome="failed")]
    assert pairings(nothing_judged) == []


def test_what_sharing_saved_is_told_in_bytes() -> None:
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
    (table,) = sharings([case, record()])
    expected = ["passed", "6.90 MB", "6.90 MB", "15.50 MB", "8.70 MB", "8.60 MB", "held", "held"]
    assert texts(table) == {"max": expected}
    assert spans_of(table)[0][6].mark == "failed", "the worst of all orders of release"


def test_drift_has_a_column_for_each_version() -> None:
    points = tuple(
        DriftPoint(device=device, backend="htp", qnn=qnn, variants=(variant,))
        for device, qnn, variant in (("a", "2.9.0", 0), ("a", "2.10.0", 1), ("b", "2.9.0", 0))
    )
    differs = OutputDifference(elements=3, total=9, max_steps=2, max_abs=0.5, cosine=0.99)
    drifting = Output(context="m.bin", output="y", points=points, differences=(None, differs))
    same = Output(context="m.bin", output="same", points=points, differences=(None,))
    (table,) = drift_tables([drifting, same])
    assert table.columns == ("Output", "Where", "QNN 2.9.0", "QNN 2.10.0")
    assert [cell.mark for cell in spans_of(table)[0]] == [None, None, "passed", "failed"]
    assert [cell.text for cell in spans_of(table)[1]] == ["m.bin, y", "b htp", "the first", ""]
    assert drift_tables([]) == []


def test_the_page_has_the_tables_and_leads_to_their_cases() -> None:
    page = html_text(RunData("r", Contents((pairing("raw", "raw"),), ())))
    assert "<h2>Memory types</h2>" in page
    assert 'href="#case=suites/test_mem_type_pairing.py%3A%3Atest%5Braw-raw%5D"' in page
    assert "<h2>Sharing</h2>" not in page
