"""What a bisection came to, as result.json has it: the answer, every run, both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.ground.facts.axes import AxisName
from harness.libraries.runtimes.difference import Difference
from harness.search.bisect.answers import GoodOrBad, Repeat, RunAnswer
from harness.search.bisect.before_after import edges_of, sides_of
from harness.search.bisect.case_run import Task
from harness.search.bisect.findings import AxisFinding, GridFinding, draw
from harness.search.bisect.log import Answered, BisectLog
from harness.search.bisect.rates import Side
from harness.search.bisect.search import AxisSpec, GridSpec
from harness.verdict.failure.error import ErrorRecord
from harness.verdict.results.record import CaseRecord, PreflightRecord, RuntimeRecord

_BUILD_DATE: Final = re.compile(r"\d+(?:\.\d+){1,2}\.(\d{2})(\d{2})(\d{2})(?:\d{6})?", re.ASCII)
_ENDS: Final = ("last_good", "first_bad", "last_bad", "first_good")
_OF_TASK: Final = {
    *("case", "axes", "held", "paths", "match", "devices", "on", "engine", "target", "backend")
}

RunRecords = Sequence[CaseRecord | None]
"""The records of answered runs, as far as there are any."""
Builds = Mapping[AxisName, Mapping[str, str | None]]
"""{axis: {version: build id}}."""
At = Annotated[list[str], Field(min_length=1, max_length=2)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class BoundShape(_Shape):
    """How many runs it may take: `alike` if both ends answer alike."""

    runs: int
    alike: int
    text: str


class _Answer(_Shape):
    text: str
    confidence: float | None
    runs: int
    unknown: int
    notes: list[str]
    verdict: GoodOrBad | None


class ChangeShape(_Shape):
    """A change on one axis. `between` are the candidates of which nothing is known."""

    direction: Literal["regression", "fix"]
    last_good: str | None = None
    first_bad: str | None = None
    last_bad: str | None = None
    first_good: str | None = None
    between: list[str]


class FailedShape(_Shape):
    """How many runs of a version failed, of how many."""

    failed: int
    runs: int


class AxisAnswer(_Answer):
    """Of a search on one axis. `between` are the candidates of which nothing is known.

    `changes` are all known changes, oldest first; the other fields are about the change that was
    asked for. `failed` and what follows is known where rates of failures were searched. `rates` are
    those before and after the change, or throughout. `least` is the smallest change of a rate that
    was looked for, `excluded` the smallest that is excluded with the confidence asked for.
    """

    kind: Literal["change", "range", "no-change", "undecided"]
    direction: Literal["regression", "fix"] | None
    last_good: str | None
    first_bad: str | None
    last_bad: str | None
    first_good: str | None
    between: list[str]
    one_change: bool
    changes: list[ChangeShape] = []
    failed: dict[str, FailedShape] = {}
    rates: list[Side] = []
    least: float | None = None
    excluded: float | None = None


class GridAnswer(_Answer):
    """Of a search on two axes. `mattered` is null for an axis of which it is not known."""

    kind: Literal["frontier", "no-change", "partial", "not-monotone", "undecided"]
    first: list[At]
    first_are: GoodOrBad
    edge_good: list[At]
    edge_bad: list[At]
    unsure: list[At]
    newer_is_better: dict[AxisName, bool] | None
    mattered: dict[AxisName, bool | None]
    axis_said: str | None
    assumed: str | None
    witnesses: list[At]


class BuildShape(_Shape):
    """The build of a version, and the day that it names."""

    build_id: str | None
    date: str | None


class RunShape(_Shape):
    """One run: where, what it answered, and its record if there is one."""

    number: int
    at: At
    answer: RunAnswer
    why: str | None
    seconds: float | None
    device: str | None
    run: str | None
    case: str | None
    outcome: str | None
    signature: str | None
    record: CaseRecord | None


class SideShape(_Shape):
    """One side of a change: the run that shows it."""

    at: At
    answer: RunAnswer
    run: str | None
    case: str | None
    outcome: str | None
    error: ErrorRecord | None
    runtime: RuntimeRecord | None
    steps: dict[str, object] | None
    evidence: list[str]


class PreflightShape(_Shape):
    """What preflight said of the older side only, of the newer one only, and of both."""

    gone: list[PreflightRecord]
    new: list[PreflightRecord]
    both: list[PreflightRecord]


class EdgeShape(_Shape):
    """Two unlike runs next to each other; `axes` are those on which they differ."""

    axes: list[AxisName]
    before: SideShape
    after: SideShape
    preflight: PreflightShape | None


class CellShape(_Shape):
    """A place of the grid, and how its verdict is known."""

    at: At
    verdict: GoodOrBad | None
    how: Literal["run", "concluded", "untestable", "open"]
    edge: bool
    unsure: bool
    contradicts: bool


class BisectionResult(_Shape):
    """What a bisection came to; `answer` is null while it is not over.

    `before` and `after` are the sides of the first of `edges`, or the one side that is known.
    `libraries` are those of the axes that differ at an edge. Paths are seen from the bisection's
    folder. `on` is the device, the kind of device or the engine, if several were asked; `engine` is
    set if it is an engine. `folder` and `exit_code` are printed by `--json` only.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_number: Annotated[Literal[1], Field(alias="schema")]
    kind: Literal["bisect"]
    bisect: str
    case: str
    axes: Annotated[list[AxisName], Field(min_length=1, max_length=2)]
    candidates: dict[AxisName, list[str]]
    held: dict[AxisName, str]
    paths: dict[AxisName, dict[str, str]]
    match: str | None
    repeat: Repeat
    bound: BoundShape
    devices: list[str]
    on: str | None
    engine: str | None
    target: str
    backend: str
    finished: bool
    answer: AxisAnswer | GridAnswer | None
    versions: dict[AxisName, dict[str, BuildShape]]
    runs: list[RunShape]
    before: SideShape | None
    after: SideShape | None
    preflight: PreflightShape | None
    edges: list[EdgeShape]
    libraries: dict[AxisName, Difference]
    grid: str | None
    cells: list[CellShape] | None
    folder: str | None = None
    exit_code: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As result.json has it."""
        return self.model_dump(mode="json", exclude={"folder", "exit_code"})


def result_of(
    name: str,
    log: BisectLog,
    task: Task,
    finding: AxisFinding | GridFinding | None,
    records: RunRecords,
    *,
    differences: Mapping[AxisName, Difference] | None = None,
    builds: Builds | None = None,
) -> BisectionResult:
    """Everything that is known of a bisection (pure).

    `finding` is None for one that is not over. `differences` are those of the libraries on the axes
    that differ at an edge, `builds` the build ids of versions, as far as records do not tell them.
    """
    answers = log.answers()
    before, after = sides_of(finding, answers)
    numbered = enumerate(zip(answers, records, strict=True), start=1)
    runs = [_run(number, *answered) for number, answered in numbered]
    sides = [_side(run) for run in runs]
    edges = [
        EdgeShape(
            axes=[
                axis
                for axis, a, b in zip(task.axes, answers[old].at, answers[new].at, strict=True)
                if a != b
            ],
            before=sides[old],
            after=sides[new],
            preflight=_preflight(records[old], records[new]),
        )
        for old, new in edges_of(finding, answers)
    ]
    bound = log.spec.bound()
    grid = None
    if isinstance(log.spec, GridSpec) and isinstance(finding, GridFinding):
        grid = draw(log.spec, finding)
    return BisectionResult(
        schema_number=1,
        kind="bisect",
        bisect=name,
        **task.model_dump(mode="json", include=_OF_TASK),
        candidates=_candidates(log.spec),
        repeat=log.spec.repeat,
        bound=BoundShape(runs=bound.runs, alike=bound.alike, text=str(bound)),
        finished=finding is not None,
        answer=_answer(finding),
        versions=_versions(task, runs, builds or {}),
        runs=runs,
        before=None if before is None else sides[before],
        after=None if after is None else sides[after],
        preflight=edges[0].preflight if edges else None,
        edges=edges,
        libraries=dict(differences or {}),
        grid=grid,
        cells=_cells(finding) if isinstance(finding, GridFinding) else None,
    )


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
    task: Task, runs: Sequence[RunShape], builds: Builds
) -> dict[AxisName, dict[str, BuildShape]]:
    """The build of every version that was met."""
    known: dict[AxisName, dict[str, str | None]] = {
        axis: dict(found) for axis, found in builds.items()
    }
    for run in runs:
        versions = task.versions(tuple(run.at))
        for axis, version in versions.items():
            known.setdefault(axis, {}).setdefault(version, None)
        if run.record is not None and run.record.runtime is not None and "qnn" in versions:
            known["qnn"][versions["qnn"]] = run.record.runtime.build_id
    return {
        axis: {
            version: BuildShape(build_id=build, date=build_date(build))
            for version, build in found.items()
        }
        for axis, found in known.items()
    }


def _candidates(spec: AxisSpec | GridSpec) -> dict[Any, list[str]]:
    if isinstance(spec, GridSpec):
        return {spec.axes[0]: list(spec.rows), spec.axes[1]: list(spec.columns)}
    return {spec.axis: list(spec.candidates)}


def _answer(finding: AxisFinding | GridFinding | None) -> AxisAnswer | GridAnswer | None:
    if finding is None:
        return None
    told: dict[str, Any] = vars(finding) | {"text": str(finding)}
    if isinstance(finding, AxisFinding):
        told |= {**dict.fromkeys(_ENDS), **finding.ends}
        told["changes"] = [
            ChangeShape(direction=one.direction, between=list(one.between), **one.ends)
            for one in finding.changes
        ]
        told["failed"] = {
            name: FailedShape(failed=failed, runs=runs)
            for name, (failed, runs) in finding.failed.items()
        }
        return AxisAnswer(**{name: told[name] for name in AxisAnswer.model_fields})
    decided = finding.kind in ("frontier", "partial")
    newer = finding.newer
    told |= {
        "first": finding.first,
        "first_are": "bad" if newer == (False, False) else "good",
        "unsure": sorted(finding.unsure),
        "newer_is_better": None if newer is None else dict(zip(finding.axes, newer, strict=True)),
        "mattered": dict(zip(finding.axes, finding.mattered, strict=True)),
        "axis_said": finding.axis_said() if decided else None,
    }
    return GridAnswer(**{name: told[name] for name in GridAnswer.model_fields})


def _cells(finding: GridFinding) -> list[CellShape]:
    edges = {*finding.edge_good, *finding.edge_bad}
    marks = {"edge": edges, "unsure": finding.unsure, "contradicts": finding.witnesses}
    return [
        CellShape.model_validate(
            {"at": list(at)} | vars(cell) | {mark: at in of for mark, of in marks.items()}
        )
        for at, cell in finding.cells.items()
    ]


def _run(number: int, entry: Answered, record: CaseRecord | None) -> RunShape:
    return RunShape.model_validate(
        {
            **entry.model_dump(include={"at", "answer", "run", "case"}),
            **{name: entry.detail.get(name) for name in ("why", "seconds", "device")},
            "number": number,
            "outcome": record.outcome if record else None,
            "signature": record.error.signature if record and record.error else None,
            "record": record,
        }
    )


def _side(run: RunShape) -> SideShape:
    record = run.record
    return SideShape(
        **run.model_dump(include={"at", "answer", "run", "case", "outcome"}),
        error=record.error if record else None,
        runtime=record.runtime if record else None,
        steps=_steps(record) if record else None,
        evidence=[f"{run.run}/{log}" for log in record.logs] if record else [],
    )


def _steps(record: CaseRecord) -> dict[str, object]:
    """How far the case came: its measured counts, and the step that failed."""
    counts = ("loaded", "executed", "freed", "sessions")
    found = {name: record.measurements[name] for name in counts if name in record.measurements}
    error = record.error
    failed = {} if error is None else {"failed_step": error.step, "failed_context": error.context}
    return {**found, **failed, "seconds": record.duration_s}


def _preflight(before: CaseRecord | None, after: CaseRecord | None) -> PreflightShape | None:
    if before is None or after is None:
        return None
    old, new = ({(one.code, one.files): one for one in of.preflight} for of in (before, after))
    return PreflightShape(
        gone=[old[key] for key in old if key not in new],
        new=[new[key] for key in new if key not in old],
        both=[new[key] for key in old if key in new],
    )
