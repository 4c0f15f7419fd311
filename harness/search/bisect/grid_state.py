"""A grid as a search sees it: what can be tested, what is settled, what follows from it (pure)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.search.bisect.answers import Evidence, GoodOrBad, Point, Question, Tally
from harness.search.bisect.flaky import Floats, chances_bad, errors_at_worst
from harness.search.bisect.search import GridSpec

Cell = tuple[int, int]
Newer = tuple[bool, bool]
"""For each axis whether good grows towards newer candidates."""
Bools = NDArray[np.bool_]
_Value = TypeVar("_Value", bound=np.generic)

# How much less likely a frontier is for each further corner. One corner is one cause: a version of
# one axis, or one of each together.
_PER_CORNER: Final = 0.1


def turned(values: NDArray[_Value], newer: Newer) -> NDArray[_Value]:
    """An array of the grid, turned so that good grows with rows and columns (twice: back)."""
    return values[:: 1 if newer[0] else -1, :: 1 if newer[1] else -1]


def opposite(newer: Newer) -> Newer:
    """Where good grows, bad grows the other way."""
    return not newer[0], not newer[1]


def edge(cells: Bools, newer: Newer) -> Bools:
    """The cells before which no other of these cells lies, in the direction in which they grow."""
    grown = turned(cells, newer)
    behind = np.zeros_like(grown)
    behind[1:] |= grown[:-1]
    behind[:, 1:] |= grown[:, :-1]
    return turned(grown & ~behind, newer)


def _all_behind(cells: Bools, newer: Newer) -> Bools:
    grown = turned(cells, newer)
    for axis in (0, 1):
        grown = np.logical_or.accumulate(grown, axis=axis)
    return turned(grown, newer)


@dataclass(frozen=True)
class GridWay:
    """What verdicts imply if good grows towards newer candidates on these axes.

    `good` and `bad` are the cells that were asked or concluded.
    """

    newer: Newer
    good: Bools
    bad: Bools

    def fits(self) -> bool:
        """Whether nothing is implied to be both."""
        return not (self.good & self.bad).any()

    def same_way(self) -> bool:
        """Whether newer candidates do the same on both axes."""
        return self.newer[0] == self.newer[1]

    def known(self) -> Bools:
        """The cells of which something is known."""
        return self.good | self.bad

    def cell(self, cell: Cell) -> Cell:
        """A cell of the grid as it stands after turning, or the other way round."""
        (row, column), (rows, columns) = cell, self.good.shape
        return (
            row if self.newer[0] else rows - 1 - row,
            column if self.newer[1] else columns - 1 - column,
        )

    def after(self, unknown: Bools, cell: Cell, verdict: GoodOrBad) -> Bools:
        """What of these is still unknown after one more verdict."""
        left = unknown.copy()
        view, (row, column) = turned(left, self.newer), self.cell(cell)
        if verdict == "good":
            view[row:, column:] = False
        else:
            view[: row + 1, : column + 1] = False
        return left

    def chances_good(self) -> tuple[Floats, float]:
        """How likely each cell is good, over all frontiers that fit what is known.

        With the logarithm of how likely these frontiers are together. A frontier is the first good
        column of each row, which never grows from row to row.
        """
        good, bad = turned(self.good, self.newer), turned(self.bad, self.newer)
        rows, columns = good.shape
        starts = np.arange(columns + 1)
        # from threshold (row of the matrix) to threshold (column): never upward
        fewer = starts[:, None] > starts[None, :]
        step = np.where(fewer, _PER_CORNER, np.eye(columns + 1))
        # the lowest and the highest first good column that each row can have
        lowest, highest = bad.sum(axis=1), columns - good.sum(axis=1)
        fits = (starts >= lowest[:, None]) & (starts <= highest[:, None])
        start = np.where(starts == columns, 1.0, _PER_CORNER)
        ahead, log = [_scaled(start * fits[0])], math.log(float((start * fits[0]).max()))
        for row in range(1, rows):
            reached = (ahead[-1] @ step) * fits[row]
            log += math.log(float(reached.max()))
            ahead.append(_scaled(reached))
        back = [np.ones(columns + 1)]
        for row in range(rows - 1, 0, -1):
            back.append(_scaled(step @ (back[-1] * fits[row])))
        weights = np.array(ahead) * np.array(back[::-1])
        sums = np.cumsum(weights, axis=1)
        chances = np.asarray(sums[:, :columns] / sums[:, -1:])
        return turned(chances, self.newer), log + math.log(float(ahead[-1].sum()))


def cells_in(mask: Bools) -> list[Cell]:
    """The cells that are set, row by row."""
    return [(int(row), int(column)) for row, column in np.argwhere(mask)]


def steps(one: Cell, other: Cell) -> int:
    """How many it is from one cell to another."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def worst_case(unknown: Bools) -> int:
    """How many runs decide all of these cells, whatever is answered.

    Asking the first row that is left at its highest cell decides this row, if it is bad, or
    that column, if it is good; the last run decides both.
    """
    if not unknown.any():
        return 0
    return int(unknown.any(axis=1).sum() + unknown.any(axis=0).sum()) - 1


def _scaled(weights: Floats) -> Floats:
    return np.asarray(weights / weights.max())


# A point that tells nothing after so many runs never will: its rate is near 50 %.
_HOPELESS: Final = 200
_WAYS: Final = ((True, True), (False, False), (True, False), (False, True))


