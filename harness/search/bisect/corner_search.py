"""The search for which of two axes matters: the mixed corners, then each axis by itself (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harness.search.bisect.answers import Evidence, GoodOrBad, Point, Question, Tally
from harness.search.bisect.axis_search import axis_step
from harness.search.bisect.findings import (
    Corner,
    CornersFinding,
    FindingKind,
    HeldSearch,
    flaky_versions,
)
from harness.search.bisect.search import AxisSpec, CornerSpec, Search

Pair = tuple[str, str]


class CornerSearch(Search[CornerSpec, CornersFinding]):
    """Finds which axis makes the difference between two pairs, and the version on it.

    First the two pairs that were named, then the two mixed ones. Where the two corners at the ends
    of an axis differ, that axis is searched between them, with the other held.
    """

    def _step(self, evidence: Evidence) -> Question | CornersFinding:
        corners = _Corners(self.spec, evidence)
        open_corner = corners.next()
        spent = evidence.runs >= self.spec.bound().limit(wasted=evidence.wasted())
        if open_corner is not None:
            if spent:
                return corners.finding("undecided", [f"{evidence.runs} runs did not suffice"])
            return open_corner
        if (ended := corners.without_answer()) is not None:
            return ended
        searches: list[HeldSearch] = []
        for line in corners.lines():
            step = axis_step(line.spec, line.evidence)
            if isinstance(step, Question):
                place = {"at": line.point(step.at[0]), "number": evidence.runs + 1}
                return step.model_copy(update=place)
            searches.append(HeldSearch(axis=line.spec.axis, held=line.held, answer=step))
        return corners.answer(searches)


@dataclass(frozen=True)
class _Line:
    """One axis with the other held, as a search on one axis sees it."""

    spec: AxisSpec
    evidence: Evidence
    axes: Pair
    held: dict[str, str]

    def point(self, version: str) -> Point:
        versions = {**self.held, self.spec.axis: version}
        return tuple(versions[axis] for axis in self.axes)


class _Corners:
    """The four corners as far as they are known.

    A mixed corner is named by the axis that has its bad version there.
    """

    def __init__(self, spec: CornerSpec, evidence: Evidence) -> None:
        self._spec, self._evidence = spec, evidence
        self._good, self._bad = spec.good, spec.bad
        self._swapped = (self._verdict(spec.good), self._verdict(spec.bad)) == ("bad", "good")
        if self._swapped:
            self._good, self._bad = spec.bad, spec.good
        self._mixed: Mapping[str, Pair] = {
            spec.axes[0]: (self._bad[0], self._good[1]),
            spec.axes[1]: (self._good[0], self._bad[1]),
        }

    def next(self) -> Question | None:
        """Return the next corner to run; None if all are known, or cannot be."""
        named = {
            self._spec.good: "confirm that it is good",
            self._spec.bad: "confirm that it is bad",
        }
        mixed = {at: f"whether {axis} alone is enough" for axis, at in self._mixed.items()}
        for reasons in (named, mixed):
            for at, why in reasons.items():
                if self._evidence.of(at).untestable:
                    if reasons is named:
                        return None
                elif self._verdict(at) is None:
                    return Question(at=at, number=self._evidence.runs + 1, why=why)
            if self._verdict(self._good) == self._verdict(self._bad):
                return None
        return None

    def without_answer(self) -> CornersFinding | None:
        """Return why the corners cannot lead to an answer; None if they can."""
        spec = self._spec
        verdicts = [self._verdict(at) for at in (spec.good, spec.bad)]
        for at, verdict in zip((spec.good, spec.bad), verdicts, strict=True):
            if verdict is None:
                problem = f"{self._named(at)} cannot be tested: name another pair"
                return self.finding("undecided", [problem])
        if verdicts[0] == verdicts[1]:
            text = f"no change: both pairs are {verdicts[0]}"
            return self.finding("no-change", [], text, verdict=verdicts[0])
        if all(self._verdict(at) is None for at in self._mixed.values()):
            pairs = " and ".join(self._named(at) for at in self._mixed.values())
            problem = f"{pairs} cannot be tested, so that the axes cannot be told apart"
            return self.finding("undecided", [problem])
        return None

    def lines(self) -> Iterator[_Line]:
        """The axes that matter, each with the other held where the answers of its ends differ.

        The other axis is held at its good end if the bad version of this one is enough to fail
        there, else at its bad end.
        """
        first, second = self._spec.axes
        for place, (axis, other) in enumerate(((first, second), (second, first))):
            alone, without = self._verdict(self._mixed[axis]), self._verdict(self._mixed[other])
            if alone == "bad":
                yield self._line(place, self._good[1 - place])
            elif without == "good":
                yield self._line(place, self._bad[1 - place])

    def answer(self, searches: list[HeldSearch]) -> CornersFinding:
        """Return what the corners and the searches of the axes come to."""
        first, second = self._spec.axes
        alone = {axis: self._verdict(at) for axis, at in self._mixed.items()}
        fails_with: str | None
        match alone[first], alone[second]:
            case "good", "good":
                fails_with, said = "both", f"only {first} and {second} together make it fail"
            case "bad", "bad":
                fails_with, said = "either", f"{first} alone and {second} alone make it fail"
            case ("bad", "good") | ("good", "bad"):
                fails_with = first if alone[first] == "bad" else second
                said = f"{fails_with} alone makes it fail"
            case _:
                fails_with, said = None, self._half_known(alone)
        found = [
            f"{search.axis} ({', '.join(f'{axis} {at}' for axis, at in search.held.items())} "
            f"held): {search.answer.text}"
            for search in searches
        ]
        kinds = {search.answer.kind for search in searches}
        kind: FindingKind = "change" if kinds == {"change"} and fails_with else "range"
        return self.finding(
            kind, [], "; ".join([said, *found]), fails_with=fails_with, searches=tuple(searches)
        )

    def finding(
        self,
        kind: FindingKind,
        notes: list[str],
        text: str = "",
        *,
        verdict: GoodOrBad | None = None,
        fails_with: str | None = None,
        searches: tuple[HeldSearch, ...] = (),
    ) -> CornersFinding:
        """Return a finding, with the runs and the corners that were run."""
        spec, evidence = self._spec, self._evidence
        notes = [*notes, *self._wrongly_said()]
        run = [at for at in (spec.good, spec.bad, *self._mixed.values()) if at in evidence.tallies]
        return CornersFinding(
            text=text or f"undecided: {'; '.join(notes)}",
            kind=kind,
            verdict=verdict,
            runs=evidence.runs,
            unknown=evidence.unknown,
            notes=tuple(notes),
            flaky=flaky_versions(evidence, spec.repeat),
            axes=spec.axes,
            fails_with=fails_with,
            corners=tuple(Corner(at=at, verdict=self._verdict(at)) for at in run),
            searches=searches,
        )

    def _verdict(self, at: Point) -> GoodOrBad | None:
        tally = self._evidence.of(at)
        return None if tally.untestable else tally.settled(self._spec.repeat)

    def _line(self, place: int, held: str) -> _Line:
        """The axis at `place` with the other held at a version."""
        spec, evidence = self._spec, self._evidence
        tallies: dict[Point, Tally] = {
            (at[place],): tally for at, tally in evidence.tallies.items() if at[1 - place] == held
        }
        runs = sum(tally.told + tally.untestable for tally in tallies.values())
        left = None if spec.max_runs is None else max(1, spec.max_runs - evidence.runs + runs)
        return _Line(
            AxisSpec(
                axis=spec.axes[place],
                candidates=spec.candidates[place],
                good=self._good[place],
                bad=self._bad[place],
                repeat=spec.repeat,
                max_runs=left,
            ),
            replace(evidence, tallies=tallies, runs=runs),
            spec.axes,
            {spec.axes[1 - place]: held},
        )

    def _half_known(self, alone: Mapping[str, GoodOrBad | None]) -> str:
        """The answer where one of the mixed corners cannot be tested."""
        ((unknown, _),) = ((axis, one) for axis, one in alone.items() if one is None)
        ((known, verdict),) = ((axis, one) for axis, one in alone.items() if one is not None)
        untestable = f"{self._named(self._mixed[unknown])} cannot be tested"
        if verdict == "bad":
            return f"{known} alone makes it fail; whether {unknown} alone does, too: {untestable}"
        return f"{unknown} makes it fail, alone or only together with {known}: {untestable}"

    def _named(self, at: Point) -> str:
        first, second = (f"{axis} {one}" for axis, one in zip(self._spec.axes, at, strict=True))
        return f"{first} with {second}"

    def _wrongly_said(self) -> Iterator[str]:
        """Claims of the user that are not so."""
        if self._swapped:
            yield "the pairs are the other way round than said"
            return
        for at, claim in ((self._spec.good, "good"), (self._spec.bad, "bad")):
            if (verdict := self._verdict(at)) not in (claim, None):
                yield f"{self._named(at)} was said to be {claim}, and is {verdict}"
