"""The search on one axis: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from harness.bisect.answers import Evidence, Question, Tally, Verdict
from harness.bisect.findings import AxisFinding, Kind
from harness.bisect.flaky import FIX, REGRESSION, Histories, entropy, histories
from harness.bisect.search import AxisSpec, Cost, Search, halvings, seconds, testable


class AxisSearch(Search[AxisSpec, AxisFinding]):
    """Finds where one axis changes."""

    def _step(self, evidence: Evidence) -> Question | AxisFinding:
        state = AxisState.of(self.spec, evidence, self._cost)
        repeat = self.spec.repeat
        return _flaky_step(state) if repeat == "auto" else _exact_step(state, repeat)


@dataclass(frozen=True)
class AxisState:
    """The testable candidates in their order; `tallies`, `said` and `weights` go with them.

    `gaps` says how likely the change is between each two neighbours, `weights` how likely a run of
    a candidate tells anything, per second of its cost.
    """

    spec: AxisSpec
    evidence: Evidence
    names: tuple[str, ...]
    tallies: tuple[Tally, ...]
    gaps: tuple[float, ...]
    said: tuple[Verdict | None, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, spec: AxisSpec, evidence: Evidence, cost: Cost) -> AxisState:
        """What is searched of an axis, without what is known to be untestable."""
        searched = spec.searched()
        met = {at[0] for at in evidence.untestable()}
        names = tuple(name for name in searched if name not in met)
        positions = [searched.index(name) for name in names]
        holes = [i for i, name in enumerate(searched) if name in met]
        gaps = [
            sum(spec.prior.get(name, 1.0) for name in searched[left + 1 : right + 1])
            for left, right in itertools.pairwise(positions)
        ]
        return cls(
            spec=spec,
            evidence=evidence,
            names=names,
            tallies=tuple(evidence.of((name,)) for name in names),
            gaps=tuple(gaps),
            said=tuple(_said(spec, name) for name in names),
            weights=tuple(
                testable(min((abs(i - hole) for hole in holes), default=None)) / seconds(cost, (n,))
                for i, n in zip(positions, names, strict=True)
            ),
        )

    def ask(self, index: int, why: str) -> Question:
        """To run a candidate, by its place among the testable ones."""
        return Question((self.names[index],), self.evidence.runs + 1, why)

    def ends(self) -> Iterator[int]:
        """What is confirmed before anything is searched, in this order.

        The ends; what the user called good comes before the other one, so that it can be measured
        against. If the user named one candidate within, it is first, and then the end that leaves
        more to search: if that already differs, less is left and the other end is not needed.
        """
        last = len(self.names) - 1
        claims = [i for i, said in enumerate(self.said) if said is not None]
        if len(claims) == 1:
            yield claims[0]
            first = 0 if claims[0] > last - claims[0] else last
        else:
            first = next((i for i in claims if self.said[i] == "good" and i in (0, last)), 0)
        yield first
        yield last - first

    def finding(self, kind: Kind, **told: Any) -> AxisFinding:
        """A finding with what every one says: the runs, the tallies, and remarks on the search."""
        found = AxisFinding(kind, **told)
        notes = [*found.notes]
        if found.direction is not None:
            notes += self._surprises(found)
        holes = [name for name in self.spec.searched() if name not in self.names]
        for name in holes:
            said = _said(self.spec, name)
            if said is not None:
                notes.append(f"{name} was said to be {said}, and cannot be tested")
        between = tuple(holes) if kind == "no-change" else found.between
        noisy = [name for name in holes if self.evidence.of((name,)).unsure]
        left = [name for name in holes if name not in (*between, *noisy)]
        for what, names in (("noise hides", noisy), ("could not be tested", left)):
            if names:
                notes.append(f"{what}: {', '.join(names)}")
        return replace(
            found,
            between=between,
            runs=self.evidence.runs,
            unknown=self.evidence.unknown,
            notes=tuple(notes),
        )

    def change(self, way: int, left: int, right: int, **told: Any) -> AxisFinding:
        """The finding of a change between two candidates, with all that lies between them."""
        searched = self.spec.searched()
        before, after = self.names[left], self.names[right]
        between = searched[searched.index(before) + 1 : searched.index(after)]
        return self.finding(
            "range" if between else "change",
            direction="regression" if way == REGRESSION else "fix",
            before=before,
            after=after,
            between=between,
            **told,
        )

    def wrongly_said(self, verdict: Verdict) -> tuple[str, ...]:
        """What was said of candidates which all have this verdict, and is not so."""
        return tuple(
            f"{name} was said to be {said}"
            for name, said in zip(self.names, self.said, strict=True)
            if said not in (None, verdict)
        )

    def _surprises(self, finding: AxisFinding) -> Iterator[str]:
        spec = self.spec
        if finding.direction == "fix":
            yield "the older end is bad and the newer one good: this is the version that fixed it"
        if spec.good is not None and spec.bad is not None:
            order = spec.candidates.index(spec.good) < spec.candidates.index(spec.bad)
            if order != (finding.direction == "regression"):
                yield (
                    f"the ends are the other way round than said: {spec.good} is bad, "
                    f"{spec.bad} is good"
                )


def _said(spec: AxisSpec, name: str) -> Verdict | None:
    return "good" if name == spec.good else "bad" if name == spec.bad else None


def _exact_step(state: AxisState, repeat: int | Literal["judged"]) -> Question | AxisFinding:
    """What to run next, or what was found, if answers are believed.

    First the ends. If they differ, the gaps between them are halved. If they are alike, either
    nothing changed or something changed twice (broken, mended, or broken at first): then the
    widest stretches are looked into, as often as halving would have taken.
    """
    verdicts = [tally.settled(repeat) for tally in state.tallies]
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
    left, right = pairs[-1]
    if right - left > 1 and not spent:
        return _halve(state, left, right)
    return _newest(state, verdicts, pairs)


def _open_end(state: AxisState, verdicts: list[Verdict | None]) -> Question | None:
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


def _changes(verdicts: list[Verdict | None]) -> list[tuple[int, int]]:
    """Neighbours among the settled candidates that differ, in order."""
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    pairs = itertools.pairwise(settled)
    return [(i, j) for i, j in pairs if verdicts[i] != verdicts[j]]


def _look(state: AxisState, verdicts: list[Verdict | None]) -> Question | None:
    """Where the ends are alike: the middle of the widest stretch (the newest of these)."""
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
    if right - left < 2:
        return None
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


def _newest(
    state: AxisState, verdicts: list[Verdict | None], pairs: list[tuple[int, int]]
) -> AxisFinding:
    """The newest change; that there are others is noted."""
    left, right = pairs[-1]
    notes = []
    if len(pairs) > 1:
        others = "; ".join(f"{state.names[i]} and {state.names[j]}" for i, j in pairs[:-1])
        notes.append(f"more than one change: others between {others}")
    if right - left > 1:
        notes.append(f"the limit of {state.evidence.runs} runs was reached")
    way = REGRESSION if verdicts[left] == "good" else FIX
    return state.change(way, left, right, one_change=len(pairs) == 1, notes=tuple(notes))


def _no_change(state: AxisState, verdicts: list[Verdict | None]) -> AxisFinding:
    settled = [verdict for verdict in verdicts if verdict is not None]
    notes = state.wrongly_said(settled[0])
    if len(settled) < len(state.names):
        notes = (*notes, f"{len(settled)} of {len(state.names)} candidates were run")
    return state.finding("no-change", verdict=settled[0], notes=notes)


def _flaky_step(state: AxisState) -> Question | AxisFinding:
    """What to run next, or what was found, if answers may be wrong.

    The ends once each, then always the run that is expected to tell most about where the change
    is, per second of its cost, until one history is sure enough. When the bound is reached, the
    range that holds the change with the wanted confidence is all that can be said.
    """
    limit = state.spec.bound().limit(wasted=state.evidence.wasted())
    number = len(state.names)
    if number < 2:
        which = f"only {state.names[0]}" if number else "no candidate"
        return state.finding("undecided", notes=(f"{which} can be tested",))
    weighed = histories(state.tallies, state.gaps, state.said)
    way, k, chance = weighed.best()
    sure = 1 - weighed.error(way, k)
    undecided = [i for i in state.ends() if not state.tallies[i].told]
    if state.evidence.runs < limit and undecided:
        said = state.said[undecided[0]]
        why = f"confirm that it is {said}" if said else "an end, to begin with"
        return state.ask(undecided[0], why)
    if not weighed.one_change:
        return _more_than_one_change(state, weighed)
    if sure >= state.spec.confidence:
        return _sure(state, way, k, sure)
    if state.evidence.runs >= limit:
        return _range(state, weighed)

    def worth(i: int) -> float:
        return round(float(weighed.gains[i]) * state.weights[i], 12)

    best = max(range(number), key=lambda i: (worth(i), i))
    return state.ask(best, f"tells most; the likeliest answer stands at {chance:.1%}")


def _sure(state: AxisState, way: int, k: int, sure: float) -> AxisFinding:
    if way == REGRESSION and k in (0, len(state.names)):
        verdict: Verdict = "good" if k else "bad"
        notes = state.wrongly_said(verdict)
        return state.finding("no-change", verdict=verdict, confidence=sure, notes=notes)
    return state.change(way, k - 1, k, confidence=sure)


def _range(state: AxisState, weighed: Histories) -> AxisFinding:
    """At the bound: the change lies in the range of the likeliest histories, if they have one."""
    taken, sure = weighed.most(state.spec.confidence)
    ways = {way for way, _ in taken}
    ks = [k for _, k in taken]
    note = f"{state.evidence.runs} runs did not suffice to be surer"
    if len(ways) > 1 or min(ks) < 1 or max(ks) >= len(state.names):
        way, k, best = weighed.best()
        if way == REGRESSION and k in (0, len(state.names)):
            likeliest = f"all are {'good' if k else 'bad'}"
        else:
            likeliest = f"a change with {state.names[k]}"
        text = f"{note}; the likeliest ({best:.0%}): {likeliest}"
        return state.finding("undecided", notes=(text,))
    return state.change(ways.pop(), min(ks) - 1, max(ks), confidence=sure, notes=(note,))


def _more_than_one_change(state: AxisState, weighed: Histories) -> AxisFinding:
    way, k, _ = weighed.best()
    text = "the answers fit no single change"
    if 0 < k < len(state.names):
        what = "regression" if way == REGRESSION else "fix"
        text += f"; the one that fits best is a {what} with {state.names[k]}"
    return state.finding("undecided", one_change=False, notes=(text,))
