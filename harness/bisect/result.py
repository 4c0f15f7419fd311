"""The result of a bisection, as in result.json: the answer, every run, both sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from harness.bisect.bad_condition import Evidence, GoodOrBad, Point, RunAnswer, repeats_needed
from harness.bisect.folder import Answered, BisectLog
from harness.bisect.search import Task
from harness.core.json_record import Part, Schema1
from harness.core.matrix_axes import AxisName
from harness.results.record import CaseRecord
from harness.runtimes.difference import Difference

FindingKind = Literal["change", "range", "no-change", "undecided"]
Direction = Literal["regression", "fix"]


class VersionChange(Part):
    """A change on one axis; `between` are the candidates with no verdict.

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
        """Return the change between two versions, the older one first."""
        gap = tuple(between)
        if direction == "regression":
            return cls(direction=direction, last_good=before, first_bad=after, between=gap)
        return cls(direction=direction, last_bad=before, first_good=after, between=gap)

    @property
    def before(self) -> str:
        return self.last_good or self.last_bad or ""

    @property
    def after(self) -> str:
        return self.first_bad or self.first_good or ""

    @property
    def description(self) -> str:
        words = ("last good", "first bad")
        if self.direction == "fix":
            words = ("last bad", "first good")
        text = f"{words[0]} {self.before}, {words[1]} {self.after}"
        if self.between:
            text += f" or one of the undecided versions before it: {', '.join(self.between)}"
        return text


class FlakyVersion(Part):
    """A point whose runs disagree; with `repeats` runs a failure is missed with less than 1 %."""

    at: tuple[str, ...]
    failed: int
    runs: int
    repeats: int

    @property
    def description(self) -> str:
        return (
            f"flaky: {self.failed} of {self.runs} runs failed at {' with '.join(self.at)}; at that "
            f"rate --repeat {self.repeats} misses it with less than 1 % probability"
        )


def flaky_versions(evidence: Evidence) -> tuple[FlakyVersion, ...]:
    """Return the points whose runs disagree."""
    return tuple(
        FlakyVersion(
            at=point,
            failed=tally.bad,
            runs=tally.good + tally.bad,
            repeats=repeats_needed(tally.bad, tally.good + tally.bad),
        )
        for point, tally in sorted(evidence.tallies.items())
        if tally.good and tally.bad
    )


