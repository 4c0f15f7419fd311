"""The next step on one axis when answers are believed (pure).

A finding has no confidence then: whoever believes each answer has the truth, and how flaky the
test is, a search that asks each candidate once cannot know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from harness.bisect.answers import Verdict
from harness.bisect.bounds import halvings
from harness.bisect.findings import Finding
from harness.bisect.history import FIX, REGRESSION
from harness.bisect.line import Ask, Line
from harness.bisect.noise import entropy


def decide(line: Line, repeat: int) -> Ask | Finding:
    """What to run next, or what was found.

    First the ends. If they differ, the gaps between them are halved. If they are alike, either
    nothing changed or something changed twice (broken, mended, or broken at first): then the
    widest stretches are looked into, as often as halving would have taken.
    """
    verdicts = [tally.settled(repeat) for tally in line.tallies]
    if not line.names:
        return line.finding(Finding("undecided", notes=("no candidate can be tested",)))
    limit = line.bound.limit(wasted=line.evidence.wasted(), alike=True)
    spent = line.evidence.runs >= limit
    ask = _open_end(line, verdicts)
    if ask is not None:
        if spent:
            return line.finding(Finding("undecided", notes=(f"{limit} runs did not suffice",)))
        return ask
    if len(line.names) == 1:
        only = f"only {line.names[0]} can be tested: it is {verdicts[0]}"
        return line.finding(Finding("undecided", verdict=verdicts[0], notes=(only,)))
    pairs = _changes(verdicts)
    if not pairs:
        look = _look(line, verdicts)
        return _no_change(line, verdicts) if look is None or spent else look
    left, right = pairs[-1]
    if right - left > 1 and not spent:
        return _halve(line, left, right, repeat)
    return _change(line, verdicts, pairs)


def _open_end(line: Line, verdicts: list[Verdict | None]) -> Ask | None:
    """The next of the ends that is not confirmed yet, unless a change is in sight without it."""
    settled: list[int] = []
    for index in line.ends():
        if verdicts[index] is None:
            if len({verdicts[i] for i in settled}) == 2:
                return None
            return Ask(index, _why_end(line, index))
        settled.append(index)
    return None


def _why_end(line: Line, index: int) -> str:
    said = line.said[index]
    if said is not None:
        return f"confirm that it is {said}"
    return "the oldest" if index == 0 else "the newest"


def _changes(verdicts: list[Verdict | None]) -> list[tuple[int, int]]:
    """Neighbours among the settled candidates that differ, in order."""
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    pairs = itertools.pairwise(settled)
    return [(i, j) for i, j in pairs if verdicts[i] != verdicts[j]]


def _look(line: Line, verdicts: list[Verdict | None]) -> Ask | None:
    """Where the ends are alike: the middle of the widest stretch (the newest of these)."""
    if line.spec.good is not None and line.spec.bad is not None:
        return None
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    if len(settled) - 2 >= halvings(len(line.names) - 1):
        return None
    begun = [i for i, tally in enumerate(line.tallies) if verdicts[i] is None and tally.told]
    if begun:
        return Ask(begun[0], "again: one answer is not enough")
    stretches = itertools.pairwise(settled)
    left, right = max(stretches, key=lambda pair: (pair[1] - pair[0], pair[0]))
    if right - left < 2:
        return None
    return Ask((left + right) // 2, "both ends are alike: look for one that differs")


def _halve(line: Line, left: int, right: int, repeat: int) -> Ask:
    """The run that tells most per second, among those after which the bound still holds."""
    inside = range(left + 1, right)
    for i in inside:
        if line.tallies[i].told:
            return Ask(i, "again: one answer is not enough")
    limit = line.bound.limit(wasted=line.evidence.wasted())
    left_over = (limit - line.evidence.runs) // repeat
    most = 2 ** (max(halvings(right - left), left_over) - 1)
    masses = np.cumsum(line.gaps[left:right])
    share = masses / masses[-1]

    def worth(i: int) -> tuple[float, int]:
        told = float(entropy(share[i - left - 1])) * line.weights[i]
        return (round(told, 12), -abs(2 * i - left - right))

    allowed = [i for i in inside if max(i - left, right - i) <= most]
    gaps = right - left
    return Ask(max(allowed, key=worth), f"splits {gaps} places where it can have changed")


def _change(line: Line, verdicts: list[Verdict | None], pairs: list[tuple[int, int]]) -> Finding:
    left, right = pairs[-1]
    between = line.between(left, right)
    way = REGRESSION if verdicts[left] == "good" else FIX
    notes = []
    if len(pairs) > 1:
        others = (f"{line.names[i]} and {line.names[j]}" for i, j in pairs[:-1])
        notes.append(f"more than one change: others between {_listed(others)}")
    if right - left > 1:
        notes.append(f"the limit of {line.evidence.runs} runs was reached")
    return line.finding(
        Finding(
            kind="range" if between else "change",
            direction="regression" if way == REGRESSION else "fix",
            before=line.names[left],
            after=line.names[right],
            between=between,
            one_change=len(pairs) == 1,
            notes=tuple(notes),
        )
    )


def _no_change(line: Line, verdicts: list[Verdict | None]) -> Finding:
    settled = [verdict for verdict in verdicts if verdict is not None]
    spec, notes = line.spec, []
    for name in (spec.good, spec.bad):
        if name in line.names and line.said[line.names.index(name)] != settled[0]:
            notes.append(f"{name} was said to be {line.said[line.names.index(name)]}")
    if len(settled) < len(line.names):
        notes.append(f"{len(settled)} of {len(line.names)} candidates were run")
    return line.finding(Finding("no-change", verdict=settled[0], notes=tuple(notes)))


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)
