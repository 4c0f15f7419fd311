"""The search on one axis: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from harness.search.bisect.answers import Evidence, GoodOrBad, Question
from harness.search.bisect.axis_state import AxisState
from harness.search.bisect.findings import AxisFinding
from harness.search.bisect.flaky import entropy
from harness.search.bisect.rate_search import rate_step
from harness.search.bisect.search import AxisSpec, Search, halvings


class AxisSearch(Search[AxisSpec, AxisFinding]):
    """Finds where one axis changes."""

    def _step(self, evidence: Evidence) -> Question | AxisFinding:
        state = AxisState.of(self.spec, evidence, self._cost)
        least = self.spec.least
        return _exact_step(state) if least is None else rate_step(state, least)


def _exact_step(state: AxisState) -> Question | AxisFinding:
    """What to run next, or what was found, if answers are believed.

    First the ends. If they differ, the gaps between them are halved. If they are alike, nothing
    changed, or something changed twice (broken and mended, or the other way). Then the widest
    stretches are looked into, as often as halving would have taken.
    """
    verdicts = [tally.settled(state.spec.repeat) for tally in state.tallies]
    if not state.names:
        return state.finding("undecided", notes=("no candidate can be tested",))
    limit = state.spec.bound().limit(wasted=state.evidence.wasted(), alike=True)
    spent = state.evidence.runs >= limit
    ask = _open_end(state, verdicts)
    if ask is not None:
        if spent:
            return state.finding("undecided", notes=(f"{limit} runs did not suffice",))
        return ask
    if len(state.spec.candidates) == 1:
        return state.finding("no-change", verdict=verdicts[0], only=state.names[0])
    if len(state.names) == 1:
        only = f"only {state.names[0]} can be tested: it is {verdicts[0]}"
        return state.finding("undecided", verdict=verdicts[0], notes=(only,))
    pairs = _changes(verdicts)
    if not pairs:
        look = _look(state, verdicts)
        return _no_change(state, verdicts) if look is None or spent else look
    order = _as_asked(state, verdicts, pairs)
    wide = [(left, right) for left, right in order if right - left > 1]
    return _halve(state, *wide[0]) if wide and not spent else _change(state, verdicts, order[0])


def _open_end(state: AxisState, verdicts: list[GoodOrBad | None]) -> Question | None:
    """The next of the ends that is not confirmed yet, unless a change is in sight without it."""
    settled: list[int] = []
    for index in state.ends():
        if verdicts[index] is None:
            if len({verdicts[i] for i in settled}) == 2:
                return None
            return state.ask(index, _why_end(state, index))
        settled.append(index)
    return None


def _why_end(state: AxisState, index: int) -> str:
    said = state.said[index]
    if said is not None:
        return f"confirm that it is {said}"
    return "the oldest" if index == 0 else "the newest"


def _changes(verdicts: list[GoodOrBad | None]) -> list[tuple[int, int]]:
    """Neighbours among the settled candidates that differ, in order."""
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    pairs = itertools.pairwise(settled)
    return [(i, j) for i, j in pairs if verdicts[i] != verdicts[j]]


def _look(state: AxisState, verdicts: list[GoodOrBad | None]) -> Question | None:
    """The next run if the ends are alike: the middle of the widest stretch (the newest)."""
    if state.spec.good is not None and state.spec.bad is not None:
        return None
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    if len(settled) - 2 >= halvings(len(state.names) - 1):
        return None
    begun = [i for i, tally in enumerate(state.tallies) if verdicts[i] is None and tally.told]
    if begun:
        return state.ask(begun[0], "again: one answer is not enough")
    stretches = itertools.pairwise(settled)
    left, right = max(stretches, key=lambda pair: (pair[1] - pair[0], pair[0]))
    return state.ask((left + right) // 2, "both ends are alike: look for one that differs")


def _halve(state: AxisState, left: int, right: int) -> Question:
    """The run that tells most per second, among those after which the bound still holds."""
    inside = range(left + 1, right)
    for i in inside:
        if state.tallies[i].told:
            return state.ask(i, "again: one answer is not enough")
    limit = state.spec.bound().limit(wasted=state.evidence.wasted())
    left_over = (limit - state.evidence.runs) // state.spec.most_each
    most = 2 ** (max(halvings(right - left), left_over) - 1)
    masses = np.cumsum(state.gaps[left:right])
    share = masses / masses[-1]

    def worth(i: int) -> tuple[float, int]:
        told = float(entropy(share[i - left - 1])) * state.weights[i]
        return (round(told, 12), -abs(2 * i - left - right))

    allowed = [i for i in inside if max(i - left, right - i) <= most]
    gaps = right - left
    return state.ask(max(allowed, key=worth), f"splits {gaps} places where it can have changed")


def _as_asked(
    state: AxisState, verdicts: list[GoodOrBad | None], pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The changes in the order in which they are looked for: those asked for, the newest first.

    The question is what broke it, unless what was called good is newer than what was called bad.
    """
    spec = state.spec
    asked: GoodOrBad = "good"
    if spec.good is not None and spec.bad is not None:
        older_is_good = spec.candidates.index(spec.good) < spec.candidates.index(spec.bad)
        asked = "good" if older_is_good else "bad"
    return sorted(pairs, key=lambda pair: (verdicts[pair[0]] != asked, -pair[0]))


def _change(
    state: AxisState, verdicts: list[GoodOrBad | None], chosen: tuple[int, int]
) -> AxisFinding:
    """The change that was chosen, with the others before it and after it."""
    found = {
        pair: state.between("regression" if verdicts[pair[0]] == "good" else "fix", *pair)
        for pair in _changes(verdicts)
    }
    notes: tuple[str, ...] = ()
    if any(right - left > 1 for left, right in found):
        notes = (f"the limit of {state.evidence.runs} runs was reached",)
    return state.change(
        found[chosen],
        verdicts,
        one_change=len(found) == 1,
        older=tuple(one for pair, one in found.items() if pair < chosen),
        newer=tuple(one for pair, one in found.items() if pair > chosen),
        notes=notes,
    )


def _no_change(state: AxisState, verdicts: list[GoodOrBad | None]) -> AxisFinding:
    settled = [verdict for verdict in verdicts if verdict is not None]
    told: dict[str, Any] = {}
    if len(settled) < len(state.names):
        notes = (f"{len(settled)} of {len(state.names)} candidates were run",)
        told = {"looked_at": len(settled), "notes": notes}
    return state.finding("no-change", verdicts, verdict=settled[0], **told)
