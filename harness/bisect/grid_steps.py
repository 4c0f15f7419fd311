"""The next step on a grid (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.bisect.answers import opposite
from harness.bisect.board import Board
from harness.bisect.frontier import Bools, Spot, Turned, after, first_good, last_bad, worst_case
from harness.bisect.line import Cost, seconds, testable
from harness.bisect.noise import entropy


@dataclass(frozen=True)
class AskSpot:
    """The spot to run next, and why."""

    spot: Spot
    why: str


@dataclass(frozen=True)
class Ends:
    """What the corners told: the way the grid is turned, None if all are alike.

    `crossed` if corners opposite each other are alike and differ from the others: then no way fits.
    """

    turned: Turned | None
    crossed: bool = False


def corners(board: Board) -> AskSpot | Ends | None:
    """Confirms the ends and tells from them which way good grows; None if nothing is testable.

    The oldest and the newest pair come first. If they are alike, the axes go different ways or
    nothing changes, and the other two corners tell.
    """
    same_way = board.spec.newer is None or board.spec.newer[0] == board.spec.newer[1]
    oldest, newest = board.corner(True, same_way), board.corner(False, not same_way)
    if oldest is None or newest is None:
        return None
    names = ("the oldest pair", "the newest pair") if same_way else ("an end", "the other end")
    for spot, why in zip((oldest, newest), names, strict=True):
        if spot not in board.verdicts:
            return AskSpot(spot, why)
    low, high = board.verdicts[oldest], board.verdicts[newest]
    if low != high:
        grows = high == "good"
        likely = (grows, grows if same_way else not grows)
        return Ends(_first_that_fits(board, likely) or Turned(*board.shape, likely))
    if board.spec.newer is not None:
        return Ends(None)
    others = (board.corner(True, False), board.corner(False, True))
    for other in others:
        if other is not None and other not in board.verdicts:
            return AskSpot(other, "the ends are alike: do the axes go different ways?")
    differ = [other is not None and board.verdicts[other] != low for other in others]
    if len(set(board.verdicts.values())) == 1 or (not any(differ) and board.corners_testable()):
        return Ends(None)
    if board.corners_testable():
        if all(differ):
            return Ends(None, crossed=True)
        # the corner of newest columns and oldest rows is good: good grows to older rows
        good_at_columns = differ[0] == (opposite(low) == "good")
        return Ends(Turned(*board.shape, (not good_at_columns, good_at_columns)))
    ways = board.ways()
    return Ends(ways[0] if ways else None, crossed=not ways)


def _first_that_fits(board: Board, likely: tuple[bool, bool]) -> Turned | None:
    """Beside corners that cannot be tested, the first guess may turn out to be the wrong one."""
    for way in (likely, (not likely[0], not likely[1])):
        turned = Turned(*board.shape, way)
        if not board.known(turned).conflict():
            return turned
    return None


def doubt(board: Board, turned: Turned) -> AskSpot | None:
    """If good could as well grow the other way, a place of which the ways say different things.

    That happens only where corners cannot be tested, and what was run cannot be compared.
    """
    other = Turned(*board.shape, (not turned.newer[0], not turned.newer[1]))
    if board.known(other).conflict():
        return None
    left = board.testable.copy()
    for spot in board.verdicts:
        left[spot] = False
    spots = [(int(i), int(j)) for i, j in np.argwhere(left)]
    if not spots:
        return None
    goods = [spot for spot, verdict in board.verdicts.items() if verdict == "good"]

    def apart(spot: Spot) -> tuple[int, Spot]:
        return min(abs(spot[0] - i) + abs(spot[1] - j) for i, j in goods), spot

    return AskSpot(max(spots, key=apart), "find out to which side good grows")


def walk(board: Board, turned: Turned, cost: Cost) -> AskSpot | None:
    """The run that tells most per second, among those after which the bound still holds.

    That there always is one follows from `worst_case`: the staircase walk is among them.
    """
    unknown = board.unknown(turned)
    if not unknown.any():
        return None
    for spot in board.begun:
        if unknown[turned.spot(spot)]:
            return AskSpot(spot, "again: one answer is not enough")
    left_over = _places_left(board)
    chances = board.known(turned).chances_good()
    holes = [turned.spot(spot) for spot in board.holes]

    def worth(spot: Spot) -> tuple[float, float, Spot]:
        near = min((abs(spot[0] - i) + abs(spot[1] - j) for i, j in holes), default=None)
        likely = testable(near) / seconds(cost, board.place(turned.spot(spot)))
        told = round(float(entropy(chances[spot])) * likely, 12)
        return (-told, abs(float(chances[spot]) - 0.5), spot)

    spots = sorted(((int(i), int(j)) for i, j in np.argwhere(unknown)), key=worth)
    chosen = next((spot for spot in spots if _affordable(unknown, spot, left_over)), None)
    if chosen is None:
        # only after edited answers: what was paid for may no longer be of use
        chosen = spots[0]
    return AskSpot(turned.spot(chosen), f"{int(unknown.sum())} pairs are open")


def check(board: Board, turned: Turned | None) -> AskSpot | None:
    """A place of which the answer is concluded, as far as can be from all that was asked.

    The places follow from the frontier, not from what was asked, so that they stay the same.
    """
    if turned is None and not board.corners_testable() and _places_left(board) > 0:
        spot = _beyond_the_ends(board)
        if spot is not None:
            return AskSpot(spot, "all are alike, but the corners cannot be tested")
    if board.spec.checks and _places_left(board) > 0:
        for spot in _check_spots(board, turned):
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


def _affordable(unknown: Bools, spot: Spot, left_over: int) -> bool:
    left = (after(unknown, spot, "good"), after(unknown, spot, "bad"))
    return 1 + max(map(worst_case, left)) <= left_over


def _check_spots(board: Board, turned: Turned | None) -> Iterator[Spot]:
    spots = [(int(i), int(j)) for i, j in np.argwhere(board.testable)]
    corner_spots = [board.corner(top, left) for top in (True, False) for left in (True, False)]
    if turned is None:
        seen = {spot for spot in corner_spots if spot is not None}
    else:
        known = board.known(turned)
        edge = (*first_good(known.good), *last_bad(known.bad))
        seen = {turned.spot(spot) for spot in edge}
        seen |= {spot for spot in (corner_spots[0], corner_spots[3]) if spot is not None}
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
