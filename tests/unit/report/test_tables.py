"""The table of outputs that are not the same everywhere."""

from harness.report.document import Span, Table
from harness.report.sections import drift_tables
from harness.results.output_drift import DriftPoint, Output, OutputDifference


def spans_of(table: Table) -> list[list[Span]]:
    """Its rows, of which each cell is one span."""
    rows = [[cell for cell in row if isinstance(cell, Span)] for row in table.rows]
    assert [*map(len, rows)] == [*map(len, table.rows)]
    return rows


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


def test_two_hundred_rows_of_a_table_are_shown() -> None:
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
