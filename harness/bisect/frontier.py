"""What answers on a grid imply, if good grows upward on both axes (pure).

Indices are the grid's own only after turning it so that good grows towards higher ones: with a
good place, everything at or above it on both axes is good; with a bad one, everything below bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.bisect.answers import Verdict
from harness.bisect.noise import Floats

Spot = tuple[int, int]
Bools = NDArray[np.bool_]

# How much less likely a frontier is for each further corner. One corner is one cause: a version of
# one axis, or one of each together.
_PER_CORNER: Final = 0.1


@dataclass(frozen=True)
class Turned:
    """How a grid is turned: on which axes good grows towards newer candidates."""

    rows: int
    columns: int
    newer: tuple[bool, bool]

    def same_way(self) -> bool:
        """Whether newer candidates do the same on both axes."""
        return self.newer[0] == self.newer[1]

    def spot(self, spot: Spot) -> Spot:
        """A place of the grid as it stands after turning, or the other way round."""
        row, column = spot
        return (
            row if self.newer[0] else self.rows - 1 - row,
            column if self.newer[1] else self.columns - 1 - column,
        )


@dataclass(frozen=True)
class Known:
    """Which places are good and which are bad, asked or concluded."""

    good: Bools
    bad: Bools

    @classmethod
    def of(cls, rows: int, columns: int, verdicts: Mapping[Spot, Verdict]) -> Known:
        """What verdicts imply."""
        good = np.zeros((rows, columns), dtype=np.bool_)
        bad = np.zeros((rows, columns), dtype=np.bool_)
        for (row, column), verdict in verdicts.items():
            if verdict == "good":
                good[row:, column:] = True
            else:
                bad[: row + 1, : column + 1] = True
        return cls(good, bad)

    def conflict(self) -> bool:
        """Whether something is implied to be both: good does not grow as it should."""
        return bool((self.good & self.bad).any())

    def open(self) -> Bools:
        """The places of which nothing is known."""
        return np.asarray(~(self.good | self.bad))

    def chances_good(self) -> tuple[Floats, float]:
        """How likely each place is good, over all frontiers that fit what is known.

        And the logarithm of how likely these frontiers are together. A frontier is the first good
        column of each row, which never grows from row to row.
        """
        rows, columns = self.good.shape
        steps = np.arange(columns + 1)
        # from threshold (row of the matrix) to threshold (column): never upward
        fewer = steps[:, None] > steps[None, :]
        step = np.where(fewer, _PER_CORNER, np.where(np.eye(columns + 1) > 0, 1.0, 0.0))
        lowest, highest = self._thresholds()
        fits = (steps >= lowest[:, None]) & (steps <= highest[:, None])
        start = np.where(steps == columns, 1.0, _PER_CORNER)
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
        return chances, log + math.log(float(ahead[-1].sum()))

    def _thresholds(self) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
        """The lowest and the highest first good column that each row can have."""
        columns = self.good.shape[1]
        return self.bad.sum(axis=1), columns - self.good.sum(axis=1)


def first_good(good: Bools) -> Iterator[Spot]:
    """The places that are good while nothing below them is."""
    for row, column in np.argwhere(good):
        below = (row > 0 and good[row - 1, column]) or (column > 0 and good[row, column - 1])
        if not below:
            yield int(row), int(column)


def last_bad(bad: Bools) -> Iterator[Spot]:
    """The places that are bad while nothing above them is."""
    for row, column in first_good(bad[::-1, ::-1]):
        yield bad.shape[0] - 1 - row, bad.shape[1] - 1 - column


def worst_case(unknown: Bools) -> int:
    """How many runs decide all of these places, whatever is answered.

    Asking the first row that is left at its highest place decides this row, if it is bad, or
    that column, if it is good; the last run decides both.
    """
    if not unknown.any():
        return 0
    return int(unknown.any(axis=1).sum() + unknown.any(axis=0).sum()) - 1


def after(unknown: Bools, spot: Spot, verdict: Verdict) -> Bools:
    """What is still unknown after one more verdict."""
    left = unknown.copy()
    row, column = spot
    if verdict == "good":
        left[row:, column:] = False
    else:
        left[: row + 1, : column + 1] = False
    return left


def _scaled(weights: Floats) -> Floats:
    return np.asarray(weights / weights.max())
