"""The next step on a grid (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.bisect.board import Board
from harness.bisect.frontier import (
    Bools,
    Known,
    Spot,
    Turned,
    after,
    first_good,
    last_bad,
    worst_case,
)
from harness.bisect.line import Cost, seconds, testable
from harness.bisect.noise import Floats, entropy

# How much less likely it is that newer candidates cure on one axis and break on the other.
_DIFFERENT = math.log(0.1)


@dataclass(frozen=True)
class AskSpot:
    """The spot to run next, and why."""

    spot: Spot
    why: str


def corners(board: Board) -> AskSpot | None:
    """The next corner to confirm: the oldest and the newest pair first, then the other two.

    Two answers that differ do not tell yet which axis does it, nor whether newer candidates do the
    same on both. Where that was told (`newer`), the two corners that then count are enough.
    """
    ends = board.ends()
    differ = len({board.verdicts[spot] for spot in ends if spot in board.verdicts}) > 1
    other = "which axis does it?" if differ else "the ends are alike: do the axes differ?"
    for number, spot in enumerate(ends):
        if spot not in board.verdicts:
            return AskSpot(spot, f"one end of {_named(board)}" if number < 2 else other)
    return None


def _named(board: Board) -> str:
    return " and ".join(board.spec.axes)


def walk(board: Board, ways: Sequence[Turned], cost: Cost) -> AskSpot | None:
    """The run that tells most per second, among those after which the bound still holds.

    While several ways to turn the grid fit, what is known is what all of them agree on, and the
    bound must hold whichever of them is true. With one way that there always is such a run follows
    from `worst_case`: the staircase walk is among them.
    """
    good, bad = board.agreed(ways)
    unknown = board.testable & ~(good | bad)
    if not unknown.any():
        return None
    for spot in board.begun:
        if unknown[spot]:
            return AskSpot(spot, "again: one answer is not enough")
    chances = _chances(board, ways)
    told = entropy(chances)

    def worth(spot: Spot) -> tuple[float, float, Spot]:
        near = min((abs(spot[0] - i) + abs(spot[1] - j) for i, j in board.holes), default=None)
        likely = testable(near) / seconds(cost, board.place(spot))
        worthy = round(float(told[spot]) * likely, 12)
        return (-worthy, abs(float(chances[spot]) - 0.5), ways[0].spot(spot))

    spots = sorted(((int(i), int(j)) for i, j in np.argwhere(unknown)), key=worth)
    left = _places_left(board)
    if len(ways) > 1:
        spots = sorted(spots, key=lambda spot: not _tells_directions(board, ways, spot))
    for needed in (ways, ways[:1]):
        states = [(way, board.known(way), board.unknown(way)) for way in needed]
        chosen = next((spot for spot in spots if _worst(states, spot) < left), None)
        if chosen is not None:
            break
    # none only after edited answers: what was paid for may no longer be of use
    return AskSpot(chosen or spots[0], f"{int(unknown.sum())} pairs are open")


def _tells_directions(board: Board, ways: Sequence[Turned], spot: Spot) -> bool:
    """Whether a spot lies on an end of each axis of which it is not known which way it goes."""
    return all(
        len({way.newer[axis] for way in ways}) == 1 or spot[axis] in (0, board.shape[axis] - 1)
        for axis in (0, 1)
    )


def _chances(board: Board, ways: Sequence[Turned]) -> Floats:
    """How likely each spot is good, over all frontiers in all ways that fit."""
    weighed = [board.known(way).chances_good() for way in ways]
    logs = [
        log + (0 if way.same_way() else _DIFFERENT)
        for (_, log), way in zip(weighed, ways, strict=True)
    ]
    shares = [math.exp(log - max(logs)) for log in logs]
    total = np.zeros(board.shape)
    for (chances, _), share, way in zip(weighed, shares, ways, strict=True):
        total += share * board.turn(chances, way)
    return total / sum(shares)


def _worst(states: Sequence[tuple[Turned, Known, Bools]], spot: Spot) -> int:
    """How many more runs may be needed after this one, whatever it answers and whichever way."""
    most = 0
    for way, known, unknown in states:
        at = way.spot(spot)
        if not known.bad[at]:
            most = max(most, worst_case(after(unknown, at, "good")))
        if not known.good[at]:
            most = max(most, worst_case(after(unknown, at, "bad")))
    return most


def check(board: Board, ways: Sequence[Turned]) -> AskSpot | None:
    """A place of which the answer is concluded, as far as can be from all that was asked.

    The places follow from the frontier, not from what was asked, so that they stay the same.
    Without ways all corners are alike.
    """
    if not ways and not board.corners_testable() and _places_left(board) > 0:
        spot = _beyond_the_ends(board)
        if spot is not None:
            return AskSpot(spot, "all are alike, but the corners cannot be tested")
    if board.spec.checks and _places_left(board) > 0:
        for spot in _check_spots(board, ways):
            if spot not in board.verdicts:
                return AskSpot(spot, "check what was concluded")
    return None


def _beyond_the_ends(board: Board) -> Spot | None:
    """Where all answers are alike: a place that does not lie between two of them."""
    between = board.testable.copy()
    for way in ((True, True), (False, False)):
        known = board.known(Turned(*board.shape, way))
        between &= board.turn(known.good | known.bad, Turned(*board.shape, way))
    spots = [(int(i), int(j)) for i, j in np.argwhere(board.testable & ~between)]

    def apart(spot: Spot) -> tuple[int, Spot]:
        return min(abs(spot[0] - i) + abs(spot[1] - j) for i, j in board.verdicts), spot

    return max(spots, key=apart, default=None)


def _places_left(board: Board) -> int:
    rows, columns = board.shape
    return min(rows * columns, rows + columns + 4) - len(board.verdicts)


def _check_spots(board: Board, ways: Sequence[Turned]) -> Iterator[Spot]:
    spots = [(int(i), int(j)) for i, j in np.argwhere(board.testable)]
    seen = set(board.ends())
    for way in ways:
        known = board.known(way)
        edge = (*first_good(known.good), *last_bad(known.bad))
        seen |= {way.spot(spot) for spot in edge}
    for _ in range(board.spec.checks):
        apart = {
            spot: min(abs(spot[0] - i) + abs(spot[1] - j) for i, j in seen)
            for spot in spots
            if spot not in seen
        }
        if not apart:
            return
        farthest = max(apart, key=lambda spot: (apart[spot], spot))
        seen.add(farthest)
        yield farthest