class _Finding(Part):
    """The fields of both answers. `text` is the answer, `notes` are remarks on it.

    `runs` counts those that answered, `unknown` those spoilt by the lab. `flaky` are the versions
    whose runs disagree. `verdict` is that of all versions if nothing changed.
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
    """The answer of a search on one axis, or its state when it had to end.

    - `change`: the two versions are neighbours among the candidates.
    - `range`: the change lies between them; `between` are the candidates with no verdict, because
      they cannot be tested or the runs did not suffice.
    - `no-change`: all that could be tested are `verdict`; `between` are those that could not.
    - `undecided`: there is not enough evidence; `notes` say why.
    """


class Corner(Part):
    """A pair of versions that was run; `verdict` is null if it cannot be tested."""

    at: tuple[str, str]
    verdict: GoodOrBad | None


class HeldSearch(Part):
    """The search on one axis with the other held at a version."""

    axis: str
    held: dict[str, str]
    answer: AxisFinding


class CornersFinding(_Finding):
    """The answer for a good and a bad pair of versions.

    `fails_with` is the axis whose bad version is enough to fail, `both` if only both together
    fail, `either` if each is enough; null if that is not decided. `corners` are the named pairs
    and the two mixed ones, `searches` those on the axes that matter.
    """

    axes: tuple[str, str]
    fails_with: str | None = None
    corners: tuple[Corner, ...] = ()
    searches: tuple[HeldSearch, ...] = ()

    def point(self, search: HeldSearch, version: str) -> Point:
        """Return the pair with this version of the searched axis."""
        versions = {**search.held, search.axis: version}
        return tuple(versions[axis] for axis in self.axes)


Finding = AxisFinding | CornersFinding


def edges_of(finding: Finding | None, answers: Sequence[Answered]) -> list[tuple[int, int]]:
    """Return the pairs of runs that show a change, by their indices in `answers`.

    There is one for each searched axis, the older run first.
    """
    changes: list[tuple[VersionChange, Point, Point]] = []
    if isinstance(finding, AxisFinding):
        changes = [(finding, (finding.before,), (finding.after,))]
    elif finding is not None:
        for search in finding.searches:
            answer = search.answer
            old, new = (finding.point(search, v) for v in (answer.before, answer.after))
            changes.append((answer, old, new))
    edges: list[tuple[int, int]] = []
    for change, old, new in changes:
        kinds: tuple[RunAnswer, RunAnswer] = ("good", "bad")
        older, newer = kinds if change.direction == "regression" else kinds[::-1]
        before, after = _last(answers, old, older), _last(answers, new, newer)
        if before is not None and after is not None:
            edges.append((before, after))
    return edges


def _last(answers: Sequence[Answered], point: Point, answer: RunAnswer) -> int | None:
    runs = (i for i, entry in enumerate(answers) if (entry.at, entry.answer) == (point, answer))
    return max(runs, default=None)


_OF_TASK: Final = ("case", "axes", "held", "paths", "match", "devices", "target", "backend")

RunRecords = Sequence[CaseRecord | None]
"""The records of answered runs; None for a run without one."""


class Run(Answered):
    """A run that answered: its number, and its record if there is one."""

    number: int
    record: CaseRecord | None


class Edge(Part):
    """The numbers of two neighbouring runs with different answers, which differ on `axis`."""

    axis: AxisName
    before: int
    after: int


class BisectionResult(Part):
    """The result of a bisection; `answer` is null while it is not over.

    `versions` are the known build ids of each version, `libraries` those of the axes that differ at
    an edge. Paths are relative to the bisection's folder. `folder` and `exit_code` are printed by
    `--json` only.
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
    repeat: int
    most_runs: int
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
    exit_code: int | None = None

    def sides(self, edge: Edge) -> tuple[Run, Run]:
        """Return the runs on both sides of a change, the older first."""
        return self.runs[edge.before - 1], self.runs[edge.after - 1]

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"folder", "exit_code"})


def result_of(
    name: str,
    log: BisectLog,
    finding: Finding | None,
    records: RunRecords,
    differences: Mapping[AxisName, Difference] | None = None,
) -> BisectionResult:
    """Build the result of a bisection (pure).

    `finding` is None for one that is not over. `differences` are those of the libraries on the axes
    that differ at an edge.
    """
    task, answers = log.spec, log.answers()
    numbered = enumerate(zip(answers, records, strict=True), start=1)
    runs = [
        Run(number=number, record=record, **entry.model_dump())
        for number, (entry, record) in numbered
    ]
    edges = []
    for old, new in edges_of(finding, answers):
        points = zip(task.axes, answers[old].at, answers[new].at, strict=True)
        axis = next(axis for axis, before, after in points if before != after)
        edges.append(Edge(axis=axis, before=old + 1, after=new + 1))
    return BisectionResult(
        schema_number=1,
        kind="bisect",
        bisect=name,
        **{field: getattr(task, field) for field in _OF_TASK},
        candidates=task.search.versions,
        repeat=task.search.repeat,
        most_runs=task.search.most_runs,
        finished=finding is not None,
        answer=finding,
        versions=_versions(task, runs),
        runs=runs,
        edges=edges,
        libraries=dict(differences or {}),
    )


def _versions(task: Task, runs: Sequence[Run]) -> dict[AxisName, dict[str, str | None]]:
    """Return the build id of every version that was run."""
    known: dict[AxisName, dict[str, str | None]] = {}
    for run in runs:
        versions = task.versions(run.at)
        for axis, version in versions.items():
            known.setdefault(axis, {}).setdefault(version, None)
        if run.record is not None and run.record.runtime is not None and "qnn" in versions:
            known["qnn"][versions["qnn"]] = run.record.runtime.build_id
    return known
