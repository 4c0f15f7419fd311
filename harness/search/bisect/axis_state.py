"""An axis as a search sees it: what can be tested, what was said of it, what it answered (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.ground.errors.outgoing_text import counted
from harness.search.bisect.answers import Evidence, GoodOrBad, Question, Tally
from harness.search.bisect.findings import AxisChange, AxisFinding, Direction, FindingKind
from harness.search.bisect.search import AxisSpec, Cost, seconds, testable


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
    said: tuple[GoodOrBad | None, ...]
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
        """The question to run a candidate, by its place among the testable ones."""
        return Question((self.names[index],), self.evidence.runs + 1, why)

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

    def finding(
        self, kind: FindingKind, states: Sequence[GoodOrBad | None] = (), **told: Any
    ) -> AxisFinding:
        """A finding, with what each finding says: the runs, the tallies, and remarks on the search.

        `states` has what the candidates are, as far as that is known.
        """
        found = AxisFinding(kind, **told)
        notes = [*found.notes, *_turns(found, states), *self._wrongly_said(states)]
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

    def between(self, direction: Direction, left: int, right: int) -> AxisChange:
        """A change between two candidates, with all that lies between them."""
        searched = self.spec.searched()
        before, after = self.names[left], self.names[right]
        between = searched[searched.index(before) + 1 : searched.index(after)]
        return AxisChange(direction, before, after, between)

    def change(
        self, found: AxisChange, states: Sequence[GoodOrBad | None], **told: Any
    ) -> AxisFinding:
        """The finding of a change."""
        kind: FindingKind = "range" if found.between else "change"
        return self.finding(kind, states, **vars(found), **told)

    def _wrongly_said(self, states: Sequence[GoodOrBad | None]) -> Iterator[str]:
        """What the user said of candidates and is not so."""
        if self.spec.least is not None:
            yield from self._otherwise_seen()
            return
        claims = zip(self.names, self.said, states or [None] * len(self.names), strict=True)
        wrong = [(name, said, state) for name, said, state in claims if said and state]
        wrong = [(name, said, state) for name, said, state in wrong if said != state]
        if len(wrong) == 2:
            named = ", ".join(f"{name} is {state}" for name, _, state in wrong)
            yield f"the ends are the other way round than said: {named}"
        else:
            yield from (f"{name} was said to be {said}, and is {now}" for name, said, now in wrong)

    def _otherwise_seen(self) -> Iterator[str]:
        """What the user said and runs contradict, if no answer is believed: a pass says little."""
        for name, said, tally in zip(self.names, self.said, self.tallies, strict=True):
            if said == "good" and tally.bad:
                ran = counted(tally.told, "run")
                yield f"{name} was said to be good, and failed in {tally.bad} of {ran}"
            elif said == "bad" and tally.told and not tally.bad:
                ran = counted(tally.told, "run")
                yield f"{name} was said to be bad, and did not fail in {ran}"


def _turns(found: AxisFinding, states: Sequence[GoodOrBad | None]) -> Iterator[str]:
    """What changed from end to end, unless it simply broke."""
    changes = found.changes
    fixed = [one.direction for one in changes] == ["fix"]
    if fixed and found.least is not None:
        yield "newer versions fail less often than older ones"
    elif fixed:
        yield (
            "older versions are bad and newer ones good: this version fixed it, or is the oldest "
            "that can run the case"
        )
    elif len(changes) > 1:
        words = {"regression": "broke it", "fix": "made it good"}
        text = ", ".join(f"{one.where} {words[one.direction]}" for one in changes)
        alike = states[0] if states and states[0] == states[-1] else None
        yield f"both ends are {alike}, and not all between them: {text}" if alike else text


def _said(spec: AxisSpec, name: str) -> GoodOrBad | None:
    return "good" if name == spec.good else "bad" if name == spec.bad else None
