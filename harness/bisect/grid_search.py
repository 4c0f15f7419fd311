"""The search on two axes: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

import numpy as np

from harness.bisect.answers import Evidence, Question
from harness.bisect.board import Board
from harness.bisect.frontier import Turned
from harness.bisect.grid_findings import GridFinding
from harness.bisect.grid_outcome import finding
from harness.bisect.grid_steps import AskSpot, check, corners, walk
from harness.bisect.line import Cost
from harness.bisect.search import Asking
from harness.bisect.specs import GridSpec


class GridSearch(Asking[GridSpec, GridFinding]):
    """Finds where a grid of two axes changes, in rows + columns + 4 runs or fewer.

    Corners first, then places on the frontier between good and bad, then a few checks of what was
    only concluded.
    """

    def snapshot(self) -> GridFinding:
        """What is known up to now, for a drawing while it runs."""
        board = Board(self.spec, self.evidence)
        ready = not self.spec.every and corners(board) is None
        return finding(board, "partial", _ways(board) if ready else ())

    def _step(self, evidence: Evidence) -> Question | GridFinding:
        board = Board(self.spec, evidence)
        step = _every(board) if self.spec.every else _decide(board, self._cost)
        if isinstance(step, AskSpot):
            if evidence.runs >= board.limit():
                return _out_of_runs(board)
            return Question(board.place(step.spot), evidence.runs + 1, step.why)
        return step


def _decide(board: Board, cost: Cost) -> AskSpot | GridFinding:
    corner = corners(board)
    if corner is not None:
        return corner
    if not board.verdicts:
        return finding(board, "undecided", notes=("no pair can be tested",))
    if _corners_alike(board):
        return check(board, ()) or _alike(board)
    ways = _ways(board)
    if not ways:
        return _not_monotone(board)
    step = walk(board, ways, cost) or check(board, ways)
    return step or finding(board, "frontier", ways)


def _corners_alike(board: Board) -> bool:
    """Whether nothing changes as far as the corners tell; `check` may find otherwise."""
    if board.corners_testable():
        spots = board.ends()
        return len({board.verdicts[spot] for spot in spots if spot in board.verdicts}) == 1
    return len(set(board.verdicts.values())) == 1


def _ways(board: Board) -> list[Turned]:
    """The ways that fit, unless nothing was found that differs."""
    return board.ways() if len(set(board.verdicts.values())) > 1 else []


def _every(board: Board) -> AskSpot | GridFinding:
    """All places in turn; what they say is then judged as a whole."""
    left = [
        (int(i), int(j))
        for i, j in np.argwhere(board.testable)
        if (int(i), int(j)) not in board.verdicts
    ]
    if left:
        return AskSpot(left[0], f"every pair is run, {len(left)} are left")
    if not board.verdicts:
        return finding(board, "undecided", notes=("no pair can be tested",))
    if len(set(board.verdicts.values())) == 1:
        return _alike(board)
    ways = board.ways()
    if ways:
        return finding(board, "frontier", ways[:1])
    return _not_monotone(board)


def _alike(board: Board) -> GridFinding:
    """The corners are alike; whether the rest is, a check may have refuted."""
    values = list(board.verdicts.values())
    if len(set(values)) > 1:
        odd = min(set(values), key=values.count)
        places = tuple(board.place(s) for s, verdict in board.verdicts.items() if verdict == odd)
        ends = "all corners" if board.spec.newer is None else "the ends, as was told of them,"
        note = f"{ends} are alike, but {' with '.join(places[0])} is {odd}"
        return finding(board, "not-monotone", notes=(note,), witnesses=places)
    return finding(board, "no-change")


def _not_monotone(board: Board) -> GridFinding:
    """No way to turn the grid fits: two answers that contradict the likeliest one are named."""
    high = board.corner(False, False)
    grows = high is None or board.verdicts.get(high) != "bad"
    newer = board.spec.newer or (True, True)
    likely = Turned(*board.shape, newer if grows else (not newer[0], not newer[1]))
    other = Turned(*board.shape, (not likely.newer[0], not likely.newer[1]))
    pair = board.witnesses(likely) or board.witnesses(other)
    places = tuple(board.place(spot) for spot in pair or ())
    said = " and ".join(
        f"{' with '.join(place)} is {verdict}"
        for place, verdict in zip(places, ("good", "bad"), strict=bool(pair))
    )
    fits = "neither does any other direction of the axes fit all answers"
    if board.spec.newer is not None:
        fits = "the axes do not go as was told"
    note = f"{said}: {fits}. Nothing was concluded; run every pair to see the grid"
    return finding(board, "not-monotone", notes=(note,), witnesses=places)


def _out_of_runs(board: Board) -> GridFinding:
    ready = not board.spec.every and corners(board) is None
    ways = _ways(board) if ready else []
    notes = [f"the limit of {board.evidence.runs} runs was reached"]
    if not ways:
        return finding(board, "undecided", notes=tuple(notes))
    good, bad = board.agreed(ways)
    if not (board.testable & ~(good | bad)).any():
        return finding(board, "frontier", ways, notes=tuple(notes))
    if len(ways) > 1:
        notes.append(
            "it is not known yet on which axes newer is better; to tell it lets more follow"
        )
    return finding(board, "partial", ways, notes=tuple(notes))
