"""The runs of a bisection to set side by side: one before a change, one after it (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.search.bisect.answers import Point, RunAnswer
from harness.search.bisect.findings import AxisFinding, Change, Finding
from harness.search.bisect.log import Answered


def edges_of(finding: Finding | None, answers: Sequence[Answered]) -> list[tuple[int, int]]:
    """The pairs of runs that show what made a difference, by their positions among the answers.

    There is one for each change, the older run first; the first pair is of the change asked for.
    """
    edges: list[tuple[int, int]] = []
    for place, (change, old, new) in enumerate(_changes_of(finding)):
        kinds: tuple[RunAnswer, RunAnswer] = ("good", "bad")
        older, newer = kinds if change.direction == "regression" else kinds[::-1]
        before, after = _last(answers, old, older), _last(answers, new, newer)
        if before is not None and after is not None:
            edges.append((before, after))
        elif not place:
            return []
    return edges


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
