"""Searches on one axis and on two, and what runs a case with the versions they ask for."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from harness.bisect.folder import Answered, BisectFolder, BisectLog
from harness.bisect.loop import Loop, RunEnd, Watcher, judge, record_of
from harness.bisect.match import (
    ANY_FAILURE,
    NOTHING,
    Comparison,
    Evidence,
    GoodOrBad,
    Judged,
    Point,
    Question,
    Stopped,
    Tally,
    Unmeasured,
    parse_match,
)
from harness.bisect.result import (
    AxisFinding,
    Corner,
    CornersFinding,
    Direction,
    Finding,
    FindingKind,
    HeldSearch,
    VersionChange,
    flaky_versions,
)
from harness.bisect.search import AxisSpec, CornerSpec, Search, Task, halvings
from harness.core.axes import AxisName
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.history.performance import MOST_RUNS, Change
from harness.results.drift import KEPT, Output, changes
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder

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
            return state.finding("undecided", notes=[f"{counted(limit, 'run')} did not suffice"])
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
    notes = [f"the limit of {counted(evidence.runs, 'run')} was reached"] if wide else []
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

    def change(self, verdicts: Verdicts, left: int, right: int) -> VersionChange:
        """A change between two candidates, with all that lies between them."""
        between = self.spec.searched()[self.places[left] + 1 : self.places[right]]
        direction: Direction = "regression" if verdicts[left] == "good" else "fix"
        return VersionChange.of(direction, self.names[left], self.names[right], between)

    def finding(
        self,
        kind: FindingKind,
        said: str = "",
        states: Verdicts = (),
        *,
        notes: Sequence[str] = (),
        changes: Sequence[VersionChange] = (),
        asked: int = 0,
        verdict: GoodOrBad | None = None,
    ) -> AxisFinding:
        """A finding, with the runs and remarks on the search.

        `states` has what the candidates are, as far as that is known. `changes[asked]` is the one
        that was asked for.
        """
        change = changes[asked] if changes else VersionChange()
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


def _turns(changes: Sequence[VersionChange], states: Verdicts) -> Iterator[str]:
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
                return corners.finding(
                    "undecided", [f"{counted(evidence.runs, 'run')} did not suffice"]
                )
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


FEWEST_GOOD: Final = 3
"""If noise is judged, so many runs of the good end come before other runs.

