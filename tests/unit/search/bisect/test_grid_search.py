"""Two axes: every monotone grid up to 5 x 6, holes, contradictions, flaky answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from harness.search.bisect import grid_search
from harness.search.bisect.answers import Evidence, Point, Question, RunAnswer, Stopped, Tally
from harness.search.bisect.findings import CellFinding, GridFinding
from harness.search.bisect.flaky import Floats
from harness.search.bisect.grid_search import GridSearch
from harness.search.bisect.grid_state import GridState, GridWay
from harness.search.bisect.search import GridSpec
from tests.properties import reached, reaches
from tests.unit.search.bisect.histories import drive_grid, grid, told_grid

Truth = dict[Point, RunAnswer]
ODD: Point = ("1.2", "2.11")


def truths(spec: GridSpec, *, older: tuple[bool, bool] = (False, False)) -> Iterator[Truth]:
    """Every grid on which good grows (towards older candidates where told)."""
    columns = len(spec.columns)
    for first_good in itertools.combinations_with_replacement(
        range(columns, -1, -1), len(spec.rows)
    ):
        yield truth_of(spec, first_good, older)


def truth_of(spec: GridSpec, first_good: tuple[int, ...], older: tuple[bool, bool]) -> Truth:
    rows = spec.rows[::-1] if older[0] else spec.rows
    columns = spec.columns[::-1] if older[1] else spec.columns
    return {
        (row, column): "good" if j >= start else "bad"
        for row, start in zip(rows, first_good, strict=True)
        for j, column in enumerate(columns)
    }


def minimal(spec: GridSpec, truth: Truth, verdict: RunAnswer) -> set[Point]:
    """By brute force: the places with this verdict of which no older neighbour has it."""
    found = set()
    for (i, row), (j, column) in itertools.product(enumerate(spec.rows), enumerate(spec.columns)):
        before = [(spec.rows[i - 1], column)] if i else []
        before += [(row, spec.columns[j - 1])] if j else []
        if truth[row, column] == verdict and all(truth[at] != verdict for at in before):
            found.add((row, column))
    return found


OLDER = ((False, False), (True, True), (True, False), (False, True))


def require_right_within_the_bound(spec: GridSpec, truth: Truth) -> int:
    """Whichever way the axes go, and nobody said so: the whole truth, and how many runs it took."""
    rows, columns = spec.rows, spec.columns
    found, asked = drive_grid(GridSearch(spec), truth.__getitem__)
    assert len(asked) <= min(len(rows) * len(columns), len(rows) + len(columns) + 4)
    assert len(asked) == len(set(asked)) == found.runs
    assert {at: cell.verdict for at, cell in found.cells.items()} == truth
    if len(set(truth.values())) == 1:
        assert (found.kind, found.verdict) == ("no-change", truth[asked[0]])
        return len(asked)
    assert found.kind == "frontier"
    assert f"{len(asked)} of {len(truth)} pairs were run" in str(found)
    assert found.newer is not None
    if found.newer[0] == found.newer[1]:
        grows: RunAnswer = "good" if found.newer[0] else "bad"
        assert set(found.first) == minimal(spec, truth, grows)
    assert found.mattered[0] == any(len({truth[r, c] for r in rows}) > 1 for c in columns)
    assert found.mattered[1] == any(len({truth[r, c] for c in columns}) > 1 for r in rows)
    return len(asked)


@pytest.mark.parametrize("rows", range(1, 5))
@pytest.mark.parametrize("columns", range(1, 5))
@pytest.mark.parametrize("older", OLDER)
def test_every_monotone_grid_whichever_way_the_axes_go(
    rows: int, columns: int, older: tuple[bool, bool]
) -> None:
    spec = grid(rows, columns)
    for truth in truths(spec, older=older):
        require_right_within_the_bound(spec, truth)


@pytest.mark.parametrize("shape", [(5, 6), (13, 5), (4, 11)])
@pytest.mark.parametrize("older", OLDER)
def test_some_of_the_greater_grids(shape: tuple[int, int], older: tuple[bool, bool]) -> None:
    chance = random.Random(f"{shape} {older}")
    spec = grid(*shape)
    for _ in range(8):
        starts = tuple(sorted((chance.randint(0, shape[1]) for _ in range(shape[0])), reverse=True))
        require_right_within_the_bound(spec, truth_of(spec, starts, older))
        straight = truth_of(spec, (chance.randint(1, shape[1] - 1),) * shape[0], older)
        require_right_within_the_bound(spec, straight)


def test_the_grids_that_were_once_answered_wrongly() -> None:
    """Newer rows cure while newer columns break, and the oldest and newest pair differ."""
    for drawn in (("gbb", "ggb"), ("bggg", "bbgg"), ("gggg", "ggbb", "bbbb")):
        spec = grid(len(drawn), len(drawn[0]))
        letters = [letter for line in drawn for letter in line]
        said = {"g": "good", "b": "bad"}
        truth: Truth = {
            at: said[letter]  # type: ignore[misc]
            for at, letter in zip(spec.points(), letters, strict=True)
        }
        require_right_within_the_bound(spec, truth)


def test_directions_that_were_told_are_named_as_an_assumption() -> None:
    kinds = set()
    for truth in truths(grid(3, 4), older=(False, True)):
        found, _ = drive_grid(GridSearch(grid(3, 4, newer=(True, True))), truth.__getitem__)
        right = {at: cell.verdict for at, cell in found.cells.items()} == truth
        kinds.add(found.kind)
        assert right or "as was told" in str(found)
        if found.kind == "frontier":
            assert "assumed, as was told: newer ort and newer qnn are both better" in str(found)
    assert "not-monotone" in kinds
    free = drive_grid(GridSearch(grid(3, 4)), truth_of(grid(3, 4), (3, 2, 1), OLDER[0]).__getitem__)
    assert free[0].assumed is None


@pytest.mark.parametrize("newer", [(True, False), (False, True)])
@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (4, 3)])
def test_directions_that_were_told(shape: tuple[int, int], newer: tuple[bool, bool]) -> None:
    older = (not newer[0], not newer[1])
    told = grid(*shape, newer=newer)
    for truth in truths(told, older=older):
        found, asked = drive_grid(GridSearch(told), truth.__getitem__)
        assert len(asked) <= sum(shape) + 4
        assert {at: cell.verdict for at, cell in found.cells.items()} == truth


def test_too_few_runs_to_tell_the_directions_say_so() -> None:
    spec = grid(4, 6, max_runs=5)
    truth = truth_of(spec, (4, 4, 3, 3), (True, False))
    found, asked = drive_grid(GridSearch(spec), truth.__getitem__)
    assert (found.kind, len(asked)) == ("partial", 5)
    assert any("on which axes newer is better" in note for note in found.notes)
    assert all(cell.verdict in (None, truth[at]) for at, cell in found.cells.items())


def has_holed_corner(spec: GridSpec, holes: frozenset[Point]) -> bool:
    corners = itertools.product((spec.rows[0], spec.rows[-1]), (spec.columns[0], spec.columns[-1]))
    return any(corner in holes for corner in corners)


@reaches(0.3)
@settings(deadline=None)
@given(st.data())
def test_holes_and_costs(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    spec = grid(rows, columns, repeat=data.draw(st.integers(1, 2)))
    starts = data.draw(st.lists(st.integers(0, columns), min_size=rows, max_size=rows))
    older = data.draw(st.sampled_from([(False, False), (True, True)]))
    truth = truth_of(spec, tuple(sorted(starts, reverse=True)), older)
    places = sorted(truth)
    holes = data.draw(st.frozensets(st.sampled_from(places), max_size=len(places)))
    world = truth | dict.fromkeys(holes, "untestable")
    costs = data.draw(st.dictionaries(st.sampled_from(places), st.floats(0, 1e3)))
    search = GridSearch(spec, cost=lambda at: costs.get(at, 1.0))
    found, asked = drive_grid(search, world.__getitem__)
    met = sum(world[at] == "untestable" for at in asked)
    assert len(asked) <= search.spec.bound().limit(wasted=met)
    left = {at: truth[at] for at in places if at not in holes}
    if found.kind == "undecided":
        assert not left
        return
    assert found.kind != "not-monotone" or has_holed_corner(spec, holes)
    if found.kind == "frontier":
        reached()
        assert {at: found.cells[at].verdict for at in left} == left
        for at in holes:
            assert found.cells[at].verdict in (None, truth[at])


def test_a_grid_that_is_not_monotone_is_told_by_the_checks_or_by_every_pair() -> None:
    spec = grid(4, 5)
    truth = truth_of(spec, (3, 3, 3, 3), (False, False))
    truth[ODD] = "good"
    found, asked = drive_grid(GridSearch(spec), truth.__getitem__)
    assert (found.kind, found.edge_good, found.confidence) == ("not-monotone", (), None)
    assert ODD in found.witnesses
    assert len(asked) <= 13
    every, all_asked = drive_grid(GridSearch(grid(4, 5, every=True)), truth.__getitem__)
    assert (every.kind, len(all_asked)) == ("not-monotone", 20)
    assert {at: cell.verdict for at, cell in every.cells.items()} == truth
    crossed = {
        at: "good" if at in {("1.0", "2.10"), ("1.1", "2.11")} else "bad"
        for at in grid(2, 2).points()
    }
    assert drive_grid(GridSearch(grid(2, 2)), crossed.__getitem__)[0].kind == "not-monotone"  # type: ignore[arg-type]


def test_alike_corners_with_an_odd_one_within() -> None:
    truth: Truth = dict.fromkeys(grid(5, 5).points(), "good")
    truth["1.2", "2.12"] = "bad"
    found, asked = drive_grid(GridSearch(grid(5, 5)), truth.__getitem__)
    assert (found.kind, found.witnesses, len(asked)) == ("not-monotone", (("1.2", "2.12"),), 6) or (
        found.kind == "no-change" and "6 of 25 pairs were run" in str(found)
    )


@pytest.mark.parametrize("start", [(6, 6, 6, 6), (0, 0, 0, 0), (6, 4, 4, 1), (2, 2, 2, 2)])
def test_every_pair_agrees_with_the_search(start: tuple[int, ...]) -> None:
    truth = truth_of(grid(4, 6), start, (False, False))
    found, _ = drive_grid(GridSearch(grid(4, 6)), truth.__getitem__)
    every, _ = drive_grid(GridSearch(grid(4, 6, every=True)), truth.__getitem__)
    assert (found.kind, set(found.first), found.mattered) == (
        every.kind,
        set(every.first),
        every.mattered,
    )


def test_flaky_answers_on_a_grid() -> None:
    spec = grid(4, 5, repeat="auto")
    truth = truth_of(spec, (5, 2, 2, 0), (False, False))
    right = 0
    for seed in range(8):
        chance = random.Random(seed)

        def shown(at: Point, chance: random.Random = chance) -> RunAnswer:
            hidden = truth[at] == "bad" and chance.random() < 0.25
            return "good" if hidden else truth[at]

        search = GridSearch(spec)
        found, asked = drive_grid(search, shown)
        assert len(asked) <= search.spec.bound().runs
        right += {at: cell.verdict for at, cell in found.cells.items()} == truth
        assert found.kind != "frontier" or (found.confidence or 0) > 0.99
    assert right == 8


def after(*rows: str, **given: Any) -> Question | GridFinding | Stopped:
    known = told_grid(*rows, **given)
    return GridSearch(known.spec, evidence=known.evidence).next()


AGAIN = "again: one answer is not enough"
CHECK = "check what was concluded"
BEYOND = "all are alike, but the corners cannot be tested"


@pytest.mark.parametrize(
    ("rows", "given", "at", "why"),
    [
        (["???", "???"], {}, (0, 0), "one end of ort and qnn"),
        (["g??", "???"], {}, (1, 2), "one end of ort and qnn"),
        (["g??", "??g"], {}, (0, 2), "the ends are alike: do the axes differ?"),
        (["g??", "??b"], {}, (0, 2), "which axis does it?"),
        (["g?b", "??b"], {}, (1, 0), "which axis does it?"),
        (["??g", "???"], {"newer": (True, False)}, (1, 0), "one end of ort and qnn"),
        (["n??", "??g"], {}, (0, 1), "one end of ort and qnn"),
        (["g?b", "g?b"], {}, (1, 1), "2 pairs are open"),
        (["b??", "??g"], {"newer": (True, True)}, (0, 2), "4 pairs are open"),
        (["b?g", "b?g"], {"repeat": 2}, (1, 2), "one end of ort and qnn"),
        (["bgg", "bbb"], {"repeat": 2}, (0, 2), "the ends are alike: do the axes differ?"),
        (["g?g", "???", "g?g"], {}, (1, 1), CHECK),
        (["g?g", "?g?", "g?g"], {}, (2, 1), CHECK),
        (["g?g", "?b?", "g?g"], {}, (2, 1), CHECK),
        (["g?g", "?g?", "g?g"], {"checks": 1}, None, "no-change"),
        (["g?g", "?g?", "ggg"], {}, None, "no-change"),
        (["g?g", "?g?", "ggg"], {"checks": 3}, (1, 2), CHECK),
        (["g?g", "???", "g?g"], {"checks": 0}, None, "no-change"),
        (["ng?", "???", "??g"], {"newer": (True, True)}, (2, 0), BEYOND),
        (["ngg", "??g"], {"newer": (True, True)}, (1, 0), BEYOND),
        (["ngg", "g?g"], {"newer": (True, True)}, (1, 1), CHECK),
        (["gng", "??g"], {"newer": (True, True)}, (1, 1), CHECK),
        # at most rows + columns + 4 pairs are asked: twelve of fifteen
        (["bbbbb", "bbb?b", "b???b"], {"repeat": 2}, (2, 3), CHECK),
        (["bbbbb", "bbbbb", "b???b"], {"repeat": 2}, None, "no-change"),
        (["nbbbb", "?bbbb", "?bb?b"], {"repeat": 2, "newer": (True, True)}, (2, 0), BEYOND),
        (["nbbbb", "?bbbb", "?bbbb"], {"repeat": 2, "newer": (True, True)}, None, "no-change"),
        (["b??", "?g?", "??G"], {"repeat": 2, "newer": (True, True)}, (1, 1), AGAIN),
        (["b??", "?Gg", "??G"], {"repeat": 2, "newer": (True, True)}, (0, 2), "4 pairs are open"),
        (["Ggb"], {"repeat": 2}, (0, 1), AGAIN),
        # while several directions fit, those ends that tell them come first
        (["b?g", "b?g"], {}, (0, 1), "2 pairs are open"),
        (["b?g", "???", "b?g"], {}, (0, 1), "3 pairs are open"),
        (["ggg", "??n", "b?b"], {}, (1, 0), "2 pairs are open"),
        (["b?b", "?b?", "g?g"], {}, (1, 2), "2 pairs are open"),
        (["gbbb", "?g?b", "g???", "gggb"], {}, (1, 2), "2 pairs are open"),
        # whatever it answers, the runs that are left must do
        (["bbg", "??g"], {"newer": (True, True)}, (1, 1), "2 pairs are open"),
        (["b?g", "??n"], {"newer": (True, True)}, (0, 1), "3 pairs are open"),
        (["g??", "n?b", "?bb"], {"newer": (True, True)}, (0, 2), "4 pairs are open"),
        (["b??b", "?b?b", "g???", "g?g?"], {"newer": (True, False)}, (1, 0), "5 pairs are open"),
        (["?g", "g?"], {"newer": (True, False), "checks": 0}, None, "no-change"),
        (["g?g", "n?g"], {"checks": 0}, None, "no-change"),
        (["g??", "?gg", "?gn"], {"newer": (True, True), "checks": 0}, None, "no-change"),
        (["nbb", "g?g", "??n"], {"newer": (True, True), "checks": 0}, None, "frontier"),
        (["nnn", "nnn"], {}, None, "undecided"),
        (["nnn", "nnn"], {"every": True}, None, "undecided"),
        (["g?", "??"], {"every": True}, (0, 1), "every pair is run, 3 are left"),
        (["gg", "g?"], {"every": True}, (1, 1), "every pair is run, 1 are left"),
        (["gg", "gn"], {"every": True}, None, "no-change"),
        (["gg", "bb"], {"every": True}, None, "frontier"),
        (["bg", "gb"], {"every": True}, None, "not-monotone"),
    ],
)
def test_what_is_asked_next_and_why(
    rows: list[str], given: dict[str, Any], at: tuple[int, int] | None, why: str
) -> None:
    step = after(*rows, **given)
    if at is None:
        assert isinstance(step, GridFinding)
        assert step.kind == why
        return
    known = told_grid(*rows, **given)
    assert step == Question(known.point(at), known.evidence.runs + 1, why)


ALONE = (
    "neither does any other direction of the axes fit all answers. Nothing was concluded; run "
    "every pair to see the grid"
)
AS_TOLD = "the axes do not go as was told. Nothing was concluded; run every pair to see the grid"
LIMIT = "the limit of {} runs was reached"
MORE = "it is not known yet on which axes newer is better; to tell it lets more follow"


@pytest.mark.parametrize(
    ("rows", "given", "kind", "notes", "witnesses"),
    [
        (
            ["g?g", "?b?", "ggg"],
            {},
            "not-monotone",
            "all corners are alike, but 1.1 with 2.11 is bad",
            ((1, 1),),
        ),
        (
            ["gb", "bg"],
            {"newer": (False, False)},
            "not-monotone",
            "the ends, as was told of them, are alike, but 1.0 with 2.11 is bad",
            ((0, 1), (1, 0)),
        ),
        (
            ["bgb", "ggg", "bgb"],
            {},
            "not-monotone",
            "all corners are alike, but 1.0 with 2.11 is good",
            ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1)),
        ),
        (
            ["bg", "gb"],
            {"every": True},
            "not-monotone",
            f"1.0 with 2.11 is good and 1.0 with 2.10 is bad: {ALONE}",
            ((0, 1), (0, 0)),
        ),
        (
            ["gb", "bg"],
            {"every": True},
            "not-monotone",
            f"1.0 with 2.10 is good and 1.0 with 2.11 is bad: {ALONE}",
            ((0, 0), (0, 1)),
        ),
        (
            ["bgb", "ggg", "gbg"],
            {"every": True, "newer": (False, False)},
            "not-monotone",
            f"1.0 with 2.11 is good and 1.0 with 2.10 is bad: {AS_TOLD}",
            ((0, 1), (0, 0)),
        ),
        (
            ["g", "b", "g"],
            {"every": True},
            "not-monotone",
            f"1.0 with 2.10 is good and 1.1 with 2.10 is bad: {ALONE}",
            ((0, 0), (1, 0)),
        ),
        (
            ["gbg"],
            {"every": True},
            "not-monotone",
            f"1.0 with 2.10 is good and 1.0 with 2.11 is bad: {ALONE}",
            ((0, 0), (0, 1)),
        ),
        (["b?g", "b?g"], {"every": True, "max_runs": 4}, "undecided", LIMIT.format(4), ()),
        (["b?g", "???", "g?g"], {"max_runs": 4}, "partial", LIMIT.format(4), ()),
        (["b?b", "g??", "g?g"], {"max_runs": 5}, "partial", f"{LIMIT.format(5)}|{MORE}", ()),
        (
            ["b??", "???", "??g"],
            {"max_runs": 2, "newer": (True, True)},
            "partial",
            LIMIT.format(2),
            (),
        ),
        (["b??", "???", "??g"], {"max_runs": 2}, "undecided", LIMIT.format(2), ()),
        (["bb?", "???"], {"max_runs": 2, "every": True}, "undecided", LIMIT.format(2), ()),
        (["g?g", "???", "g?g"], {"max_runs": 4}, "undecided", LIMIT.format(4), ()),
        (["gg", "gg"], {"max_runs": 4}, "no-change", "", ()),
        (
            ["b?b", "g??", "??g"],
            {"max_runs": 4, "newer": (True, True)},
            "frontier",
            LIMIT.format(4),
            (),
        ),
    ],
)
def test_what_is_told_of_what_was_answered(
    rows: list[str],
    given: dict[str, Any],
    kind: str,
    notes: str,
    witnesses: tuple[tuple[int, int], ...],
) -> None:
    found = after(*rows, **given)
    assert isinstance(found, GridFinding)
    points = tuple(map(told_grid(*rows, **given).point, witnesses))
    assert (found.kind, "|".join(found.notes), found.witnesses) == (kind, notes, points)


BOTH = "newer ort and newer qnn are both better, or both worse"
ONE = "of newer ort and newer qnn, one is better and the other worse"


@pytest.mark.parametrize(
    ("rows", "given", "newer", "good", "bad", "unsure", "mattered", "assumed"),
    [
        (
            ["bbg", "bng"],
            {"newer": (True, True), "checks": 0},
            (True, True),
            [(0, 2)],
            [(0, 1), (1, 0)],
            [(0, 1), (1, 0)],
            (None, True),
            BOTH,
        ),
        (["bng"], {}, (True, True), [(0, 2)], [(0, 0)], [(0, 0), (0, 2)], (False, True), None),
        (["bbgng"], {}, (True, True), [(0, 2)], [(0, 1)], [], (False, True), None),
        (["g", "b", "b"], {}, (False, False), [(0, 0)], [(1, 0)], [], (True, False), None),
        (["gb", "bb"], {}, (False, False), [(0, 0)], [(0, 1), (1, 0)], [], (True, True), None),
        (["bg", "bb"], {}, (False, True), [(0, 1)], [(0, 0), (1, 1)], [], (True, True), None),
        (
            ["bg", "bb"],
            {"newer": (True, False)},
            (False, True),
            [(0, 1)],
            [(0, 0), (1, 1)],
            [],
            (True, True),
            ONE,
        ),
        (["gg", "gg"], {"newer": (False, True)}, None, [], [], [], (False, False), ONE),
        (
            ["gg", "gg"],
            {"newer": (True, True), "every": True},
            None,
            [],
            [],
            [],
            (False, False),
            None,
        ),
        (
            ["g?", "??"],
            {"newer": (True, True), "max_runs": 1},
            None,
            [],
            [],
            [],
            (None, None),
            None,
        ),
        (["gn"], {}, None, [], [], [], (False, None), None),
    ],
)
def test_what_a_finding_holds(
    rows: list[str],
    given: dict[str, Any],
    newer: tuple[bool, bool] | None,
    good: list[tuple[int, int]],
    bad: list[tuple[int, int]],
    unsure: list[tuple[int, int]],
    mattered: tuple[bool | None, bool | None],
    assumed: str | None,
) -> None:
    found, point = after(*rows, **given), told_grid(*rows, **given).point
    assert isinstance(found, GridFinding)
    assert (found.newer, found.mattered, found.assumed) == (newer, mattered, assumed)
    assert (found.edge_good, found.edge_bad) == (tuple(map(point, good)), tuple(map(point, bad)))
    assert found.unsure == {*map(point, unsure)}
    assert (found.confidence, found.failed_though_good) == (None, None)


def test_each_cell_is_known_by_a_run_by_conclusion_or_not() -> None:
    found = after("b?b", "?ng", "??g", max_runs=3, newer=(True, True))
    assert isinstance(found, GridFinding)
    assert [(cell.verdict, cell.how) for cell in found.cells.values()] == [
        *(("bad", "run"), ("bad", "concluded"), ("bad", "run")),
        *((None, "open"), (None, "untestable"), ("good", "run")),
        *((None, "open"), (None, "open"), ("good", "run")),
    ]
    alike = after("g?g", "?n?", "g?g", checks=0)
    assert isinstance(alike, GridFinding)
    hows = [cell.how for cell in alike.cells.values()]
    assert [hows.count(how) for how in ("run", "concluded", "untestable")] == [4, 4, 1]
    assert [cell.verdict for cell in alike.cells.values()].count("good") == 8


@pytest.mark.parametrize("every", [False, True])
def test_what_cannot_be_run_is_concluded_only_if_every_way_that_fits_says_so(every: bool) -> None:
    """Newer rows are better here; on the other axis it is not known which."""
    found = after("bb", "gn", every=every)
    assert isinstance(found, GridFinding)
    assert found.cells["1.1", "2.11"] == CellFinding(None, "untestable")
    row = after("bgn", every=every)
    assert isinstance(row, GridFinding)
    assert row.cells["1.0", "2.12"] == CellFinding("good", "untestable")


@pytest.mark.parametrize(
    ("rows", "given", "cheap", "at"),
    [
        (["b????g"], {}, "", (0, 2)),
        (["b????g"], {}, "2.11", (0, 1)),
        (["b????g"], {}, "2.14", (0, 4)),
        (["b????ng"], {}, "", (0, 2)),
        (["b??n??g"], {}, "", (0, 1)),
        (["b?????g", "g?????g"], {}, "", (0, 3)),
        (["b?????g", "g?????g"], {}, "2.11", (0, 1)),
    ],
)
def test_what_tells_most_for_its_cost_is_run(
    rows: list[str], given: dict[str, Any], cheap: str, at: tuple[int, int]
) -> None:
    known = told_grid(*rows, **given)
    cost = {cheap: 0.1}
    search = GridSearch(known.spec, evidence=known.evidence, cost=lambda at: cost.get(at[1], 1.0))
    question = search.next()
    assert isinstance(question, Question)
    assert question.at == known.point(at)


RARE = (
    "bad is a pair that fails in 60% of its runs or more; --repeat rate:10% finds rarer failures, "
    "on one axis"
)
NOW_AND_THEN = "counts as good, and failed: 1.0 with 2.10 in 2 of 62 runs"


@pytest.mark.parametrize(
    ("first", "second", "kind", "failed", "notes"),
    [
        (Tally(good=60), Tally(bad=60), "frontier", 0, [RARE]),
        (Tally(good=60, bad=2), Tally(bad=60), "frontier", 2, [RARE, NOW_AND_THEN]),
        (Tally(good=60, bad=2), Tally(good=60), "no-change", 2, [RARE, NOW_AND_THEN]),
        (Tally(bad=60), Tally(bad=60), "no-change", 0, [RARE]),
        (Tally(good=60), Tally(), "undecided", 0, ["the limit of 60 runs was reached", RARE]),
    ],
)
def test_what_is_told_where_no_answer_is_believed(
    first: Tally, second: Tally, kind: str, failed: int, notes: list[str]
) -> None:
    runs = first.told + second.told
    spec = grid(1, 2, repeat="auto", max_runs=60 if runs == 60 else None)
    evidence = Evidence({("1.0", "2.10"): first, ("1.0", "2.11"): second}, runs=runs)
    found = GridSearch(spec, evidence=evidence).next()
    assert isinstance(found, GridFinding)
    assert (found.kind, found.failed_though_good, [*found.notes]) == (kind, failed, notes)
    sure = GridState(spec, evidence).confidence()
    assert found.confidence == (None if kind == "undecided" else sure)
    assert sure is not None
    assert sure > 0.99


def test_directions_that_differ_are_a_tenth_as_likely() -> None:
    """If newer is better on both axes, four frontiers are left; if on one alone, one is."""
    known = told_grid("b?", "?g")
    chances = grid_search._chances(known, known.ways())
    both, one = 0.01 + 0.1 + 0.1 + 0.1, 0.1 * 0.1
    beside = (0.01 + 0.1 + one) / (both + 2 * one)
    assert chances == pytest.approx(np.array([[0, beside], [beside, 1]]))


def test_the_last_digits_of_a_chance_choose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ from one processor to another, and a search must be gone on with on any."""
    spec = grid(4, 4)
    truth = truth_of(spec, (3, 2, 2, 2), (False, False))
    _, asked = drive_grid(GridSearch(spec), truth.__getitem__)
    dice, chances = random.Random(1), grid_search._chances

    def blurred(state: GridState, ways: Sequence[GridWay]) -> Floats:
        return chances(state, ways) + np.array(
            [[dice.uniform(-1e-15, 1e-15) for _ in spec.columns] for _ in spec.rows]
        )

    monkeypatch.setattr(grid_search, "_chances", blurred)
    for _ in range(5):
        assert drive_grid(GridSearch(spec), truth.__getitem__)[1] == asked


def test_trouble_and_limits() -> None:
    search = GridSearch(grid(3, 3, patience=1, max_runs=4))
    first = search.next()
    assert isinstance(first, Question)
    search.answer(first, "unknown")
    assert search.next() == Stopped(1, first)
    search.resume()
    truth = truth_of(search.spec, (3, 2, 1), (False, False))
    found, asked = drive_grid(search, truth.__getitem__)
    assert (found.kind, len(asked), found.unknown) == ("partial", 4, 1)
    assert any(cell.how == "open" for cell in found.cells.values())
    assert "as far as known" in str(found)
