"""The search on two axes: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from harness.search.bisect.answers import Evidence, GoodOrBad, Point, Question, Tally
from harness.search.bisect.findings import CellFinding, GridFinding, GridKind, How
from harness.search.bisect.flaky import WORST, Floats, entropy
from harness.search.bisect.grid_state import (
    Bools,
    Cell,
    GridState,
    GridWay,
    cells_in,
    edge,
    opposite,
    steps,
    worst_case,
)
from harness.search.bisect.search import Cost, GridSpec, Search, seconds, testable

# How much less likely it is that newer candidates cure on one axis and break on the other.
_DIFFERENT: Final = float(np.log(0.1))


class GridSearch(Search[GridSpec, GridFinding]):
    """Finds where a grid of two axes changes, in rows + columns + 4 runs or fewer.

    Corners first, then points on the frontier between good and bad, then a few checks of what was
    only concluded.
    """

    def _step(self, evidence: Evidence) -> Question | GridFinding:
        state = GridState(self.spec, evidence)
        step = _every(state) if self.spec.every else _decide(state, self._cost)
        spent = isinstance(step, Question) and evidence.runs >= state.limit()
        return _out_of_runs(state) if spent else step


def _decide(state: GridState, cost: Cost) -> Question | GridFinding:
    corner = corners(state)
    if corner is not None:
        return corner
    if not state.verdicts:
        return finding(state, "undecided", notes=("no pair can be tested",))
    if _corners_alike(state):
        return check(state, ()) or _alike(state)
    ways = _ways(state)
    if not ways:
        return _not_monotone(state)
    step = trace_edge(state, ways, cost) or check(state, ways)
    return step or finding(state, "frontier", ways)


def _corners_alike(state: GridState) -> bool:
    """Whether nothing changes as far as the corners tell, which are all known by now.

    `check` may find otherwise.
    """
    if state.corners_testable():
        return len({state.verdicts[cell] for cell in state.ends()}) == 1
    return len(set(state.verdicts.values())) == 1


def _ways(state: GridState) -> list[GridWay]:
    """The ways that fit, unless nothing was found that differs."""
    return state.ways() if len(set(state.verdicts.values())) > 1 else []


def _every(state: GridState) -> Question | GridFinding:
    """All points in turn; what they say is then judged as a whole."""
    left = [cell for cell in cells_in(state.testable) if cell not in state.verdicts]
    if left:
        return state.ask(left[0], f"every pair is run, {len(left)} are left")
    if not state.verdicts:
        return finding(state, "undecided", notes=("no pair can be tested",))
    if len(set(state.verdicts.values())) == 1:
        return _alike(state)
    ways = state.ways()
    if ways:
        return finding(state, "frontier", ways)
    return _not_monotone(state)


def _alike(state: GridState) -> GridFinding:
    """What follows if the corners are alike; a check may have found that the rest is not."""
    if len(set(state.verdicts.values())) > 1:
        odd = "bad" if state.verdicts[state.ends()[0]] == "good" else "good"
        points = tuple(state.point(s) for s, verdict in state.verdicts.items() if verdict == odd)
        which = "all corners" if state.spec.newer is None else "the ends, as was told of them,"
        note = f"{which} are alike, but {' with '.join(points[0])} is {odd}"
        return finding(state, "not-monotone", notes=(note,), witnesses=points)
    return finding(state, "no-change")


def _not_monotone(state: GridState) -> GridFinding:
    """No way to turn the grid fits: two answers that contradict the likeliest one are named."""
    high = state.corner(False, False)
    grows = high is None or state.verdicts.get(high) != "bad"
    newer = state.spec.newer or (True, True)
    likely = newer if grows else opposite(newer)
    good, bad = (state.point(cell) for cell in state.witnesses(likely))
    said = f"{' with '.join(good)} is good and {' with '.join(bad)} is bad"
    fits = "neither does any other direction of the axes fit all answers"
    if state.spec.newer is not None:
        fits = "the axes do not go as was told"
    note = f"{said}: {fits}. Nothing was concluded; run every pair to see the grid"
    return finding(state, "not-monotone", notes=(note,), witnesses=(good, bad))


def _out_of_runs(state: GridState) -> GridFinding:
    ready = not state.spec.every and corners(state) is None
    ways = _ways(state) if ready else []
    notes = [f"the limit of {state.evidence.runs} runs was reached"]
    if not ways:
        return finding(state, "undecided", notes=tuple(notes))
    good, bad = state.agreed(ways)
    if not (state.testable & ~(good | bad)).any():
        return finding(state, "frontier", ways, notes=tuple(notes))
    if len(ways) > 1:
        notes.append(
            "it is not known yet on which axes newer is better; to tell it lets more follow"
        )
    return finding(state, "partial", ways, notes=tuple(notes))


def corners(state: GridState) -> Question | None:
    """The next corner to confirm: the oldest and the newest pair first, then the other two.

    Two answers that differ do not tell yet which axis matters, and whether newer candidates do the
    same on both. If that was told (`newer`), the two corners that then count are enough.
    """
    ends = state.ends()
    differ = len({state.verdicts[cell] for cell in ends if cell in state.verdicts}) > 1
    other = "which axis does it?" if differ else "the ends are alike: do the axes differ?"
    for number, cell in enumerate(ends):
        if cell not in state.verdicts:
            first = f"one end of {' and '.join(state.spec.axes)}"
            return state.ask(cell, first if number < 2 else other)
    return None


def trace_edge(state: GridState, ways: Sequence[GridWay], cost: Cost) -> Question | None:
    """The run that tells most per second, among those after which the bound still holds.

    While several ways to turn the grid fit, only what all of them agree on is known, and the bound
    must hold whichever is true. With one way there is always such a run, by `worst_case`: the
    staircase walk is among them.
    """
    good, bad = state.agreed(ways)
    unknown = state.testable & ~(good | bad)
    if not unknown.any():
        return None
    for cell in state.begun:
        if unknown[cell]:
            return state.ask(cell, "again: one answer is not enough")
    told = entropy(_chances(state, ways))

    def worth(cell: Cell) -> tuple[float, Cell]:
        near = min((steps(cell, hole) for hole in state.holes), default=None)
        likely = testable(near) / seconds(cost, state.point(cell))
        # the last digits differ from computer to computer, and must not choose
        worthy = round(float(told[cell]) * likely, 12)
        return (-worthy, ways[0].cell(cell))

    cells = sorted(cells_in(unknown), key=worth)
    left = _points_left(state)
    cells = sorted(cells, key=lambda cell: not _tells_directions(state, ways, cell))
    for needed in (ways, ways[:1]):
        states = [(way, state.testable & ~way.known()) for way in needed]
        chosen = next((cell for cell in cells if _worst(states, cell) < left), None)
        if chosen is not None:
            break
    # none only after edited answers: what was paid for may no longer be of use
    return state.ask(chosen or cells[0], f"{int(unknown.sum())} pairs are open")


def _tells_directions(state: GridState, ways: Sequence[GridWay], cell: Cell) -> bool:
    """Whether a cell lies at an end of each axis whose direction is not known."""
    return all(
        len({way.newer[axis] for way in ways}) == 1 or cell[axis] in (0, state.shape[axis] - 1)
        for axis in (0, 1)
    )


def _chances(state: GridState, ways: Sequence[GridWay]) -> Floats:
    """How likely each cell is good, over all frontiers in all ways that fit."""
    weighed = [way.chances_good() for way in ways]
    logs = [
        log + (0 if way.same_way() else _DIFFERENT)
        for (_, log), way in zip(weighed, ways, strict=True)
    ]
    shares = np.exp(np.array(logs) - max(logs))
    return np.average([chances for chances, _ in weighed], axis=0, weights=shares)


def _worst(states: Sequence[tuple[GridWay, Bools]], cell: Cell) -> int:
    """How many more runs this one may leave, whatever it answers and whichever way holds."""
    most = 0
    for way, unknown in states:
        if not way.bad[cell]:
            most = max(most, worst_case(way.after(unknown, cell, "good")))
        if not way.good[cell]:
            most = max(most, worst_case(way.after(unknown, cell, "bad")))
    return most


def check(state: GridState, ways: Sequence[GridWay]) -> Question | None:
    """A point of which the answer is concluded, as far as can be from all that was asked.

    The points follow from the frontier, not from what was asked, so that they stay the same.
    Without ways all corners are alike.
    """
    if not ways and not state.corners_testable() and _points_left(state) > 0:
        cell = _beyond_the_ends(state)
        if cell is not None:
            return state.ask(cell, "all are alike, but the corners cannot be tested")
    if _points_left(state) > 0:
        for cell in _check_cells(state, ways):
            if cell not in state.verdicts:
                return state.ask(cell, "check what was concluded")
    return None


def _beyond_the_ends(state: GridState) -> Cell | None:
    """If all answers are alike: a point that does not lie between two of them."""
    between = state.testable.copy()
    for newer in ((True, True), (False, False)):
        between &= state.way(newer).known()
    return _farthest(cells_in(state.testable & ~between), state.verdicts)


def _farthest(cells: Iterable[Cell], asked: Collection[Cell]) -> Cell | None:
    """The cell that is farthest from all that was asked; None if there is none."""
    return max(cells, key=lambda cell: (min(steps(cell, one) for one in asked), cell), default=None)


def _points_left(state: GridState) -> int:
    rows, columns = state.shape
    return min(rows * columns, rows + columns + 4) - len(state.verdicts)


def _check_cells(state: GridState, ways: Sequence[GridWay]) -> Iterator[Cell]:
    seen = set(state.ends())
    for way in ways:
        seen |= {
            *cells_in(edge(way.good, way.newer)),
            *cells_in(edge(way.bad, opposite(way.newer))),
        }
    for _ in range(state.spec.checks):
        left = [cell for cell in cells_in(state.testable) if cell not in seen]
        farthest = _farthest(left, seen)
        if farthest is None:
            return
        seen.add(farthest)
        yield farthest


def finding(
    state: GridState,
    kind: GridKind,
    ways: Sequence[GridWay] = (),
    *,
    notes: tuple[str, ...] = (),
    witnesses: tuple[Point, ...] = (),
) -> GridFinding:
    """What is known of a grid, as the answer of its search; only what all of `ways` agree on."""
    spec, evidence = state.spec, state.evidence
    cells = _cells(state, ways, all_alike=kind == "no-change")
    newer = ways[0].newer if ways else None
    edge_good: list[Cell] = []
    edge_bad: list[Cell] = []
    if newer is not None:
        good, bad = state.agreed(ways)
        edge_good, edge_bad = cells_in(edge(good, newer)), cells_in(edge(bad, opposite(newer)))
    verdicts = set(state.verdicts.values())
    failed = sum(one.bad for one in _failed_though_good(state).values())
    unsure = _beside_unknown(state, cells, (*edge_good, *edge_bad))
    return GridFinding(
        kind=kind,
        axes=spec.axes,
        cells=cells,
        newer=newer,
        edge_good=tuple(map(state.point, edge_good)),
        edge_bad=tuple(map(state.point, edge_bad)),
        unsure=unsure,
        mattered=_mattered(state, cells),
        verdict=verdicts.pop() if len(verdicts) == 1 else None,
        witnesses=witnesses,
        confidence=state.confidence() if kind in ("frontier", "no-change") else None,
        runs=evidence.runs,
        unknown=evidence.unknown,
        notes=(*notes, *_too_rare(state)),
        failed_though_good=None if spec.least is None else failed,
        assumed=_assumed(state) if ways or kind == "no-change" else None,
    )


def _failed_though_good(state: GridState) -> dict[Point, Tally]:
    """The pairs that count as good although some of their runs failed."""
    if state.spec.least is None:
        return {}
    told = {state.point(cell): verdict for cell, verdict in state.verdicts.items()}
    tallies = {at: state.evidence.of(at) for at, verdict in told.items() if verdict == "good"}
    return {at: tally for at, tally in tallies.items() if tally.bad}


def _too_rare(state: GridState) -> Iterator[str]:
    """What `--repeat auto` takes for good on two axes, and which failures it passed over."""
    if state.spec.least is not None:
        yield (
            f"bad is a pair that fails in {1 - WORST:.0%} of its runs or more; "
            "--repeat rate:10% finds rarer failures, on one axis"
        )
    failed = [
        f"{' with '.join(at)} in {tally.bad} of {tally.bad + tally.good} runs"
        for at, tally in _failed_though_good(state).items()
    ]
    if failed:
        yield f"counts as good, and failed: {', '.join(failed)}"


def _assumed(state: GridState) -> str | None:
    newer = state.spec.newer
    if newer is None or state.spec.every:
        return None
    row, column = state.spec.axes
    if newer[0] == newer[1]:
        return f"newer {row} and newer {column} are both better, or both worse"
    return f"of newer {row} and newer {column}, one is better and the other worse"


def _cells(
    state: GridState, ways: Sequence[GridWay], *, all_alike: bool
) -> dict[Point, CellFinding]:
    good, bad = state.agreed(ways)
    everywhere = next(iter(state.verdicts.values()), None) if all_alike else None
    cells = {}
    for cell in np.ndindex(*state.shape):
        verdict = state.verdicts.get(cell)
        how: How = "run" if verdict else "open"
        if not state.testable[cell]:
            how = "untestable"
        elif verdict is None and everywhere is not None:
            verdict, how = everywhere, "concluded"
        if verdict is None:
            verdict = "good" if good[cell] else "bad" if bad[cell] else None
            how = "concluded" if verdict and how == "open" else how
        cells[state.point(cell)] = CellFinding(verdict, how)
    return cells


def _beside_unknown(
    state: GridState, cells: Mapping[Point, CellFinding], at: Iterable[Cell]
) -> frozenset[Point]:
    """Which of these have a neighbour of which nothing is known."""
    unknown = [
        cell for cell in np.ndindex(*state.shape) if cells[state.point(cell)].verdict is None
    ]
    beside = (cell for cell in at if any(steps(cell, other) == 1 for other in unknown))
    return frozenset(map(state.point, beside))


def _mattered(
    state: GridState, cells: Mapping[Point, CellFinding]
) -> tuple[bool | None, bool | None]:
    rows, columns = state.spec.rows, state.spec.columns
    along_rows = [[cells[row, column].verdict for row in rows] for column in columns]
    along_columns = [[cells[row, column].verdict for column in columns] for row in rows]
    return _differs(along_rows), _differs(along_columns)


def _differs(lines: Iterable[list[GoodOrBad | None]]) -> bool | None:
    """Whether a line holds both verdicts; None if a line with gaps still might."""
    lines = list(lines)
    if any({"good", "bad"} <= set(line) for line in lines):
        return True
    return None if any(None in line for line in lines if len(line) > 1) else False
