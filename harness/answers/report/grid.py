"""Cases as a grid of two axes: which pairs of versions work, and what the others say (pure).

A test asks for one with `bench.grid(rows, columns)`; it is made of all cases of that test that
differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.answers.report.document import aligned
from harness.ground.facts.axes import VERSIONS
from harness.ground.facts.versions import QnnVersion
from harness.verdict.failure.error import without_varying_parts
from harness.verdict.results.journal import Records
from harness.verdict.results.record import CaseRecord

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

    @property
    def compares(self) -> bool:
        ends = {self.row_axis: self.rows, self.column_axis: self.columns}
        return len(self.cells) > 1 and len(ends.get("device", ("", ""))) > 1

    def label(self, row: str, column: str) -> str:
        """What stands in a cell: ok (and a right refusal's code), a failure's code, its outcome."""
        record = self.cells.get((row, column))
        if record is None:
            return _NOT_RUN
        if record.outcome == "passed":
            refused = record.measurements.get("refused_code")
            return "ok" if refused is None else f"ok ({refused})"
        return (code_of(record) if record.outcome == "failed" else None) or record.outcome


def code_of(record: CaseRecord) -> str | None:
    """What its failure is called in a cell: its code; None where there is none."""
    error = record.error
    if error is not None and error.code == 0:
        return "outputs"
    if error is None or error.code is not None:
        return None if error is None else str(error.code)
    return error.ort.name if error.ort is not None else None


def grids(cases: Records) -> list[Grid]:
    """The grids that tests asked for, in the order of their first cases.

    A case that failed before it could ask belongs to the grid of its test all the same.
    """
    asked = {_test(case): axes for case in cases if (axes := case.grid) is not None}
    groups: dict[tuple[str, str], list[CaseRecord]] = {}
    for case in cases if asked else ():
        if _test(case) in asked:
            groups.setdefault((_test(case), _elsewhere(case, asked[_test(case)])), []).append(case)
    return [
        _grid(test, elsewhere, asked[test], found) for (test, elsewhere), found in groups.items()
    ]


def asked_grids(cases: Iterable[CaseRecord]) -> list[tuple[str, str, str]]:
    """Suite, rows and columns of the grids that tests asked for, each once."""
    return list(dict.fromkeys((one.suite, *one.grid) for one in cases if one.grid is not None))


def grid_lines(grid: Grid) -> Iterator[str]:
    """The grid as text, with what the failing cells say below it."""
    rows = [[row, *(grid.label(row, column) for column in grid.columns)] for row in grid.rows]
    yield f"{grid.title}: {grid.row_axis} down, {grid.column_axis} across"
    yield from (f"  {line}" for line in aligned([[grid.row_axis, *grid.columns], *rows]))
    legend: dict[tuple[str, str], list[str]] = {}
    for cell, record in grid.cells.items():
        if record.error is not None and record.outcome != "passed":
            said = record.error.began
            legend.setdefault((grid.label(*cell), without_varying_parts(said)), []).append(said)
    for (label, _), texts in legend.items():
        text = f"  {len(texts)} x {label}: {texts[0]}"
        yield text if len(text) <= _MAX_LEGEND_CHARS else f"{text[: _MAX_LEGEND_CHARS - 3]}..."


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


def _test(case: CaseRecord) -> str:
    return case.case.partition("[")[0]


def _elsewhere(case: CaseRecord, axes: tuple[str, str]) -> str:
    """The device and the values of all other axes but versions, which tell grids apart."""
    device = [] if "device" in axes else [case.device.name if case.device else "?"]
    # what a case compares may follow from its other versions
    apart = {*axes, "device", *VERSIONS}
    others = [f"{case.axes[name]}" for name in case.axes if name not in apart]
    return ", ".join([*device, *others])


def _value(case: CaseRecord, axis: str) -> str:
    value = case.axes.get(axis)
    if axis == "device" and case.device is not None:
        value = case.device.name
    return _NOT_RUN if value is None else str(value)


def _order(value: str) -> tuple[bool, tuple[int, ...], str]:
    version = QnnVersion.found_in(value)
    return version is None, version.parts if version else (), value