@dataclass(frozen=True)
class GridState:
    """The state of a grid search; cells are rows and columns of the grid, not turned."""

    spec: GridSpec
    evidence: Evidence

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.spec.rows), len(self.spec.columns)

    def point(self, cell: Cell) -> Point:
        """The candidates of a cell."""
        return self.spec.rows[cell[0]], self.spec.columns[cell[1]]

    def ask(self, cell: Cell, why: str) -> Question:
        """The question to run a cell."""
        return Question(self.point(cell), self.evidence.runs + 1, why)

    @cached_property
    def _told(self) -> Mapping[Cell, Tally]:
        """What each cell answered, of those that answered good or bad and are not left alone."""
        tallies = {cell: self.evidence.of(self.point(cell)) for cell in np.ndindex(self.shape)}
        return {c: tally for c, tally in tallies.items() if tally.told and not tally.untestable}

    @cached_property
    def holes(self) -> frozenset[Cell]:
        """Where testing turned out to be impossible."""
        rows, columns = self.spec.rows, self.spec.columns
        met = {(rows.index(at[0]), columns.index(at[1])) for at in self.evidence.untestable()}
        return frozenset(met).union(
            cell
            for cell, tally in self._told.items()
            if tally.told >= _HOPELESS and cell not in self.verdicts
        )

    @cached_property
    def testable(self) -> Bools:
        """Where testing is possible, as far as known."""
        left = np.ones(self.shape, dtype=np.bool_)
        for cell in self.holes:
            left[cell] = False
        return left

    @cached_property
    def verdicts(self) -> Mapping[Cell, GoodOrBad]:
        """What was asked often enough."""
        repeat, told = self.spec.repeat, self._told
        if repeat != "auto":
            settled = {cell: tally.settled(repeat) for cell, tally in told.items()}
            return {cell: verdict for cell, verdict in settled.items() if verdict is not None}
        # the wanted confidence is that of the whole answer: each cell has a share of the error
        allowed = (1 - self.spec.confidence) / (sum(self.shape) + 4)
        return {
            cell: "bad" if chance > 0.5 else "good"
            for cell, chance in zip(told, chances_bad([*told.values()]), strict=True)
            if self._errors[cell] <= allowed
        }

    @cached_property
    def _errors(self) -> Mapping[Cell, float]:
        """How likely each cell that told anything is not what it looks like, at the worst rates."""
        errors = errors_at_worst([*self._told.values()])
        return dict(zip(self._told, errors, strict=True))

    @cached_property
    def begun(self) -> tuple[Cell, ...]:
        """What was asked, but not often enough."""
        return tuple(
            cell for cell in self._told if cell not in self.verdicts and self.testable[cell]
        )

    def confidence(self) -> float | None:
        """How likely all settled verdicts are right together (repeat "auto" only)."""
        if self.spec.repeat != "auto":
            return None
        return max(0.0, 1 - sum(self._errors[cell] for cell in self.verdicts))

    def limit(self) -> int:
        """How many runs it may take, with what was spent on untestable points."""
        return self.spec.bound().limit(wasted=self.evidence.wasted())

    def corner(self, top: bool, left: bool) -> Cell | None:
        """The testable cell nearest to a corner; None if there is none."""
        corner = 0 if top else self.shape[0] - 1, 0 if left else self.shape[1] - 1
        return min(cells_in(self.testable), key=lambda cell: steps(cell, corner), default=None)

    def ends(self) -> list[Cell]:
        """The corners that are confirmed first: all, or the two that count with `newer` told."""
        told = self.spec.newer
        both = _WAYS if told is None else _WAYS[:2] if told[0] == told[1] else _WAYS[2:]
        cells = [self.corner(top, left) for top, left in both]
        return list(dict.fromkeys(cell for cell in cells if cell is not None))

    def corners_testable(self) -> bool:
        """Whether all four corners can be tested."""
        return bool(self.testable[np.ix_([0, -1], [0, -1])].all())

    def way(self, newer: Newer) -> GridWay:
        """What the verdicts imply if good grows so."""
        good, bad = np.zeros(self.shape, dtype=np.bool_), np.zeros(self.shape, dtype=np.bool_)
        for cell, verdict in self.verdicts.items():
            (good if verdict == "good" else bad)[cell] = True
        return GridWay(newer, _all_behind(good, newer), _all_behind(bad, opposite(newer)))

    def ways(self) -> list[GridWay]:
        """The ways that fit the verdicts, those alike on both axes first.

        Where `newer` was told, only these ways and their opposites are looked at.
        """
        told = self.spec.newer
        ways = [self.way(newer) for newer in _WAYS]
        if told is not None:
            ways = [way for way in ways if way.same_way() == (told[0] == told[1])]
        return [way for way in ways if way.fits()]

    def agreed(self, ways: Sequence[GridWay]) -> tuple[Bools, Bools]:
        """Which cells are good and which are bad whichever of these ways is the true one."""
        good = np.full(self.shape, bool(ways))
        bad = good.copy()
        for way in ways:
            good &= way.good
            bad &= way.bad
        return good, bad

    def witnesses(self, newer: Newer) -> tuple[Cell, Cell]:
        """A good cell and a bad one behind it, which must not be: the nearest to each other.

        Each way that does not fit has such cells.
        """
        pairs, way = [], self.way(newer)
        for good, bad in itertools.product(self.verdicts, repeat=2):
            low, high = way.cell(good), way.cell(bad)
            unlike = (self.verdicts[good], self.verdicts[bad]) == ("good", "bad")
            if unlike and low[0] <= high[0] and low[1] <= high[1]:
                pairs.append((steps(low, high), good, bad))
        return min(pairs)[1:]
