"""What verdicts on a grid imply: by hand on small grids, and over all frontiers by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from harness.search.bisect.answers import Evidence, GoodOrBad, RunAnswer, Tally
from harness.search.bisect.flaky import errors_at_worst
from harness.search.bisect.grid_state import (
    Bools,
    Cell,
    GridState,
    GridWay,
    Newer,
    cells_in,
    edge,
    opposite,
    steps,
    turned,
    worst_case,
)
from tests.unit.search.bisect.histories import grid, told_grid

UP, DOWN, RIGHT_UP, LEFT_UP = (True, True), (False, False), (True, False), (False, True)


def mask(*rows: str) -> Bools:
    return np.array([[one == "x" for one in row] for row in rows])


@pytest.mark.parametrize(
    ("newer", "rows"),
    [
        (UP, [[0, 1, 2], [3, 4, 5]]),
        (DOWN, [[5, 4, 3], [2, 1, 0]]),
        (RIGHT_UP, [[2, 1, 0], [5, 4, 3]]),
        (LEFT_UP, [[3, 4, 5], [0, 1, 2]]),
    ],
)
def test_a_grid_is_turned_and_back(newer: Newer, rows: list[list[int]]) -> None:
    numbers = np.arange(6).reshape(2, 3)
    assert turned(numbers, newer).tolist() == rows
    assert turned(turned(numbers, newer), newer).tolist() == numbers.tolist()
    way = GridWay(newer, mask("...", "..."), mask("...", "..."))
    for cell in itertools.product(range(2), range(3)):
        assert rows[way.cell(cell)[0]][way.cell(cell)[1]] == numbers[cell]
    assert opposite(newer) == (not newer[0], not newer[1])
    assert way.same_way() == (newer in (UP, DOWN))


@pytest.mark.parametrize(
    ("newer", "rows"),
    [
        (UP, ["..x", ".x.", "..."]),
        (DOWN, ["...", "...", "..x"]),
        (RIGHT_UP, ["..x", "...", "..."]),
        (LEFT_UP, ["...", "...", ".x."]),
    ],
)
def test_the_edge_of_what_grows(newer: Newer, rows: list[str]) -> None:
    assert cells_in(edge(mask("..x", ".xx", ".xx"), newer)) == cells_in(mask(*rows))


def test_cells_are_told_row_by_row_and_how_far_they_are() -> None:
    assert cells_in(mask(".x", "xx")) == [(0, 1), (1, 0), (1, 1)]
    assert [steps((1, 1), other) for other in ((1, 1), (0, 3), (3, 0))] == [0, 3, 3]


@pytest.mark.parametrize(
    ("rows", "runs"),
    [(["...", "..."], 0), (["..x", "..."], 1), (["xxx", "xxx"], 4), (["x..", "..x"], 3)],
)
def test_how_many_runs_decide_what_is_left(rows: list[str], runs: int) -> None:
    assert worst_case(mask(*rows)) == runs


@pytest.mark.parametrize(
    ("newer", "verdict", "left"),
    [
        (UP, "good", ["xxx", "x..", "x.."]),
        (UP, "bad", ["..x", "..x", "xxx"]),
        (DOWN, "good", ["..x", "..x", "xxx"]),
        (DOWN, "bad", ["xxx", "x..", "x.."]),
        (RIGHT_UP, "good", ["xxx", "..x", "..x"]),
        (LEFT_UP, "good", ["x..", "x..", "xxx"]),
    ],
)
def test_what_one_more_verdict_leaves_open(
    newer: Newer, verdict: GoodOrBad, left: list[str]
) -> None:
    nothing = mask("...", "...", "...")
    way, unknown = GridWay(newer, nothing, nothing), mask("xxx", "xxx", "xxx")
    assert cells_in(way.after(unknown, (1, 1), verdict)) == cells_in(mask(*left))
    assert unknown.all()


SOME_TOLD = (
    *(["???", "???"], ["??g", "b??"], ["?b?", "??g", "???"]),
    *(["?", "?", "?"], ["?g?"], ["b?"]),
)
FITTING = [
    (rows, newer)
    for rows in SOME_TOLD
    for newer in (UP, DOWN, RIGHT_UP, LEFT_UP)
    if told_grid(*rows).way(newer).fits()
]


@pytest.mark.parametrize(("rows", "newer"), FITTING)
def test_how_likely_a_cell_is_good_is_counted_over_all_frontiers(
    rows: list[str], newer: Newer
) -> None:
    """The first good column of each row never grows; each further corner is a tenth as likely."""
    own = [row[:: 1 if newer[1] else -1] for row in rows[:: 1 if newer[0] else -1]]
    width = len(own[0])
    total, good = 0.0, np.zeros((len(own), width))
    for starts in itertools.product(range(width + 1), repeat=len(own)):
        told = dict.fromkeys("gb", False)
        for row, start in zip(own, starts, strict=True):
            told["g"] |= "g" in row[:start]
            told["b"] |= "b" in row[start:]
        if any(told.values()) or list(starts) != sorted(starts, reverse=True):
            continue
        corners = (starts[0] < width) + sum(a > b for a, b in itertools.pairwise(starts))
        total += 0.1**corners
        good += 0.1**corners * (np.arange(width) >= np.array(starts)[:, None])
    chances, log = told_grid(*rows).way(newer).chances_good()
    assert turned(chances, newer) == pytest.approx(good / total)
    assert log == pytest.approx(math.log(total))


def test_what_fits() -> None:
    fitting = told_grid("b?", "?g").way(UP)
    assert (fitting.fits(), cells_in(fitting.known())) == (True, [(0, 0), (1, 1)])
    assert (cells_in(fitting.good), cells_in(fitting.bad)) == ([(1, 1)], [(0, 0)])
    contrary = told_grid("b?", "?g").way(DOWN)
    assert not contrary.fits()
    assert contrary.good.all()
    assert contrary.bad.all()


@pytest.mark.parametrize(
    ("rows", "newer", "ways"),
    [
        (["b?", "?g"], None, [UP, RIGHT_UP, LEFT_UP]),
        (["b?", "?g"], UP, [UP]),
        (["b?", "?g"], DOWN, [UP]),
        (["b?", "?g"], LEFT_UP, [RIGHT_UP, LEFT_UP]),
        (["bg", "gb"], None, []),
        (["??", "?g"], None, [UP, DOWN, RIGHT_UP, LEFT_UP]),
        (["bb", "gg"], None, [UP, RIGHT_UP]),
    ],
)
def test_the_ways_that_fit_those_alike_on_both_axes_first(
    rows: list[str], newer: Newer | None, ways: list[Newer]
) -> None:
    # RIGHT_UP: good grows with newer rows and with older columns
    assert [way.newer for way in told_grid(*rows, newer=newer).ways()] == ways


def test_only_what_all_ways_say_is_agreed() -> None:
    grid_ = told_grid("b?", "?g")
    good, bad = grid_.agreed(grid_.ways())
    assert (cells_in(good), cells_in(bad)) == ([(1, 1)], [(0, 0)])
    good, bad = grid_.agreed([])
    assert not good.any()
    assert not bad.any()


@pytest.mark.parametrize(
    ("rows", "newer", "ends"),
    [
        (["???", "???"], None, [(0, 0), (1, 2), (0, 2), (1, 0)]),
        (["???", "???"], UP, [(0, 0), (1, 2)]),
        (["???", "???"], DOWN, [(0, 0), (1, 2)]),
        (["???", "???"], RIGHT_UP, [(0, 2), (1, 0)]),
        (["?"], None, [(0, 0)]),
        (["?", "?"], None, [(0, 0), (1, 0)]),
        (["n??", "???"], UP, [(0, 1), (1, 2)]),
        (["nn", "nn"], None, []),
    ],
)
def test_the_ends_are_the_testable_cells_nearest_to_the_corners(
    rows: list[str], newer: Newer | None, ends: list[Cell]
) -> None:
    assert told_grid(*rows, newer=newer).ends() == ends


@pytest.mark.parametrize(
    ("rows", "can"),
    [
        (["???", "?n?", "???"], True),
        (["?n?", "???"], True),
        (["n??", "???"], False),
        (["??n", "???"], False),
        (["???", "n??"], False),
        (["???", "??n"], False),
        (["n"], False),
    ],
)
def test_whether_all_corners_can_be_tested(rows: list[str], can: bool) -> None:
    assert told_grid(*rows).corners_testable() is can


@pytest.mark.parametrize(
    ("rows", "newer", "pair"),
    [
        (["g?b"], UP, ((0, 0), (0, 2))),
        (["b?g"], DOWN, ((0, 2), (0, 0))),
        (["g", "b"], UP, ((0, 0), (1, 0))),
        (["gb?", "??b"], UP, ((0, 0), (0, 1))),
        (["g??", "?gb"], UP, ((1, 1), (1, 2))),
        (["?b", "g?"], LEFT_UP, ((1, 0), (0, 1))),
        (["?g??", "b??b"], UP, ((0, 1), (1, 3))),
        (["?b", "g?", "??", "?b"], UP, ((1, 0), (3, 1))),
    ],
)
def test_two_answers_that_contradict_a_way_are_the_nearest(
    rows: list[str], newer: Newer, pair: tuple[Cell, Cell]
) -> None:
    assert told_grid(*rows).witnesses(newer) == pair


def test_what_is_asked_and_what_it_may_take() -> None:
    begun = told_grid("gb", "n?", repeat=2)
    assert (dict(begun.verdicts), begun.begun) == ({(0, 1): "bad"}, ((0, 0),))
    assert cells_in(begun.testable) == [(0, 0), (0, 1), (1, 1)]
    assert begun.holes == {(1, 0)}
    assert begun.ask((1, 1), "why").number == 4
    assert begun.ask((1, 0), "why").at == ("1.1", "2.10")
    assert begun.limit() == 8, "each of four pairs twice: one that is lost changes nothing"
    assert told_grid("gbb", "nbb", "bbb").limit() == 9
    assert told_grid("?" * 8, "n" + "?" * 7).limit() == 2 + 8 + 4 + 1
    assert begun.confidence() is None


def answered(good: int, bad: int) -> GridState:
    """One of two pairs answered so often."""
    spec = grid(1, 2, repeat="auto")
    evidence = Evidence()
    answers: list[RunAnswer] = [*["good"] * good, *["bad"] * bad]
    for answer in answers:
        evidence = evidence.plus(("1.0", "2.10"), answer)
    return GridState(spec, evidence)


def test_a_pair_that_tells_nothing_after_two_hundred_runs_is_a_hole() -> None:
    assert answered(100, 99).holes == frozenset()
    assert answered(100, 99).begun == ((0, 0),)
    assert answered(100, 100).holes == {(0, 0)}
    assert answered(100, 100).begun == ()
    assert answered(0, 200).holes == frozenset(), "that one tells a lot"


def test_flaky_answers_settle_a_pair_once_the_worst_rates_allow_it() -> None:
    for answers, verdict in (((40, 0), "good"), ((0, 40), "bad")):
        found = answered(*answers)
        assert dict(found.verdicts) == {(0, 0): verdict}
        confidence = found.confidence()
        assert confidence is not None
        assert 1 - 0.01 / 7 <= confidence < 1
    assert answered(0, 0).verdicts == {}
    assert answered(0, 0).confidence() == 1
    assert answered(1, 0).verdicts == {}


@pytest.mark.parametrize(("share", "settled"), [(1.01, True), (0.99, False)])
def test_each_cell_has_a_share_of_the_error_that_is_allowed(share: float, settled: bool) -> None:
    """One of rows + columns + 4."""
    at, tally = ("1.0", "2.10"), Tally(good=12)
    (error,) = errors_at_worst([tally])
    spec = grid(1, 2, repeat="auto", confidence=1 - 7 * error * share)
    assert (GridState(spec, Evidence({at: tally})).verdicts != {}) is settled


def test_what_could_not_be_tested_once_tells_nothing() -> None:
    evidence = Evidence({("1.0", "2.10"): Tally(bad=1, untestable=1)})
    found = GridState(grid(1, 2), evidence)
    assert (dict(found.verdicts), found.begun, found.holes) == ({}, (), {(0, 0)})
