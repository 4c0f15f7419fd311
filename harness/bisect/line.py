"""One axis as a search sees it: the candidates that can be tested, and their answers (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.bisect.answers import Evidence, Place, Tally, Verdict
from harness.bisect.bounds import Bound
from harness.bisect.findings import Finding
from harness.bisect.history import Histories, histories
from harness.bisect.specs import AxisSpec

Cost = Callable[[Place], float]
_CHEAPEST_S = 0.001


@dataclass(frozen=True)
class Ask:
    """The candidate to run next (its index among the testable ones), and why."""

    index: int
    why: str


@dataclass(frozen=True)
class Line:
    """The testable candidates in their order; `tallies`, `said` and `weights` go with them.

    `gaps` says how likely the change is between each two neighbours, `weights` how likely a run of
    a candidate tells anything, per second of its cost.
    """

    spec: AxisSpec
    evidence: Evidence
    bound: Bound
    names: tuple[str, ...]
    tallies: tuple[Tally, ...]
    gaps: tuple[float, ...]
    said: tuple[Verdict | None, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, spec: AxisSpec, evidence: Evidence, cost: Cost) -> Line:
        """What is searched of an axis, without what is known to be untestable."""
        searched = spec.searched()
        met = {at[0] for at in evidence.untestable()}
        names = tuple(n for n in searched if n not in met and n not in spec.untestable)
        positions = [searched.index(name) for name in names]
        holes = [i for i, name in enumerate(searched) if name in met]
        gaps = [
            sum(spec.prior.get(name, 1.0) for name in searched[left + 1 : right + 1])
            for left, right in itertools.pairwise(positions)
        ]
        return cls(
            spec=spec,
            evidence=evidence,
            bound=spec.bound(),
            names=names,
            tallies=tuple(evidence.of((name,)) for name in names),
            gaps=tuple(gaps),
            said=tuple(_said(spec, name) for name in names),
            weights=tuple(
                testable(min((abs(i - hole) for hole in holes), default=None)) / seconds(cost, (n,))
                for i, n in zip(positions, names, strict=True)
            ),
        )

    def histories(self) -> Histories:
        """The chances of all histories of these candidates."""
        return histories(self.tallies, self.gaps, self.said)

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

    def between(self, left: int, right: int) -> tuple[str, ...]:
        """All candidates strictly between two, testable or not."""
        searched = self.spec.searched()
        return searched[searched.index(self.names[left]) + 1 : searched.index(self.names[right])]

    def finding(self, finding: Finding) -> Finding:
        """Adds what every finding says: the runs, the tallies, and remarks about the search."""
        notes = [*finding.notes]
        if finding.direction is not None:
            notes += self._surprises(finding)
        holes = [name for name in self.spec.searched() if name not in self.names]
        for name in holes:
            said = _said(self.spec, name)
            if said is not None:
                notes.append(f"{name} was said to be {said}, and cannot be tested")
        between = tuple(holes) if finding.kind == "no-change" else finding.between
        left = [name for name in holes if name not in between]
        if left:
            notes.append(f"could not be tested: {', '.join(left)}")
        changed = {
            "between": between,
            "runs": self.evidence.runs,
            "unknown": self.evidence.unknown,
            "tallies": dict(self.evidence.tallies),
            "notes": tuple(notes),
        }
        return Finding(**{**finding.__dict__, **changed})

    def _surprises(self, finding: Finding) -> Iterator[str]:
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


def seconds(cost: Cost, at: Place) -> float:
    """What a run costs; what is free still takes a moment."""
    return max(_CHEAPEST_S, cost(at))


def testable(distance: float | None) -> float:
    """How likely a place can be tested, at this distance from the next one that could not be.

    What breaks an installation mostly breaks that of its neighbours too.
    """
    return 1.0 if distance is None else 1 - 0.5**distance


def _said(spec: AxisSpec, name: str) -> Verdict | None:
    return "good" if name == spec.good else "bad" if name == spec.bad else None
