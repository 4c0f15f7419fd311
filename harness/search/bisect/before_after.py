"""The runs of a bisection to set side by side: one before a change, one after it (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.search.bisect.answers import Point, RunAnswer
from harness.search.bisect.findings import AxisFinding, Change, Finding
from harness.search.bisect.log import Answered

Sides = tuple[int | None, int | None]


def sides_of(finding: Finding | None, answers: Sequence[Answered]) -> Sides:
    """The runs to set side by side, the older first: their positions among the answers.

    These are the neighbours of the first change, or the only side.
    """
    if isinstance(finding, AxisFinding) and finding.only and finding.verdict:
        return _last(answers, (finding.only,), finding.verdict), None
    return next(_all_sides(finding, answers), (None, None))


def edges_of(finding: Finding | None, answers: Sequence[Answered]) -> list[tuple[int, int]]:
    """The pairs of runs that show what made a difference: one for each change, `sides_of` first."""
    sides = list(_all_sides(finding, answers))
    edges = [(before, after) for before, after in sides if before is not None and after is not None]
    return edges if edges and edges[0] == sides[0] else []


def _all_sides(finding: Finding | None, answers: Sequence[Answered]) -> Iterator[Sides]:
    for change, before, after in _changes_of(finding):
        kinds: tuple[RunAnswer, RunAnswer] = ("good", "bad")
        old, new = kinds if change.direction == "regression" else kinds[::-1]
        yield _last(answers, before, old), _last(answers, after, new)


def _changes_of(finding: Finding | None) -> Iterator[tuple[Change, Point, Point]]:
    """Each change, and the points before it and after it."""
    if isinstance(finding, AxisFinding):
        yield from ((one, (one.before,), (one.after,)) for one in finding.asked_first)
    elif finding is not None:
        for search in finding.searches:
            for one in search.answer.asked_first:
                yield one, finding.point(search, one.before), finding.point(search, one.after)


def _last(answers: Sequence[Answered], at: Point, answer: RunAnswer) -> int | None:
    alike = (at, answer)
    return max((i for i, one in enumerate(answers) if (one.at, one.answer) == alike), default=None)
