"""The search on one axis: ask it what to run, tell it what came of it (pure)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.search.bisect.answers import Evidence, GoodOrBad, Question, Tally
from harness.search.bisect.findings import (
    AxisFinding,
    Change,
    Direction,
    FindingKind,
    flaky_versions,
)
from harness.search.bisect.search import AxisSpec, Search, halvings

Verdicts = Sequence[GoodOrBad | None]


class AxisSearch(Search[AxisSpec, AxisFinding]):
    """Finds where one axis changes."""

    def _step(self, evidence: Evidence) -> Question | AxisFinding:
        return axis_step(self.spec, evidence)


def axis_step(spec: AxisSpec, evidence: Evidence) -> Question | AxisFinding:
    """Return the next run, or the answer.

    First the ends. If they differ, the gaps between them are halved. If they are alike, nothing
    changed, or something changed twice (broken and mended, or the other way). Then the widest
    stretches are looked into, as often as halving would have taken.
    """
    state = AxisState.of(spec, evidence)
    verdicts = [tally.settled(spec.repeat) for tally in state.tallies]
    if not state.names:
        return state.finding("undecided", notes=["no candidate can be tested"])
    limit = spec.bound().limit(wasted=evidence.wasted(), alike=True)
    spent = evidence.runs >= limit
    ask = _open_end(state, verdicts)
    if ask is not None:
        if spent:
            return state.finding("undecided", notes=[f"{limit} runs did not suffice"])
        return ask
    if len(spec.candidates) == 1:
        said = f"{state.names[0]} is {verdicts[0]}"
        return state.finding("no-change", said, verdict=verdicts[0])
    if len(state.names) == 1:
        only = f"only {state.names[0]} can be tested: it is {verdicts[0]}"
        return state.finding("undecided", verdict=verdicts[0], notes=[only])
    pairs = _changes(verdicts)
    if not pairs:
        look = _look(state, verdicts)
        return _no_change(state, verdicts) if look is None or spent else look
    order = _as_asked(state, verdicts, pairs)
    wide = [(left, right) for left, right in order if right - left > 1]
    if wide and not spent:
        return _halve(state, *wide[0])
    changes = [state.change(verdicts, *pair) for pair in pairs]
    notes = [f"the limit of {evidence.runs} runs was reached"] if wide else []
    return state.finding(
        "change", states=verdicts, notes=notes, changes=changes, asked=pairs.index(order[0])
    )


@dataclass(frozen=True)
class AxisState:
    """The testable candidates in their order; `tallies`, `said` and `weights` go with them.

    `places` are theirs among all candidates that are searched. `weights` says how likely a
    candidate can be tested: what breaks an installation mostly breaks those of its neighbours, too.
    """

    spec: AxisSpec
    evidence: Evidence
    names: tuple[str, ...]
    places: tuple[int, ...]
    tallies: tuple[Tally, ...]
    said: tuple[GoodOrBad | None, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, spec: AxisSpec, evidence: Evidence) -> AxisState:
        """Return what is searched of an axis, without what is known to be untestable."""
        searched = spec.searched()
        untestable = {at[0] for at in evidence.untestable()}
        names = tuple(name for name in searched if name not in untestable)
        places = tuple(searched.index(name) for name in names)
        holes = [i for i, name in enumerate(searched) if name in untestable]
        return cls(
            spec=spec,
            evidence=evidence,
            names=names,
            places=places,
            tallies=tuple(evidence.of((name,)) for name in names),
            said=tuple(_said(spec, name) for name in names),
            weights=tuple(
                1 - 0.5 ** min((abs(i - hole) for hole in holes), default=math.inf) for i in places
            ),
        )

    def ask(self, index: int, why: str) -> Question:
        """The question to run a candidate, by its place among the testable ones."""
        return Question(at=(self.names[index],), number=self.evidence.runs + 1, why=why)

    def ends(self) -> Iterator[int]:
        """What is confirmed before anything is searched, in this order.

        The ends. What the user called good comes first, so that the other can be measured against
        it. If the user named one candidate within, that comes first. Then comes the end that must
        be of the other kind if newer versions are worse, since the question is what broke it. If
        that end differs, the other is not needed.
        """
        last = len(self.names) - 1
        claims = [i for i, said in enumerate(self.said) if said is not None]
        if len(claims) == 1:
            yield claims[0]
            first = 0 if self.said[claims[0]] == "bad" else last
        else:
            first = next((i for i in claims if self.said[i] == "good"), 0)
        yield first
        yield last - first

    def change(self, verdicts: Verdicts, left: int, right: int) -> Change:
        """A change between two candidates, with all that lies between them."""
        between = self.spec.searched()[self.places[left] + 1 : self.places[right]]
        direction: Direction = "regression" if verdicts[left] == "good" else "fix"
        return Change.of(direction, self.names[left], self.names[right], between)

    def finding(
        self,
        kind: FindingKind,
        said: str = "",
        states: Verdicts = (),
        *,
        notes: Sequence[str] = (),
        changes: Sequence[Change] = (),
        asked: int = 0,
        verdict: GoodOrBad | None = None,
    ) -> AxisFinding:
        """A finding, with the runs and remarks on the search.

        `states` has what the candidates are, as far as that is known. `changes[asked]` is the one
        that was asked for.
        """
        change = changes[asked] if changes else Change()
        remarks = [*notes, *_turns(changes, states), *self._wrongly_said(states)]
        holes = [name for name in self.spec.searched() if name not in self.names]
        for name in holes:
            claim = _said(self.spec, name)
            if claim is not None:
                remarks.append(f"{name} was said to be {claim}, and cannot be tested")
        between = tuple(holes) if kind == "no-change" else change.between
        noisy = [name for name in holes if self.evidence.of((name,)).unsure]
        left = [name for name in holes if name not in (*between, *noisy)]
        for problem, names in (("noise hides", noisy), ("could not be tested", left)):
            if names:
                remarks.append(f"{problem}: {', '.join(names)}")
        if kind == "undecided":
            said = f"undecided: {'; '.join(remarks)}"
        elif kind == "no-change" and between:
            said += f"; undecided: {', '.join(between)}"
        elif changes:
            before = (f"; before that {one.said}" for one in reversed(changes[:asked]))
            after = (f"; then {one.said}" for one in changes[asked + 1 :])
            said = "".join([change.said, *before, *after])
        return AxisFinding(
            **change.model_dump() | {"between": between},
            text=said,
            kind="range" if change.between else kind,
            verdict=verdict,
            runs=self.evidence.runs,
            unknown=self.evidence.unknown,
            notes=tuple(remarks),
            flaky=flaky_versions(self.evidence, self.spec.repeat),
            changes=tuple(changes),
        )

    def _wrongly_said(self, states: Verdicts) -> Iterator[str]:
        """Claims of the user that are not so."""
        claims = zip(self.names, self.said, states or [None] * len(self.names), strict=True)
        known = [(name, said, state) for name, said, state in claims if said and state]
        wrong = [(name, said, state) for name, said, state in known if said != state]
        if len(wrong) == 2:
            named = ", ".join(f"{name} is {state}" for name, _, state in wrong)
            yield f"the ends are the other way round than said: {named}"
        else:
            yield from (f"{name} was said to be {said}, and is {now}" for name, said, now in wrong)


def _said(spec: AxisSpec, name: str) -> GoodOrBad | None:
    return "good" if name == spec.good else "bad" if name == spec.bad else None


def _open_end(state: AxisState, verdicts: Verdicts) -> Question | None:
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


def _changes(verdicts: Verdicts) -> list[tuple[int, int]]:
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    pairs = itertools.pairwise(settled)
    return [(i, j) for i, j in pairs if verdicts[i] != verdicts[j]]


def _look(state: AxisState, verdicts: Verdicts) -> Question | None:
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
    """The run that tells most, among those after which the bound still holds."""
    inside = range(left + 1, right)
    for i in inside:
        if state.tallies[i].told:
            return state.ask(i, "again: one answer is not enough")
    limit = state.spec.bound().limit(wasted=state.evidence.wasted())
    left_over = (limit - state.evidence.runs) // state.spec.most_each
    most = 2 ** (max(halvings(right - left), left_over) - 1)
    first, last = state.places[left], state.places[right]

    def worth(i: int) -> tuple[float, int]:
        share = (state.places[i] - first) / (last - first)
        bits = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
        return (round(bits * state.weights[i], 12), -abs(2 * i - left - right))

    allowed = [i for i in inside if max(i - left, right - i) <= most]
    gaps = right - left
    return state.ask(max(allowed, key=worth), f"splits {gaps} places where it can have changed")


def _as_asked(
    state: AxisState, verdicts: Verdicts, pairs: list[tuple[int, int]]
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


def _no_change(state: AxisState, verdicts: Verdicts) -> AxisFinding:
    settled = [verdict for verdict in verdicts if verdict is not None]
    holes = len(state.names) < len(state.spec.searched())
    which, notes = ("all that could be tested" if holes else "all"), list[str]()
    if len(settled) < len(state.names):
        which = "both ends" if len(settled) == 2 else f"all {len(settled)} that were run"
        notes = [f"{len(settled)} of {len(state.names)} candidates were run"]
    said = f"no change: {which} are {settled[0]}"
    return state.finding("no-change", said, verdicts, verdict=settled[0], notes=notes)


def _turns(changes: Sequence[Change], states: Verdicts) -> Iterator[str]:
    """The changes from end to end in words, unless it simply broke."""
    if [one.direction for one in changes] == ["fix"]:
        yield (
            "older versions are bad and newer ones good: this version fixed it, or is the oldest "
            "that can run the case"
        )
    elif len(changes) > 1:
        words = {"regression": "broke it", "fix": "made it good", None: ""}
        text = ", ".join(f"{one.where} {words[one.direction]}" for one in changes)
        alike = states[0] if states and states[0] == states[-1] else None
        yield f"both ends are {alike}, and not all between them: {text}" if alike else text
