"""Cases as a grid of two axes: which pairs of versions work, and what the others say (pure).

A test asks for one with `bench.grid(rows, columns)`; it is made of all cases of that test that
differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import ConfigError
from harness.qnn.versions import QnnVersion
from harness.results.record import CaseRecord, ErrorRecord, final_attempts
from harness.results.signature import without_varying_parts

GRID: Final = "grid"
"""The measurement that names the axes of rows and columns."""

_MAX_LEGEND_CHARS: Final = 220
_NOT_RUN: Final = "-"


@dataclass(frozen=True)
class Grid:
    """The cases of one test on one device and backend, by the values of two axes."""

    title: str
    row_axis: str
    column_axis: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], CaseRecord]

    def mark(self, row: str, column: str) -> str:
        """What stands in a cell: ok, the code of a failure, or its outcome."""
        record = self.cells.get((row, column))
        if record is None:
            return _NOT_RUN
        if record.outcome == "passed":
            return "ok"
        error = record.error
        if record.outcome != "failed" or error is None:
            return record.outcome
        if error.code is not None:
            return str(error.code)
        return error.ort.name if error.ort is not None else record.outcome


def grids(records: Iterable[CaseRecord]) -> list[Grid]:
    """The grids that tests asked for, in the order of their first cases.

    A case that failed before it could ask belongs to the grid of its test all the same.
    """
    cases = final_attempts(records)
    asked = {_test(case): axes for case in cases if (axes := _asked(case)) is not None}
    groups: dict[tuple[str, str], list[CaseRecord]] = {}
    for case in cases:
        if _test(case) in asked:
            groups.setdefault((_test(case), _elsewhere(case, asked[_test(case)])), []).append(case)
    return [
        _grid(test, elsewhere, asked[test], found) for (test, elsewhere), found in groups.items()
    ]


def grid_lines(grid: Grid) -> Iterator[str]:
    """The grid as text, with what the failing cells say below it."""
    marks = {(row, column): grid.mark(row, column) for row in grid.rows for column in grid.columns}
    first = max(map(len, [grid.row_axis, *grid.rows]))
    widths = [
        max(len(column), *(len(marks[row, column]) for row in grid.rows)) for column in grid.columns
    ]
    yield f"{grid.title}: {grid.row_axis} down, {grid.column_axis} across"
    yield _line(grid.row_axis, first, grid.columns, widths)
    for row in grid.rows:
        yield _line(row, first, [marks[row, column] for column in grid.columns], widths)
    legend: dict[tuple[str, str], list[str]] = {}
    for cell, record in grid.cells.items():
        if record.error is not None and record.outcome != "passed":
            said = _said(record.error)
            legend.setdefault((marks[cell], without_varying_parts(said)), []).append(said)
    for (mark, _), texts in legend.items():
        text = f"  {len(texts)} x {mark}: {texts[0]}"
        yield text if len(text) <= _MAX_LEGEND_CHARS else f"{text[: _MAX_LEGEND_CHARS - 3]}..."


def _said(error: ErrorRecord) -> str:
    """The line that says most: where it began, else the first one."""
    began = error.first_cause
    text = began.message if began is not None and began.message.strip() else error.message
    return text.strip().partition("\n")[0]


def grid_json(grid: Grid) -> dict[str, object]:
    """The grid for run.json: axes, values, and a row of marks for each value of the first."""
    return {
        "title": grid.title,
        "rows": {"axis": grid.row_axis, "values": list(grid.rows)},
        "columns": {"axis": grid.column_axis, "values": list(grid.columns)},
        "marks": [[grid.mark(row, column) for column in grid.columns] for row in grid.rows],
    }


def _grid(test: str, elsewhere: str, axes: tuple[str, str], cases: Sequence[CaseRecord]) -> Grid:
    row_axis, column_axis = axes
    cells = {(_value(case, row_axis), _value(case, column_axis)): case for case in cases}
    return Grid(
        title=f"{test.rpartition('::')[2]} on {elsewhere}",
        row_axis=row_axis,
        column_axis=column_axis,
        rows=tuple(sorted({row for row, _ in cells}, key=_order)),
        columns=tuple(sorted({column for _, column in cells}, key=_order)),
        cells=cells,
    )


def _asked(case: CaseRecord) -> tuple[str, str] | None:
    axes = case.measurements.get(GRID)
    if isinstance(axes, list) and len(axes) == 2:
        return str(axes[0]), str(axes[1])
    return None


def _test(case: CaseRecord) -> str:
    return case.case.partition("[")[0]


def _elsewhere(case: CaseRecord, axes: tuple[str, str]) -> str:
    """The device and the values of all other axes but versions, which tell grids apart."""
    device = case.device.name if case.device else "?"
    # what a case compares may follow from its other versions
    apart = {*axes, "qnn", "ort", "compiler"}
    others = [f"{case.axes[name]}" for name in case.axes if name not in apart]
    return ", ".join([device, *others])


def _value(case: CaseRecord, axis: str) -> str:
    value = case.axes.get(axis)
    return _NOT_RUN if value is None else str(value)


def _order(value: str) -> tuple[int, tuple[int, ...], str]:
    try:
        return 0, QnnVersion.parse(value).parts, value
    except ConfigError:
        return 1, (), value


def _line(head: str, first: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"  {head:<{first}}  {shown}".rstrip()
