"""The grid as text; and what the pure part of this room may import."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.search.bisect.answers import Evidence, Point
from harness.search.bisect.findings import (
    LEGEND,
    AxisChange,
    AxisFinding,
    CellFinding,
    GridFinding,
    draw,
    points,
)
from harness.search.bisect.grid_search import GridSearch
from tests.unit.search.bisect.histories import drive_grid, grid

BROKE = AxisChange("regression", "3", "4")
MENDED = AxisChange("fix", "5", "8", ("6", "7"))


@pytest.mark.parametrize(
    ("change", "ends", "where", "text"),
    [
        (BROKE, {"last_good": "3", "first_bad": "4"}, "4", "last good 3, first bad 4"),
        (
            MENDED,
            {"last_bad": "5", "first_good": "8"},
            "one of 6, 7, 8",
            "last bad 5, first good 8 or one of the undecided before it: 6, 7",
        ),
    ],
)
def test_a_change_in_words(change: AxisChange, ends: dict[str, str], where: str, text: str) -> None:
    assert (change.ends, change.where, str(change)) == (ends, where, text)


FOUND = AxisFinding("change", **vars(BROKE))


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (AxisFinding("undecided", notes=("a", "b")), "undecided: a; b"),
        (AxisFinding("no-change", only="1", verdict="bad"), "1 is bad"),
        (AxisFinding("no-change", verdict="bad"), "no change: all are bad"),
        (AxisFinding("no-change", verdict="bad", looked_at=2), "no change: both ends are bad"),
        (
            AxisFinding("no-change", verdict="good", looked_at=3, between=("2",)),
            "no change: all 3 that were run are good; undecided: 2",
        ),
        (
            AxisFinding("no-change", verdict="good", between=("2", "3")),
            "no change: all that could be tested are good; undecided: 2, 3",
        ),
        (
            AxisFinding("no-change", failed={"1": (1, 3), "2": (2, 4)}, least=0.1),
            "no change: 3 of 7 runs failed, and from the oldest to the newest the share "
            "that fails does not change by 10 points or more",
        ),
        (FOUND, "last good 3, first bad 4"),
        (
            replace(FOUND, older=(AxisChange("fix", "0", "1"), AxisChange("fix", "1", "2"))),
            "last good 3, first bad 4; before that last bad 1, first good 2; "
            "before that last bad 0, first good 1",
        ),
        (
            replace(
                FOUND, older=(AxisChange("fix", "1", "2"),), newer=(AxisChange("fix", "5", "6"),)
            ),
            "last good 3, first bad 4; before that last bad 1, first good 2; "
            "then last bad 5, first good 6",
        ),
    ],
)
def test_a_finding_on_one_axis_in_words(finding: AxisFinding, text: str) -> None:
    assert str(finding) == text


def test_the_changes_of_a_finding_are_told_oldest_first() -> None:
    older, newer = AxisChange("fix", "1", "2"), MENDED
    found = replace(FOUND, older=(older,), newer=(newer,))
    assert found.changes == (older, BROKE, newer)
    assert found.ends == BROKE.ends
    assert AxisFinding("range", **vars(MENDED)).changes == (MENDED,)
    nothing = AxisFinding("undecided")
    assert (nothing.ends, nothing.one_change, nothing.runs, nothing.unknown) == ({}, True, 0, 0)
    for missing in ("direction", "before", "after"):
        assert replace(FOUND, **{missing: None}).changes == ()


def test_a_difference_of_rates_is_told_in_points() -> None:
    assert [points(0.1), points(0.256), points(1)] == ["10 points", "26 points", "100 points"]


SPEC = grid(2, 2)
PAIRS: tuple[Point, ...] = tuple(SPEC.points())
RUN, CONCLUDED = CellFinding("bad", "run"), CellFinding("good", "concluded")
HOLE, OPEN = CellFinding(None, "untestable"), CellFinding(None, "open")


def test_a_grid_of_which_nothing_is_known() -> None:
    found = on_a_grid("undecided", *[OPEN] * 4)
    assert (found.runs, found.unknown, found.first, found.mattered) == (0, 0, (), (None, None))


def on_a_grid(kind: Any, *cells: CellFinding, **told: Any) -> GridFinding:
    return GridFinding(kind, SPEC.axes, dict(zip(PAIRS, cells, strict=True)), **told)


@pytest.mark.parametrize(
    ("mattered", "text"),
    [
        ((True, True), "both ort and qnn matter"),
        ((True, False), "only ort matters"),
        ((False, True), "only qnn matters"),
        ((False, False), "neither ort nor qnn matters"),
        ((None, None), "whether ort or qnn matters is not known"),
        ((True, None), "ort matters; whether qnn matters is not known"),
        ((None, True), "qnn matters; whether ort matters is not known"),
        ((False, None), "whether qnn matters is not known"),
        ((None, False), "whether ort matters is not known"),
    ],
)
def test_which_axis_mattered(mattered: tuple[bool | None, bool | None], text: str) -> None:
    assert on_a_grid("frontier", *[RUN] * 4, mattered=mattered).axis_said() == text


ALL_RUN = "4 of 4 pairs were run"
SOME_RUN = "2 of 4 pairs were run, an exception among the others would not show"


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (on_a_grid("no-change", *[RUN] * 4, verdict="bad"), f"no change: all are bad; {ALL_RUN}"),
        (
            on_a_grid("no-change", RUN, CONCLUDED, RUN, HOLE, verdict="good", assumed="x"),
            f"no change: all that were run are good; {SOME_RUN}; assumed, as was told: x",
        ),
        (
            on_a_grid("no-change", *[RUN] * 4, verdict="good", failed_though_good=0),
            f"no change: all count as good; {ALL_RUN}",
        ),
        (
            on_a_grid("no-change", *[RUN] * 4, verdict="good", failed_though_good=2),
            f"no change: all count as good, though 2 runs of them failed; {ALL_RUN}",
        ),
        (on_a_grid("undecided", *[OPEN] * 4, notes=("a", "b")), "undecided: a; b"),
        (on_a_grid("not-monotone", *[RUN] * 4, notes=("a",)), "not monotone: a"),
    ],
)
def test_a_finding_on_a_grid_in_words(finding: GridFinding, text: str) -> None:
    assert str(finding) == text


@pytest.mark.parametrize(
    ("newer", "first", "what"),
    [
        (None, PAIRS[3], "first good"),
        ((True, True), PAIRS[3], "first good"),
        ((False, False), PAIRS[0], "first bad"),
        ((True, False), PAIRS[3], "good beside the bad ones"),
        ((False, True), PAIRS[3], "good beside the bad ones"),
    ],
)
@pytest.mark.parametrize(("kind", "start"), [("frontier", ""), ("partial", "as far as known, ")])
def test_the_frontier_in_words(
    newer: tuple[bool, bool] | None, first: Point, what: str, kind: str, start: str
) -> None:
    edges: dict[str, Any] = {"edge_good": PAIRS[3:], "edge_bad": PAIRS[:1], "newer": newer}
    found = on_a_grid(kind, RUN, RUN, CONCLUDED, CONCLUDED, mattered=(True, False), **edges)
    assert found.first == (first,)
    said = f"{start}{what}: {' with '.join(first)}; only ort matters; {SOME_RUN}"
    assert str(found) == said
    none = replace(found, edge_good=(), edge_bad=())
    assert str(none) == said.replace(" with ".join(first), "none")


def test_each_cell_is_drawn_as_what_it_is() -> None:
    cells = (RUN, CONCLUDED, OPEN, CellFinding("good", "untestable"))
    found = on_a_grid("partial", *cells, edge_good=PAIRS[1:2], edge_bad=PAIRS[:1])
    assert draw(SPEC, found).splitlines() == [
        "ort \\ qnn  2.10  2.11",
        "1.0        bad*  (good)*",
        "1.1        ?     n/a (good)",
        LEGEND,
    ]
    odd = on_a_grid("not-monotone", RUN, RUN, HOLE, OPEN, witnesses=PAIRS[:1], edge_good=PAIRS[:2])
    assert [line.split()[1:] for line in draw(SPEC, odd).splitlines()[1:3]] == [
        ["bad!", "bad*"],
        ["n/a", "?"],
    ]


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
