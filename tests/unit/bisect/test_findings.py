"""The grid as text; and what the pure part of this room may import."""

from __future__ import annotations

import pytest

from harness.bisect.answers import Evidence
from harness.bisect.findings import LEGEND, draw
from harness.bisect.grid_search import GridSearch
from tests.unit.bisect.histories import drive_grid, grid
from tests.unit.test_rooms import ROOT, imported_rooms

# what drives the search, with files and processes, is not listed here
PURE = (
    *("answers", "axis_search", "axis_state", "before_after", "findings", "flaky", "grid_search"),
    *("grid_state", "log", "match", "rate_search", "rates", "search"),
)


def test_a_frontier_is_drawn() -> None:
    spec = grid(3, 3, checks=0)
    truth = {at: "good" if at[0] >= "1.1" and at[1] >= "2.11" else "bad" for at in spec.points()}
    hole = Evidence().plus(("1.2", "2.11"), "untestable")
    search = GridSearch(spec, evidence=hole)
    found, _ = drive_grid(search, truth.__getitem__)  # type: ignore[arg-type]
    assert found.first == (("1.1", "2.11"),)
    assert str(found) == (
        "first good: 1.1 with 2.11; both ort and qnn matter; "
        "6 of 9 pairs were run, an exception among the others would not show"
    )
    lines = draw(spec, found).splitlines()
    assert lines[0].split() == ["ort", "\\", "qnn", "2.10", "2.11", "2.12"]
    assert lines[2].split()[:3] == ["1.1", "(bad)", "good*"]
    assert "n/a (good)" in lines[3]
    assert lines[-1] == LEGEND
    short = grid(3, 3, max_runs=2)
    cut_off, _ = drive_grid(GridSearch(short), truth.__getitem__)  # type: ignore[arg-type]
    assert "?" in draw(short, cut_off)


def test_a_contradiction_is_marked() -> None:
    spec = grid(2, 2, every=True)
    truth = {at: "good" if at[0][-1] == at[1][-1] else "bad" for at in spec.points()}
    found, _ = drive_grid(GridSearch(spec), truth.__getitem__)  # type: ignore[arg-type]
    assert found.kind == "not-monotone"
    assert draw(spec, found).count("!") == 3  # two places and the legend


@pytest.mark.parametrize("name", PURE)
def test_the_core_is_pure(name: str) -> None:
    source = (ROOT / "harness" / "bisect" / f"{name}.py").read_text()
    below = {"bisect", "history", "report", "results", "failure", "qnn", "errors"}
    assert imported_rooms(source) <= below
    assert "import os" not in source
    assert "open(" not in source.replace(".open(", "").replace("def open(", "")
