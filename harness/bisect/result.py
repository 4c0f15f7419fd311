"""The result of a bisection, as result.json has it: the answer, every run, both sides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from harness.bisect.folder import Answered, BisectLog
from harness.bisect.match import (
    Evidence,
    GoodOrBad,
    Point,
    Question,
    Repeat,
    RunAnswer,
    repeats_needed,
)
from harness.bisect.search import Bound, Task
from harness.core.axes import AxisName
from harness.core.schema_field import Schema1
from harness.diagnosis.error import Part
from harness.results.record import CaseRecord, PreflightRecord
from harness.runtimes.difference import Difference

FindingKind = Literal["change", "range", "no-change", "undecided"]
Direction = Literal["regression", "fix"]


class VersionChange(Part):
    """A change on one axis; `between` are the candidates of which it is not known.

    A regression has a last good and a first bad version, a fix a last bad and a first good one.
    """

    direction: Direction | None = None
    last_good: str | None = None
    first_bad: str | None = None
    last_bad: str | None = None
    first_good: str | None = None
    between: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, direction: Direction, before: str, after: str, between: Iterable[str] = ()
    ) -> VersionChange:
        """The change between two versions, the older one first."""
        kept = tuple(between)
        if direction == "regression":
            return VersionChange(
                direction=direction, last_good=before, first_bad=after, between=kept
            )
        return VersionChange(direction=direction, last_bad=before, first_good=after, between=kept)

    @property
    def before(self) -> str:
        return self.last_good or self.last_bad or ""

    @property
    def after(self) -> str:
        return self.first_bad or self.first_good or ""

    @property
    def where(self) -> str:
        return f"one of {', '.join((*self.between, self.after))}" if self.between else self.after

    @property
    def said(self) -> str:
        """The change in words."""
        words = ("last good", "first bad")
        if self.direction == "fix":
            words = ("last bad", "first good")
        text = f"{words[0]} {self.before}, {words[1]} {self.after}"
        if self.between:
            text += f" or one of the undecided before it: {', '.join(self.between)}"
        return text


class FlakyVersion(Part):
    """A point whose runs disagree. With `repeats` runs of each, such a failure is overlooked in
    less than 1 %.
    """

    at: tuple[str, ...]
    failed: int
    runs: int
    repeats: int

    @property
    def said(self) -> str:
        """The disagreement in words, and the number of runs that would settle it."""
        return (
            f"flaky: {self.failed} of {self.runs} failed at {' with '.join(self.at)}; with "
            f"--repeat {self.repeats} a miss is less likely than 1 % at that rate"
        )


def flaky_versions(evidence: Evidence, repeat: Repeat) -> tuple[FlakyVersion, ...]:
    """Return the points whose runs disagree; none where figures are judged beside noise."""
    if not isinstance(repeat, int):
        return ()
    mixed = ((at, one) for at, one in sorted(evidence.tallies.items()) if one.good and one.bad)
    return tuple(
        FlakyVersion(
            at=at,
            failed=tally.bad,
            runs=tally.good + tally.bad,
            repeats=repeats_needed(tally.bad, tally.good + tally.bad),
        )
        for at, tally in mixed
    )


class _Finding(Part):
    """The fields of both answers. `text` is the answer in words, `notes` are what to know besides.

    `runs` are those that answered, `unknown` those that the lab spoilt. `flaky` are the versions
    whose runs disagree. `verdict` is that of all, where nothing changes.
    """

    text: str
    kind: FindingKind
    verdict: GoodOrBad | None = None
    runs: int = 0
    unknown: int = 0
    notes: tuple[str, ...] = ()
    flaky: tuple[FlakyVersion, ...] = ()

    def __str__(self) -> str:
        return self.text


class AxisFinding(_Finding, VersionChange):
    """The answer of a search on one axis, or what is known when it had to end.

    - `change`: the two versions are neighbours among the candidates.
    - `range`: the change lies between them; `between` are the candidates of which it is not known,
      since they cannot be tested, or since the runs did not suffice.
    - `no-change`: all that could be tested are `verdict`; `between` are those that could not.
    - `undecided`: not enough could be learnt; `notes` say why.

    `changes` are all known changes, oldest first; the other fields are about the one that was asked
    for.
    """

    changes: tuple[VersionChange, ...] = ()

    @property
    def asked_first(self) -> list[VersionChange]:
        return sorted(self.changes, key=lambda change: change.after != self.after)


class Corner(Part):
    """A corner that was run: a pair of versions; `verdict` is null if it cannot be tested."""

    at: tuple[str, str]
    verdict: GoodOrBad | None


class HeldSearch(Part):
    """The search on one axis with the other held."""

    axis: str
    held: dict[str, str]
    answer: AxisFinding


class CornersFinding(_Finding):
    """The answer for a good and a bad pair of versions.

    `fails_with` is the axis whose bad version is enough to fail, `both` if only both together
    fail, `either` if each is enough; null if that is not decided. `corners` are the pairs that were
    named and the two mixed ones, `searches` what came of the axes that matter.
    """

    axes: tuple[str, str]
    fails_with: str | None = None
    corners: tuple[Corner, ...] = ()
    searches: tuple[HeldSearch, ...] = ()

    def point(self, search: HeldSearch, version: str) -> Point:
        """The pair with a version of the axis that was searched."""
        versions = {**search.held, search.axis: version}
        return tuple(versions[axis] for axis in self.axes)


Finding = AxisFinding | CornersFinding


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


def _changes_of(finding: Finding | None) -> Iterator[tuple[VersionChange, Point, Point]]:
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


_BUILD_DATE: Final = re.compile(r"\d+(?:\.\d+){1,2}\.(\d{2})(\d{2})(\d{2})(?:\d{6})?", re.ASCII)
_OF_TASK: Final = ("case", "axes", "held", "paths", "match", "devices", "target", "backend")

RunRecords = Sequence[CaseRecord | None]
"""The records of answered runs, as far as there are any."""
Builds = Mapping[AxisName, Mapping[str, str | None]]
"""{axis: {version: build id}}."""


class Run(Answered):
    """A run that answered: its number, and its record if there is one."""

    number: int
    record: CaseRecord | None


class PreflightChange(Part):
    """What preflight said of the older side only, of the newer one only, and of both."""

    gone: list[PreflightRecord]
    new: list[PreflightRecord]
    both: list[PreflightRecord]


class Edge(Part):
    """The numbers of two unlike runs next to each other, which differ on `axis`."""

    axis: AxisName
    before: int
    after: int
    preflight: PreflightChange | None


class BisectionResult(Part):
    """What a bisection came to; `answer` is null while it is not over.

    `versions` are the build ids of each version, as far as they are known. The first of `edges` is
    that of the change asked for, `libraries` are those of the axes that differ at an edge. Paths
    are seen from the bisection's folder. `folder`, `next` and `exit_code` are printed by `--json`
    only; `next` is the run that `replay --dry-run` leaves out.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_number: Schema1
    kind: Literal["bisect"]
    bisect: str
    case: str
    axes: Annotated[tuple[AxisName, ...], Field(min_length=1, max_length=2)]
    candidates: Mapping[AxisName, tuple[str, ...]]
    held: Mapping[AxisName, str]
    paths: Mapping[AxisName, Mapping[str, str]]
    match: str | None
    repeat: Repeat
    bound: Bound
    devices: tuple[str, ...]
    target: str
    backend: str
    finished: bool
    answer: AxisFinding | CornersFinding | None
    versions: dict[AxisName, dict[str, str | None]]
    runs: list[Run]
    edges: list[Edge]
    libraries: dict[AxisName, Difference]
    folder: str | None = None
    next: Question | None = None
    exit_code: int | None = None

    def sides(self, edge: Edge) -> tuple[Run, Run]:
        """The runs on both sides of a change, the older first."""
        return self.runs[edge.before - 1], self.runs[edge.after - 1]

    def as_json(self) -> dict[str, Any]:
        """As result.json has it."""
        return self.model_dump(mode="json", exclude={"folder", "next", "exit_code"})


