"""Grids of two axes out of records: cells, heads and legend."""

from typing import Any

import pytest

from harness.diagnosis.error_record import ErrorRecord, OrtCode
from harness.report.summary import asked_grids, code_of, grid_lines, grids
from harness.results.record import CaseRecord
from tests.unit.results.records import DEVICE, error, record


def case(
    compiler: str, qnn: str, *, device: str = "sim", test: str = "t", **more: object
) -> CaseRecord:
    fields: dict[str, object] = {
        "case": f"suites/test_x.py::{test}[{device}-{qnn}-by-{compiler}]",
        "axes": {"backend": "htp", "qnn": qnn, "ort": None, "compiler": compiler},
        "device": DEVICE | {"name": device},
        "measurements": {"grid": ["compiler", "qnn"]},
    }
    return record(**(fields | more))


def newer(compiler: str, qnn: str) -> CaseRecord:
    record_of_error = error(code=5000, message="Using newer context binary on old SDK\nmore")
    return case(compiler, qnn, outcome="failed", error=record_of_error)


def test_a_grid() -> None:
    cases = [
        case("2.9.0", "2.9.0"),
        newer("2.10.0", "2.9.0"),
        case("2.9.0", "2.10.0"),
        case("2.10.0", "2.10.0", outcome="hung", measurements={}),
    ]
    (grid,) = grids([*cases, case("2.9.0", "2.9.0", test="other", measurements={})])
    assert list(grid_lines(grid)) == [
        "t on sim, htp: compiler down, qnn across",
        "  compiler  2.9.0  2.10.0",
        "  2.9.0     ok     ok",
        "  2.10.0    5000   hung",
    ]


def test_a_right_refusal_is_no_failure_and_keeps_its_code() -> None:
    axes = {"grid": ["compiler", "qnn"], "refused_code": 5005}
    cases = [case("1.0", "1.0", measurements=axes), case("1.0", "2.0")]
    (grid,) = grids(cases)
    assert [grid.label("1.0", version) for version in grid.columns] == ["ok (5005)", "ok"]


def test_devices_as_an_axis_are_compared_where_there_are_several() -> None:
    def on(device: str, compiler: str) -> CaseRecord:
        return case(compiler, "2.9.0", device=device, measurements={"grid": ["compiler", "device"]})

    (alone,) = grids([on("sim", "2.9.0"), on("sim", "2.10.0")])
    assert not alone.compares
    (both,) = grids([on("sim", "2.9.0"), on("board", "2.9.0")])
    assert both.compares
    assert both.columns == ("board", "sim")
    (versions,) = grids([case("2.9.0", "2.9.0"), case("2.10.0", "2.9.0")])
    assert versions.compares
    (only_grid,) = grids([case("2.9.0", "2.9.0")])
    assert not only_grid.compares


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
    apart = grids([case("1.0", "1.0"), case("1.0", "1.0", device="b"), case("2.0", "1.0")])
    assert [grid.title for grid in apart] == ["t on sim, htp", "t on b, htp"]
    assert (apart[0].rows, apart[0].label("9", "1.0")) == (("1.0", "2.0"), "-")
