"""Searches on one axis and on two, and the loop that runs a case with the versions they choose."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.bisect.bad_condition import (
    ANY_FAILURE,
    NOTHING,
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
from harness.bisect.folder import Answered, BisectFolder, BisectLog
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
from harness.bisect.search import AxisSpec, CornerSpec, Search, Task
from harness.bisect.search_loop import RUN_TIMEOUT_S, Loop, RunEnd, Watcher, judge, record_of
from harness.core.errors import ConfigError
from harness.core.matrix_axes import VERSIONS
from harness.results.output_drift import KEPT, Output, changes
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder

Verdicts = Sequence[GoodOrBad | None]


def axis_step(spec: AxisSpec, evidence: Evidence) -> Question | AxisFinding:
    """Return the next run, or the answer.

    The ends come first. If verdicts differ, the gaps between them are halved.
    """
    state = AxisState.of(spec, evidence)
    verdicts = [tally.settled(spec.repeat) for tally in state.tallies]
    if not state.names:
        return state.finding("undecided", notes=["no candidate can be tested"])
    if (end_question := _open_end(state, verdicts)) is not None:
        return end_question
    if len(spec.candidates) == 1:
        text = f"{state.names[0]} is {verdicts[0]}"
        return state.finding("no-change", text, verdict=verdicts[0])
    if len(state.names) == 1:
        only = f"only {state.names[0]} can be tested, and it is {verdicts[0]}"
        return state.finding("undecided", verdict=verdicts[0], notes=[only])
    pairs = _changes(verdicts)
    if not pairs:
        return _no_change(state, verdicts)
    low, high = _relevant_change(state, verdicts, pairs)
    if high - low > 1:
        inside = range(low + 1, high)
        started = next((i for i in inside if state.tallies[i].answers), (low + high) // 2)
        return state.question(started, f"halves the {high - low} places where the change can be")
    return state.finding("change", states=verdicts, change=state.change(verdicts, low, high))


@dataclass(frozen=True)
class AxisState:
    """The testable candidates in order; `tallies` and `claims` are parallel to `names`.

    `places` are their indices among all searched candidates.
    """

    spec: AxisSpec
    evidence: Evidence
    names: tuple[str, ...]
    places: tuple[int, ...]
    tallies: tuple[Tally, ...]
    claims: tuple[GoodOrBad | None, ...]

    @classmethod
    def of(cls, spec: AxisSpec, evidence: Evidence) -> AxisState:
        """Return the state of a search, without the candidates known to be untestable."""
        searched = spec.searched()
        untestable = {point[0] for point in evidence.untestable()}
        names = tuple(name for name in searched if name not in untestable)
        places = tuple(searched.index(name) for name in names)
        return cls(
            spec=spec,
            evidence=evidence,
            names=names,
            places=places,
            tallies=tuple(evidence.of((name,)) for name in names),
            claims=tuple(_claim_of(spec, name) for name in names),
        )

    def question(self, index: int, why: str) -> Question:
        return Question(at=(self.names[index],), number=self.evidence.runs + 1, why=why)

    def ends(self) -> Iterator[int]:
        """Yield the indices to confirm before the search, in order.

        These are the ends, the claimed good one first, since the other may be measured against it.
        If the user named only one candidate, that comes first, followed by the end that should
        have the opposite verdict if newer versions are worse. If it has, the other end is not
        needed.
        """
        last = len(self.names) - 1
        claims = [i for i, claim in enumerate(self.claims) if claim is not None]
        if len(claims) == 1:
            yield claims[0]
            first = 0 if self.claims[claims[0]] == "bad" else last
        else:
            first = next((i for i in claims if self.claims[i] == "good"), 0)
        yield first
        yield last - first

    def change(self, verdicts: Verdicts, low: int, high: int) -> VersionChange:
        between = self.spec.searched()[self.places[low] + 1 : self.places[high]]
        direction: Direction = "regression" if verdicts[low] == "good" else "fix"
        return VersionChange.of(direction, self.names[low], self.names[high], between)

    def finding(
        self,
        kind: FindingKind,
        text: str = "",
        states: Verdicts = (),
        *,
        notes: Sequence[str] = (),
        change: VersionChange | None = None,
        verdict: GoodOrBad | None = None,
    ) -> AxisFinding:
        """Return a finding with the counts of runs and notes on the search.

        `states` are the known verdicts of the candidates.
        """
        change = change or VersionChange()
        remarks = [*notes, *self._false_claims(states)]
        is_fix = change.direction == "fix" and self.spec.axis in VERSIONS
        if is_fix and "good" not in states[: self.names.index(change.before)]:
            remarks.append(
                "older versions are bad and newer ones good: this version fixed it, or is the "
                "oldest that can run the case"
            )
        holes = [name for name in self.spec.searched() if name not in self.names]
        for name in holes:
            claim = _claim_of(self.spec, name)
            if claim is not None:
                remarks.append(f"--{claim} names {name}, which cannot be tested")
        between = tuple(holes) if kind == "no-change" else change.between
        if untested := [name for name in holes if name not in between]:
            remarks.append(f"could not be tested: {', '.join(untested)}")
        if kind == "undecided":
            text = f"undecided: {'; '.join(remarks)}"
        elif kind == "no-change" and between:
            text += f"; undecided: {', '.join(between)}"
        elif change.direction is not None:
            text = change.description
        return AxisFinding(
            **change.model_dump() | {"between": between},
            text=text,
            kind="range" if change.between else kind,
            verdict=verdict,
            runs=self.evidence.runs,
            unknown=self.evidence.unknown,
            notes=tuple(remarks),
            flaky=flaky_versions(self.evidence),
        )

    def _false_claims(self, states: Verdicts) -> Iterator[str]:
        claims = zip(self.names, self.claims, states or [None] * len(self.names), strict=True)
        known = [(name, claim, state) for name, claim, state in claims if claim and state]
        for name, claim, state in known:
            if claim != state:
                yield f"--{claim} names {name}, but it is {state}"


def _claim_of(spec: AxisSpec, name: str) -> GoodOrBad | None:
    return "good" if name == spec.good else "bad" if name == spec.bad else None


def _open_end(state: AxisState, verdicts: Verdicts) -> Question | None:
    """Return the run of the next unconfirmed end, unless the others already show a change."""
    settled = set[GoodOrBad]()
    for index in state.ends():
        if (verdict := verdicts[index]) is not None:
            settled.add(verdict)
        elif len(settled) == 2:
            return None
        elif claim := state.claims[index]:
            return state.question(index, f"confirm that it is {claim}")
        else:
            return state.question(index, "the newest" if index else "the oldest")
    return None


def _changes(verdicts: Verdicts) -> list[tuple[int, int]]:
    settled = [i for i, verdict in enumerate(verdicts) if verdict is not None]
    return [(i, j) for i, j in itertools.pairwise(settled) if verdicts[i] != verdicts[j]]


def _relevant_change(
    state: AxisState, verdicts: Verdicts, pairs: list[tuple[int, int]]
) -> tuple[int, int]:
    """Return the newest change in the wanted direction, else the newest.

    The wanted change is a regression, unless the claimed good version is newer than the bad one.
    """
    spec = state.spec
    older_verdict: GoodOrBad = "good"
    if spec.good is not None and spec.bad is not None:
        older_is_good = spec.candidates.index(spec.good) < spec.candidates.index(spec.bad)
        older_verdict = "good" if older_is_good else "bad"
    return max(pairs, key=lambda pair: (verdicts[pair[0]] == older_verdict, pair[0]))


def _no_change(state: AxisState, verdicts: Verdicts) -> AxisFinding:
    settled = [verdict for verdict in verdicts if verdict is not None]
    holes = len(state.names) < len(state.spec.searched())
    subject, notes = ("all that could be tested" if holes else "all"), list[str]()
    if len(settled) < len(state.names):
        subject = f"all {len(settled)} that were run"
        notes = [
            f"{len(settled)} of {len(state.names)} candidates were run; name another one with --bad"
        ]
    text = f"no change: {subject} are {settled[0]}"
    return state.finding("no-change", text, verdicts, verdict=settled[0], notes=notes)


Pair = tuple[str, str]


def corner_step(spec: CornerSpec, evidence: Evidence) -> Question | CornersFinding:
    """Return the next run, or the answer.

    First the two pairs that were named, then the two mixed ones. Where the two corners at the ends
    of an axis differ, that axis is searched between them, with the other held.
    """
    corners = _Corners(spec, evidence)
    if (question := corners.next()) is not None:
        return question
    if (finding := corners.early_finding()) is not None:
        return finding
    searches: list[HeldSearch] = []
    for place, version in corners.axes_to_search():
        step = axis_step(*corners.axis_search(place, version))
        if isinstance(step, Question):
            pair = (step.at[0], version) if place == 0 else (version, step.at[0])
            return step.model_copy(update={"at": pair, "number": evidence.runs + 1})
        axis, other = spec.axes[place], spec.axes[1 - place]
        searches.append(HeldSearch(axis=axis, held={other: version}, answer=step))
    return corners.answer(searches)


class _Corners:
    """The known verdicts of the four corners.

    A mixed corner is named after the axis that has its bad version there.
    """

    def __init__(self, spec: CornerSpec, evidence: Evidence) -> None:
        self._spec, self._evidence = spec, evidence
        self._mixed: Mapping[str, Pair] = {
            spec.axes[0]: (spec.bad[0], spec.good[1]),
            spec.axes[1]: (spec.good[0], spec.bad[1]),
        }

    def next(self) -> Question | None:
        """Return the next corner to run; None if all are known or cannot be tested."""
        named = {
            self._spec.good: "confirm that it is good",
            self._spec.bad: "confirm that it is bad",
        }
        mixed = {point: f"whether {axis} alone is enough" for axis, point in self._mixed.items()}
        for reasons in (named, mixed):
            for point, why in reasons.items():
                if self._evidence.of(point).untestable:
                    if reasons is named:
                        return None
                elif self._verdict(point) is None:
                    return Question(at=point, number=self._evidence.runs + 1, why=why)
            if (self._verdict(self._spec.good), self._verdict(self._spec.bad)) != ("good", "bad"):
                return None
        return None

    def early_finding(self) -> CornersFinding | None:
        """Return the finding if the corners cannot lead to an answer; None if they can."""
        spec = self._spec
        verdicts = [self._verdict(point) for point in (spec.good, spec.bad)]
        for point, verdict in zip((spec.good, spec.bad), verdicts, strict=True):
            if verdict is None:
                problem = f"{self._named(point)} cannot be tested; name another pair"
                return self.finding("undecided", [problem])
        if verdicts[0] == verdicts[1]:
            text = f"no change: both pairs are {verdicts[0]}"
            return self.finding("no-change", [], text, verdict=verdicts[0])
        if verdicts[0] == "bad":
            return self.finding("undecided", [])
        if all(self._verdict(point) is None for point in self._mixed.values()):
            pairs = " and ".join(self._named(point) for point in self._mixed.values())
            problem = f"{pairs} cannot be tested, so the axis of the change is unknown"
            return self.finding("undecided", [problem])
        return None

    def axes_to_search(self) -> Iterator[tuple[int, str]]:
        """Yield the place of each axis that matters, and the version at which the other is held.

        That is its good end if the bad version of this one is enough to fail there, else its bad
        end.
        """
        first, second = self._spec.axes
        for place, (axis, other) in enumerate(((first, second), (second, first))):
            if self._verdict(self._mixed[axis]) == "bad":
                yield place, self._spec.good[1 - place]
            elif self._verdict(self._mixed[other]) == "good":
                yield place, self._spec.bad[1 - place]

    def axis_search(self, place: int, version: str) -> tuple[AxisSpec, Evidence]:
        """Return the search on the axis at `place` with the other held at `version`."""
        spec, evidence = self._spec, self._evidence
        tallies: dict[Point, Tally] = {
            (pair[place],): tally
            for pair, tally in evidence.tallies.items()
            if pair[1 - place] == version
        }
        axis_spec = AxisSpec(
            axis=spec.axes[place],
            candidates=spec.candidates[place],
            good=spec.good[place],
            bad=spec.bad[place],
            repeat=spec.repeat,
        )
        return axis_spec, replace(evidence, tallies=tallies)

    def answer(self, searches: list[HeldSearch]) -> CornersFinding:
        first, second = self._spec.axes
        alone = {axis: self._verdict(point) for axis, point in self._mixed.items()}
        fails_with: str | None
        match alone[first], alone[second]:
            case "good", "good":
                fails_with, summary = "both", f"only {first} and {second} together make it fail"
            case "bad", "bad":
                fails_with, summary = "either", f"{first} alone and {second} alone make it fail"
            case ("bad", "good") | ("good", "bad"):
                fails_with = first if alone[first] == "bad" else second
                summary = f"{fails_with} alone makes it fail"
            case _:
                known, unknown = sorted(alone, key=lambda axis: alone[axis] is None)
                fails_with = None
                summary = f"{unknown} makes it fail, alone or only together with {known}"
                if alone[known] == "bad":
                    summary = f"{known} alone makes it fail; {unknown} alone is unknown"
                summary += f": {self._named(self._mixed[unknown])} cannot be tested"
        lines = [
            f"{search.axis} (with {', '.join(map(' '.join, search.held.items()))}): "
            f"{search.answer.text}"
            for search in searches
        ]
        kinds = {search.answer.kind for search in searches}
        kind: FindingKind = "change" if kinds == {"change"} and fails_with else "range"
        return self.finding(
            kind, [], "; ".join([summary, *lines]), fails_with=fails_with, searches=tuple(searches)
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
        spec, evidence = self._spec, self._evidence
        notes = [*notes, *self._false_claims()]
        corners = (spec.good, spec.bad, *self._mixed.values())
        return CornersFinding(
            text=text or f"undecided: {'; '.join(notes)}",
            kind=kind,
            verdict=verdict,
            runs=evidence.runs,
            unknown=evidence.unknown,
            notes=tuple(notes),
            flaky=flaky_versions(evidence),
            axes=spec.axes,
            fails_with=fails_with,
            corners=tuple(
                Corner(at=pair, verdict=self._verdict(pair))
                for pair in corners
                if pair in evidence.tallies
            ),
            searches=searches,
        )

    def _verdict(self, point: Point) -> GoodOrBad | None:
        tally = self._evidence.of(point)
        return None if tally.untestable else tally.settled(self._spec.repeat)

    def _named(self, point: Point) -> str:
        return " with ".join(map(" ".join, zip(self._spec.axes, point, strict=True)))

    def _false_claims(self) -> Iterator[str]:
        for point, claim in ((self._spec.good, "good"), (self._spec.bad, "bad")):
            if (verdict := self._verdict(point)) not in (claim, None):
                yield f"--{claim} names {self._named(point)}, but it is {verdict}"


class VersionSearch(Search[AxisSpec | CornerSpec, Finding]):
    """Finds the version that changes a case, on one axis or on the one of two that matters."""

    def _step(self, evidence: Evidence) -> Question | Finding:
        if isinstance(self.spec, AxisSpec):
            return axis_step(self.spec, evidence)
        return corner_step(self.spec, evidence)


def search_of(log: BisectLog) -> VersionSearch:
    """Return the search in the state at the end of a log."""
    return VersionSearch(log.spec.search, log.evidence())


class Bisection(Loop[Finding]):
    """The loop that runs a case with different versions."""

    def __init__(self, folder: BisectFolder, watcher: Watcher, **more: Any) -> None:
        """`more` is as for `Loop`."""
        log = folder.read()
        self.task: Task = log.spec
        super().__init__(folder, watcher, search_of(log), **more)
        self._good = self.task.search.reference
        self._match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        self._turn = 0
        self._records: dict[tuple[str | None, str | None], CaseRecord | None] = {}

    def _next(self) -> Question | Stopped | Finding:
        step = super()._next()
        return self._reference_first(step) if isinstance(step, Question) else step

    def _run_at(self, point: Point, reports: Path) -> RunEnd:
        devices = self.task.devices
        turn = self._turn % len(devices)
        arguments = self.task.arguments(point, reports, [*devices[turn:], *devices[:turn]])
        return self._run_case(arguments, reports, self.task.folder, RUN_TIMEOUT_S)

    def _judge(self, point: Point, end: RunEnd) -> Judged:
        record = end.record
        good_runs = self._good_runs()
        if point == self._good and record is not None and end.folder is not None:
            good_runs.append((record, end.folder))
        good = self._match.reference(good_record for good_record, _ in good_runs)
        earlier = self._measured_before(point)
        changes = self._changes(end, good_runs)
        judged = judge(end, self._match, good, self.task.held, changes, earlier)
        number, repeat = self._search.evidence.of(point).answers + 1, self.task.search.repeat
        if self._match.comparison and number < repeat and judged.answer in ("good", "bad"):
            judged = Judged("unsure", f"{judged.why}; run {number} of {repeat}")
        if record is not None:
            if "ort" in self.task.axes and not record.axes.get("ort"):
                problem = 'the case does not use ONNX Runtime: its marker has no engine="ort"'
                raise ConfigError(problem, field="--axis")
            made_by = record.runtime.contexts_by if record.runtime is not None else None
            # the contexts that a case loads are certain only once it passed
            if "compiler" in self.task.axes and made_by is None and record.outcome == "passed":
                raise ConfigError("the case loads no contexts made by a compiler", field="--axis")
        if judged.answer == "unknown":
            self._turn += 1  # the next try goes to the next device that can stand in
        return judged

    def _reference_first(self, question: Question) -> Question:
        """Return the run of the good end instead, if `question` must be compared with it.

        Raises ConfigError if the good end cannot be tested.
        """
        good = self._good
        if not self._match.needs_good or good is None or question.at == good:
            return question
        if self._match.can_compare([record for record, _ in self._good_runs()]):
            return question
        if self._search.evidence.tallies.get(good, NOTHING).untestable:
            problem = f"{' with '.join(good)} gave no result to compare with"
            raise ConfigError(f"{problem}; name another version", field="--good")
        return Question(at=good, number=question.number, why="others are compared with it")

    def _measured_before(self, point: Point) -> list[float]:
        """Return the measurements of the earlier runs at a point, if one is compared."""
        comparison, values = self._match.comparison, list[float]()
        for entry, record in self._recorded_runs() if comparison is not None else ():
            if comparison is not None and entry.at == point and record.outcome == "passed":
                with contextlib.suppress(Unmeasured):
                    values.append(comparison.value(record.measurements))
        return values

    def _good_runs(self) -> list[tuple[CaseRecord, Path]]:
        if not self._match.needs_good:
            return []
        runs = (run for run in self._recorded_runs() if run[0].at == self._good)
        return [(record, self.folder.path / entry.run) for entry, record in runs if entry.run]

    def _recorded_runs(self) -> Iterator[tuple[Answered, CaseRecord]]:
        """Yield the runs that left a record; each record is read once."""
        for entry in self.folder.read().answers():
            key = entry.run, entry.case
            if key not in self._records:
                self._records[key] = record_of(self.folder.path, entry)
            record = self._records[key]
            if record is not None:
                yield entry, record

    def _changes(self, end: RunEnd, good_runs: Sequence[tuple[CaseRecord, Path]]) -> list[Output]:
        """Compare the outputs of a run with those of the good end, if outputs count.

        Raises ConfigError for a case whose outputs cannot be compared.
        """
        passed = [(record, folder) for record, folder in good_runs if record.outcome == "passed"]
        if self._match.drift_steps is None or end.record is None or end.folder is None:
            return []
        if end.record.outcome != "passed" or not passed:
            return []
        good, good_folder = passed[0]
        folders = RunFolder(good_folder), RunFolder(end.folder)

        def read(name: str) -> bytes | None:
            return next(filter(None, (run.kept_output(name) for run in folders)), None)

        outputs = changes(end.record, good, read)
        if outputs is not None:
            return outputs
        if KEPT not in end.record.measurements:
            problem = "--match drift needs a case that keeps its outputs, as those of `run FILE` do"
            raise ConfigError(problem, field="--case")
        problem = (
            "the contexts differ from those of the good end; pass --compiler VERSION, so that one "
            "compiler makes all of them"
        )
        raise ConfigError(problem, field="--compiler")