def result_of(
    name: str,
    log: BisectLog,
    finding: Finding | None,
    records: RunRecords,
    *,
    differences: Mapping[AxisName, Difference] | None = None,
    builds: Builds | None = None,
) -> BisectionResult:
    """Everything that is known of a bisection (pure).

    `finding` is None for one that is not over. `differences` are those of the libraries on the axes
    that differ at an edge, `builds` the build ids of versions, as far as records do not tell them.
    """
    task, answers = log.spec, log.answers()
    numbered = enumerate(zip(answers, records, strict=True), start=1)
    runs = [
        Run(number=number, record=record, **answered.model_dump())
        for number, (answered, record) in numbered
    ]
    edges = [
        Edge(
            axis=_differs_on(task, answers[old], answers[new]),
            before=old + 1,
            after=new + 1,
            preflight=_preflight(records[old], records[new]),
        )
        for old, new in edges_of(finding, answers)
    ]
    return BisectionResult(
        schema_number=1,
        kind="bisect",
        bisect=name,
        **{field: getattr(task, field) for field in _OF_TASK},
        candidates=task.search.versions,
        repeat=task.search.repeat,
        bound=task.search.bound(),
        finished=finding is not None,
        answer=finding,
        versions=_versions(task, runs, builds or {}),
        runs=runs,
        edges=edges,
        libraries=dict(differences or {}),
    )


def _differs_on(task: Task, old: Answered, new: Answered) -> AxisName:
    pairs = zip(task.axes, old.at, new.at, strict=True)
    return next(axis for axis, before, after in pairs if before != after)


def build_date(build_id: str | None) -> str | None:
    """The day that a build id names: 2026-09-29 for 2.51.0.260929181845 (pure)."""
    found = _BUILD_DATE.match(build_id or "")
    if found is None:
        return None
    year, month, day = (int(part) for part in found.groups())
    try:
        return date(2000 + year, month, day).isoformat()
    except ValueError:
        return None


def _versions(
    task: Task, runs: Sequence[Run], builds: Builds
) -> dict[AxisName, dict[str, str | None]]:
    """The build of every version that was met."""
    known = {axis: dict(found) for axis, found in builds.items()}
    for run in runs:
        versions = task.versions(run.at)
        for axis, version in versions.items():
            known.setdefault(axis, {}).setdefault(version, None)
        if run.record is not None and run.record.runtime is not None and "qnn" in versions:
            known["qnn"][versions["qnn"]] = run.record.runtime.build_id
    return known


def _preflight(before: CaseRecord | None, after: CaseRecord | None) -> PreflightChange | None:
    if before is None or after is None:
        return None
    old, new = ({(one.code, one.files): one for one in of.preflight} for of in (before, after))
    return PreflightChange(
        gone=[old[key] for key in old if key not in new],
        new=[new[key] for key in new if key not in old],
        both=[new[key] for key in old if key in new],
    )