One proves nothing, and of two nobody knows which was the odd one.
"""


def search_of(log: BisectLog) -> Search[Any, Finding]:
    """Return the search as it stood at the end of a log."""
    spec, evidence = log.spec.search, log.evidence()
    if isinstance(spec, AxisSpec):
        return AxisSearch(spec, evidence)
    return CornerSearch(spec, evidence)


class Bisection(Loop[Finding]):
    """The loop that runs a case with versions."""

    def __init__(self, folder: BisectFolder, watcher: Watcher, **more: Any) -> None:
        """`more` is as for `Loop`."""
        log = folder.read()
        self.task: Task = log.spec
        super().__init__(folder, watcher, search_of(log), **more)
        self._good = self.task.search.reference
        self._match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        self._noisy = self._match.judged if self.task.search.repeat == "judged" else None
        self._turn = 0
        self._records: dict[tuple[str | None, str | None], CaseRecord | None] = {}
        self._warned: set[AxisName] = set()

    def _next(self) -> Question | Stopped | Finding:
        step = super()._next()
        return self._reference_first(step) if isinstance(step, Question) else step

    def _begin(self, at: Point, reports: Path) -> RunEnd:
        arguments = self.task.arguments(at, reports, self._devices())
        return self._run_case(arguments, reports, self.task.folder, self.task.run_timeout_s)

    def _judged(self, at: Point, end: RunEnd) -> Judged:
        record = end.record
        good_runs = self._good_runs()
        if at == self._good and record is not None and end.folder is not None:
            good_runs.append((record, end.folder))
        good = self._match.reference(one for one, _ in good_runs)
        judged = judge(end, self._match, good, self.task.held, self._changes(end, good_runs))
        if record is not None and self._noisy is not None and judged.answer in ("good", "bad"):
            judged = self._beside_noise(at, self._noisy, record)
        if record is not None:
            self._refuse_an_axis_without_effect(record)
        if judged.answer == "unknown":
            self._turn += 1  # the next try goes to the next device that can stand in
        return judged

    def _concluded(self) -> dict[str, JsonValue]:
        return {"bound": str(self._search.spec.bound())}

    def _devices(self) -> list[str]:
        devices = list(self.task.devices)
        turn = self._turn % len(devices)
        return [*devices[turn:], *devices[:turn]]

    def _refuse_an_axis_without_effect(self, record: CaseRecord) -> None:
        for axis in (*self.task.axes, *self.task.held):
            why = without_effect(axis, record)
            if why is not None and axis in self.task.axes:
                raise ConfigError(why, field="--axis")
            if why is not None and axis not in self._warned:
                self._warned.add(axis)
                self.watcher.remark(f"--{axis} {self.task.held[axis]} has no effect: {why}")

    def _reference_first(self, question: Question) -> Question:
        """Runs that are compared with the good end wait for it. Raises ConfigError if in vain."""
        good = self._good
        if not self._match.needs_good or good is None or question.at == good:
            return question
        compared = self._match.can_compare([one for one, _ in self._good_runs()])
        noisy = self._noisy
        if compared and (noisy is None or self._good_suffices(good, question.at, noisy)):
            return question
        if self._search.evidence.tallies.get(good, NOTHING).untestable:
            problem = f"{' with '.join(good)} told nothing that others could be compared with"
            raise ConfigError(f"{problem}: name another good end", field="--good")
        return Question(at=good, number=question.number, why="what others are compared with")

    def _sizes(self, comparison: Comparison) -> dict[Point, list[float]]:
        """What was measured at each point, the oldest first."""
        found: dict[Point, list[float]] = {}
        for entry, record in self._ran():
            if record.outcome == "passed":
                with contextlib.suppress(Unmeasured):
                    size = comparison.size(record.measurements)
                    found.setdefault(entry.at, []).append(size)
        return found

    def _change(self, at: Point, comparison: Comparison, sizes: dict[Point, list[float]]) -> Change:
        """How a point differs from the good side, which is the good end and all that is like it."""
        others = [one for one in sizes if one not in (at, self._good)]
        good: list[float] = []
        if self._good in sizes:
            end = sizes[self._good]
            middle, factor = statistics.median_low(end), comparison.factor
            for one in [one for one in others if self._search.evidence.of(one).good]:
                # what is far off to the other side counts as good, and is not like it
                if middle / factor < statistics.median(sizes[one]) < middle * factor:
                    good += sizes[one]
                    others.remove(one)
            # the judge keeps to what bears out the last one, which must not be the odd one itself
            good += sorted(end, key=lambda size: size == middle)
        return comparison.beside_noise(good, sizes[at], [sizes[one] for one in others])

    def _beside_noise(self, at: Point, comparison: Comparison, record: CaseRecord) -> Judged:
        """The answer of all runs of a point, of which this is the last."""
        value = f"{comparison.value(record.measurements):g}"
        try:
            size = comparison.size(record.measurements)
        except Unmeasured as error:
            return Judged("untestable", str(error))
        if at == self._good:
            return Judged("good", f"{value}: what others are compared with")
        sizes = self._sizes(comparison)
        sizes.setdefault(at, []).append(size)
        judged = comparison.answer(self._change(at, comparison, sizes))
        return Judged(judged.answer, f"{value}: {judged.why}")

    def _good_suffices(self, good: Point, at: Point, comparison: Comparison) -> bool:
        """Whether the good end need not be run again before this point is."""
        sizes = self._sizes(comparison)
        of_good, of_new = (len(sizes.get(one, ())) for one in (good, at))
        if of_good >= MOST_RUNS or self._search.evidence.of(good).untestable:
            return True
        if of_good < FEWEST_GOOD or of_new >= MOST_RUNS - 1:
            return False  # the last run of a point is its last chance
        if not of_new:
            return True
        more = self._change(at, comparison, sizes).more_base
        return of_good > of_new if more is None else not more

    def _good_runs(self) -> list[tuple[CaseRecord, Path]]:
        if not self._match.needs_good:
            return []
        ran = ((one, entry.run) for entry, one in self._ran() if entry.at == self._good)
        return [(record, self.folder.path / run) for record, run in ran if run]

    def _ran(self) -> Iterator[tuple[Answered, CaseRecord]]:
        """The runs that left a record, which is read once: each question asks for all of them."""
        for entry in self.folder.read().answers():
            where = entry.run, entry.case
            if where not in self._records:
                self._records[where] = record_of(self.folder.path, entry)
            record = self._records[where]
            if record is not None:
                yield entry, record

    def _changes(self, end: RunEnd, good_runs: Sequence[tuple[CaseRecord, Path]]) -> list[Output]:
        """The outputs of a run beside those of the good end, if outputs are what counts.

        Raises ConfigError for a case whose outputs cannot be compared.
        """
        passed = [(one, folder) for one, folder in good_runs if one.outcome == "passed"]
        if self._match.drift_steps is None or end.record is None or end.folder is None:
            return []
        if end.record.outcome != "passed" or not passed:
            return []
        good, beside = passed[0]
        folders = RunFolder(beside), RunFolder(end.folder)

        def read(name: str) -> bytes | None:
            return next(filter(None, (one.kept_output(name) for one in folders)), None)

        found = changes(end.record, good, read)
        if found is not None:
            return found
        if KEPT not in end.record.measurements:
            problem = "--match drift is for a case that keeps outputs, as those of files do"
            raise ConfigError(problem, field="--case")
        problem = "its contexts are not those of the good end: hold what makes them"
        raise ConfigError(problem, field="--compiler")


def without_effect(axis: AxisName, record: CaseRecord) -> str | None:
    """Why the version of an axis makes no difference to a case; None if it may make one.

    What a case takes is known for certain once it passed.
    """
    if axis == "ort" and not record.axes.get("ort"):
        return 'the case does not use ONNX Runtime: its marker has no engine="ort"'
    taken = record.runtime.contexts_by if record.runtime is not None else None
    if axis == "compiler" and taken is None and record.outcome == "passed":
        return "the case takes no contexts of a compiler"
    return None
