"""The cells, heads and legend of a grid, for any cases."""

from __future__ import annotations

from typing import Any

import pytest

from harness.diagnosis.error import ErrorRecord, OrtCode
from harness.report.document import aligned
from harness.report.summary import asked_grids, code_of, grids
from harness.results.record import CaseRecord
from tests.unit.report.test_grid import case
from tests.unit.results.records import DEVICE, error, record


def failing(
    code: int | None, message: str = "it broke", ort: OrtCode | None = None, **more: Any
) -> CaseRecord:
    error_record = ErrorRecord.of(api="x", code=code, message=message, ort=ort)
    return case("1.0", "1.0", **({"outcome": "failed", "error": error_record} | more))


@pytest.mark.parametrize(
    ("case", "label", "code"),
    [
        (case("1.0", "1.0"), "ok", None),
        (failing(1002), "1002", "1002"),
        (failing(0), "outputs", "outputs"),
        (failing(None), "failed", None),
        (failing(None, ort=OrtCode(code=3, name="NO_SUCHFILE")), "NO_SUCHFILE", "NO_SUCHFILE"),
        (failing(1002, outcome="crashed"), "crashed", "1002"),
        (failing(None, outcome="unsupported", cause=None), "unsupported", None),
        (case("1.0", "1.0", outcome="skipped", error=None, cause=None), "skipped", None),
    ],
)
def test_a_cell_is_a_code_or_an_outcome(case: CaseRecord, label: str, code: str | None) -> None:
    (grid,) = grids([case])
    assert (grid.label("1.0", "1.0"), code_of(case)) == (label, code)


def test_rows_are_in_order_of_versions_and_what_is_none_comes_last() -> None:
    cases = [case(version, "1.0") for version in ("2.10.0", "own", "2.9.0", "none")]
    cases.append(case("x", "1.0", axes={"backend": "htp", "qnn": "1.0", "compiler": None}))
    (grid,) = grids(cases)
    assert grid.rows == ("2.9.0", "2.10.0", "-", "none", "own")
    assert [grid.label(row, "1.0") for row in grid.rows] == ["ok"] * 5


def test_other_axes_but_versions_tell_grids_apart_and_devices_may_be_an_axis() -> None:
    def of(device: str | None, name: str) -> CaseRecord:
        return record(
            case=f"test_x.py::t[{device}-{name}]",
            axes={"which": name, "qnn": "2.0", "ort": "1.0", "compiler": name, "device": "any"},
            device=None if device is None else DEVICE | {"name": device},
            outcome="passed" if device else "unsupported",
            error=None if device else error(),
            cause=None,
            measurements={"grid": ["device", "qnn"]},
        )

    shown_grids = grids([of("a", "x"), of("b", "x"), of("a", "y"), of(None, "y")])
    assert [(entry.title, entry.rows) for entry in shown_grids] == [
        ("t on x", ("a", "b")),
        ("t on y", ("a", "any")),
    ]
    assert asked_grids([of("a", "x"), of("b", "x"), record()]) == [
        ("context_count", "device", "qnn")
    ]
    nowhere = of(None, "y").model_copy(update={"measurements": {"grid": ["which", "qnn"]}})
    assert [grid.title for grid in grids([nowhere])] == ["t on ?"]


def test_columns_stand_below_each_other() -> None:
    assert aligned([["a", "bbb", "c"], ["aaaa", "b", ""]]) == ["a     bbb  c", "aaaa  b"]
