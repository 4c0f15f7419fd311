"""Grids of two axes out of records."""

from __future__ import annotations

from harness.report.summary import grid_lines, grids
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


def test_devices_have_grids_of_their_own() -> None:
    shown_grids = grids([case("1.0", "1.0"), case("1.0", "1.0", device="b"), case("2.0", "1.0")])
    assert [grid.title for grid in shown_grids] == ["t on sim, htp", "t on b, htp"]
    assert shown_grids[0].rows == ("1.0", "2.0")
    assert shown_grids[0].label("9", "1.0") == "-"
