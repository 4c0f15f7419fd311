"""The search on two axes: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

import numpy as np

from harness.bisect.answers import Answer, Evidence, Place, Question, Stopped
from harness.bisect.board import Board
from harness.bisect.bounds import Bound
from harness.bisect.frontier import Spot, Turned
from harness.bisect.grid_findings import GridFinding
from harness.bisect.grid_outcome import finding
from harness.bisect.grid_steps import AskSpot, check, corners, doubt, walk
from harness.bisect.line import Cost
from harness.bisect.search import free
from harness.bisect.specs import GridSpec


class GridSearch:
    """Finds where a grid of two axes changes, in rows + columns + 4 runs or fewer.

    Corners first, then places on the frontier between good and bad, then a few checks of what was
    only concluded. As with `Search`, what it asks follows from the spec, the answers and the
    costs alone.
    """

    def __init__(
        self, spec: GridSpec, *, cost: Cost = free, evidence: Evidence | None = None
    ) -> None:
        """`cost` says how many seconds a run takes, with fetching, pushing and compiling."""
        self.spec = spec
        self.evidence = evidence or Evidence()
        self._cost = cost

    @property
    def bound(self) -> Bound:
        """How many runs it may take; say it before the first."""
        return self.spec.bound()

    def next(self) -> Question | Stopped | GridFinding:
        """What to run next; or what was found; or that the lab must be seen to first."""
        step = self._step(self.evidence)
        if isinstance(step, Question) and self.evidence.troubles >= self.spec.patience:
            return Stopped(self.evidence.troubles, step)
        return step

    def answer(self, question: Question, answer: Answer) -> None:
        """What came of a run. `unknown` means that the lab failed: the same is asked again."""
        self.evidence = self.evidence.plus(question.at, answer)

    def resume(self) -> None:
        """The lab was seen to: go on."""
        self.evidence = self.evidence.resumed()

    def ahead(self) -> tuple[Place, ...]:
        """Where the next but one run will be, for each answer of the next: worth fetching now."""
        first = self._step(self.evidence)
        if isinstance(first, GridFinding):
            return ()
        answers: tuple[Answer, ...] = ("good", "bad", "untestable")
        steps = [self._step(self.evidence.plus(first.at, answer)) for answer in answers]
        places = [step.at for step in steps if isinstance(step, Question)]
        return tuple(dict.fromkeys(at for at in places if at != first.at))

    def snapshot(self) -> GridFinding:
        """What is known up to now, for a drawing while it runs."""
        board = Board(self.spec, self.evidence)
        ends = None if self.spec.every else corners(board)
        turned = getattr(ends, "turned", None)
        if turned is not None and board.known(turned).conflict():
            turned = None
        return finding(board, "partial", turned)

    def _step(self, evidence: Evidence) -> Question | GridFinding:
        board = Board(self.spec, evidence)
        step = _every(board) if self.spec.every else _decide(board, self._cost)
        if isinstance(step, AskSpot):
            if evidence.runs >= board.limit():
                return _out_of_runs(board)
            return Question(board.place(step.spot), evidence.runs + 1, step.why)
        return step


def _decide(board: Board, cost: Cost) -> AskSpot | GridFinding:
    ends = corners(board)
    if ends is None:
        return finding(board, "undecided", None, notes=("no pair can be tested",))
    if isinstance(ends, AskSpot):
        return ends
    if ends.crossed:
        note = "corners opposite each other are alike, and neighbours differ"
        spots = [board.corner(top, left) for top in (True, False) for left in (True, False)]
        witnesses = tuple(board.place(spot) for spot in spots if spot is not None)
        return finding(board, "not-monotone", None, notes=(note,), witnesses=witnesses)
    if ends.turned is None:
        return check(board, None) or _alike(board)
    pair = board.witnesses(ends.turned)
    if pair is not None:
        return _not_monotone(board, pair)
    step = walk(board, ends.turned, cost) or doubt(board, ends.turned)
    step = step or check(board, ends.turned)
    return step or finding(board, "frontier", ends.turned)


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
        return finding(board, "undecided", None, notes=("no pair can be tested",))
    if len(set(board.verdicts.values())) == 1:
        return _alike(board)
    ways = board.ways()
    if ways:
        return finding(board, "frontier", ways[0])
    pairs = [board.witnesses(Turned(*board.shape, way)) for way in ((True, True), (False, False))]
    found = next(pair for pair in pairs if pair is not None)
    return _not_monotone(board, found)


def _alike(board: Board) -> GridFinding:
    """The corners are alike; whether the rest is, a check may have refuted."""
    values = list(board.verdicts.values())
    if len(set(values)) > 1:
        odd = min(set(values), key=values.count)
        places = tuple(board.place(s) for s, verdict in board.verdicts.items() if verdict == odd)
        note = f"all corners are alike, but {' with '.join(places[0])} is {odd}"
        return finding(board, "not-monotone", None, notes=(note,), witnesses=places)
    notes = (f"{len(values)} of {int(board.testable.sum())} pairs were run",)
    return finding(board, "no-change", None, notes=notes)


def _not_monotone(board: Board, pair: tuple[Spot, Spot]) -> GridFinding:
    good, bad = (board.place(spot) for spot in pair)
    note = (
        f"{' with '.join(good)} is good and {' with '.join(bad)} is bad: good does not grow to one "
        "side of each axis. Nothing was concluded; run every pair to see the grid"
    )
    return finding(board, "not-monotone", None, notes=(note,), witnesses=(good, bad))


def _out_of_runs(board: Board) -> GridFinding:
    ends = None if board.spec.every else corners(board)
    turned = getattr(ends, "turned", None)
    notes = (f"the limit of {board.evidence.runs} runs was reached",)
    if turned is None:
        return finding(board, "undecided", None, notes=notes)
    open_left = board.unknown(turned).any()
    return finding(board, "partial" if open_left else "frontier", turned, notes=notes)
