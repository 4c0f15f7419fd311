"""The two runs of a bisection to set side by side: one before the change, one after it (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from harness.search.bisect.answers import RunAnswer
from harness.search.bisect.findings import AxisChange, AxisFinding, GridFinding
from harness.search.bisect.log import Answered


def sides_of(
    finding: AxisFinding | GridFinding | None, answers: Sequence[Answered]
) -> tuple[int | None, int | None]:
    """The runs to set side by side, the older first: their positions among the answers.

    On one axis these are the neighbours of the change, or the only side. On a grid they are the two
    unlike answers that lie closest to each other.
    """
    if isinstance(finding, AxisFinding) and finding.changes:
        return _around(finding.changes[len(finding.older)], answers)
    if isinstance(finding, AxisFinding) and finding.only and finding.verdict:
        return _last(answers, finding.only, finding.verdict), None
    if isinstance(finding, GridFinding):
        return next((pair for _, pair in _unlike(finding, answers)), (None, None))
    return None, None


def edges_of(
    finding: AxisFinding | GridFinding | None, answers: Sequence[Answered]
) -> list[tuple[int, int]]:
    """The pairs of runs that show what made a difference; `sides_of` first.

    On one axis there is a pair for each change. On a grid on which both axes matter there is a pair
    for each axis: the closest unlike answers that differ on that axis alone, if there are any.
    """
    before, after = sides_of(finding, answers)
    if before is None or after is None:
        return []
    edges = [(before, after)]
    if isinstance(finding, AxisFinding):
        for change in (*finding.older, *finding.newer):
            older, newer = _around(change, answers)
            edges += [(older, newer)] if older is not None and newer is not None else []
    if isinstance(finding, GridFinding):
        pairs = _unlike(finding, answers)
        shown, _ = pairs[0]
        for axis, mattered in enumerate(finding.mattered):
            alone = [pair for on, pair in pairs if on == {axis}]
            if alone and axis not in shown and mattered is not False:
                edges.append(alone[0])
    return edges


def _around(change: AxisChange, answers: Sequence[Answered]) -> tuple[int | None, int | None]:
    regression = change.direction == "regression"
    before = _last(answers, change.before, "good" if regression else "bad")
    return before, _last(answers, change.after, "bad" if regression else "good")


def _last(answers: Sequence[Answered], version: str, answer: RunAnswer) -> int | None:
    alike = ((version,), answer)
    return max((i for i, one in enumerate(answers) if (one.at, one.answer) == alike), default=None)


def _unlike(
    finding: GridFinding, answers: Sequence[Answered]
) -> list[tuple[frozenset[int], tuple[int, int]]]:
    """All pairs of a good and a bad answer, the older run first; those that tell most in front.

    Each comes with the axes, 0 or 1, on which the two differ. An answer that is not what its point
    was found to be does not count: a flaky point has both kinds.
    """
    rows = list(dict.fromkeys(row for row, _ in finding.cells))
    columns = list(dict.fromkeys(column for _, column in finding.cells))
    cells = [(rows.index(one.at[0]), columns.index(one.at[1])) for one in answers]
    told = [
        i for i, one in enumerate(answers) if finding.cells[one.at].verdict in (None, one.answer)
    ]
    goods, bads = ([i for i in told if answers[i].answer == one] for one in ("good", "bad"))
    found = []
    for good, bad in itertools.product(goods, bads):
        if cells[good] != cells[bad]:
            apart = [abs(a - b) for a, b in zip(cells[good], cells[bad], strict=True)]
            on = frozenset(axis for axis, far in enumerate(apart) if far)
            # pairs that differ on one axis only say more than neighbours across a corner
            order = len(on), sum(apart), -good, -bad
            older, newer = sorted((good, bad), key=cells.__getitem__)
            found.append((order, on, (older, newer)))
    return [(on, pair) for _, on, pair in sorted(found, key=lambda one: one[0])]
