"""The result of a bisection, as result.json has it: the answer, every run, both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from harness.ground.facts.axes import AxisName
from harness.libraries.runtimes.difference import Difference
from harness.search.bisect.answers import Repeat, RunAnswer
from harness.search.bisect.before_after import edges_of, sides_of
from harness.search.bisect.findings import AxisFinding, CornersFinding, Finding
from harness.search.bisect.log import Answered, BisectLog
from harness.search.bisect.task import Task
from harness.verdict.failure.error import ErrorRecord, Part
from harness.verdict.results.record import CaseRecord, PreflightRecord, RuntimeRecord

_BUILD_DATE: Final = re.compile(r"\d+(?:\.\d+){1,2}\.(\d{2})(\d{2})(\d{2})(?:\d{6})?", re.ASCII)
_OF_TASK: Final = ("case", "held", "paths", "match", "devices", "on", "engine", "target", "backend")

RunRecords = Sequence[CaseRecord | None]
"""The records of answered runs, as far as there are any."""
Builds = Mapping[AxisName, Mapping[str, str | None]]
"""{axis: {version: build id}}."""
At = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]


class BoundShape(Part):
    """How many runs it may take: `alike` if both ends answer alike."""

    runs: int
    alike: int
    text: str


class BuildShape(Part):
    """The build of a version, and the day that it names."""

    build_id: str | None
    date: str | None


class RunShape(Part):
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


class SideShape(Part):
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


class PreflightShape(Part):
    """What preflight said of the older side only, of the newer one only, and of both."""

    gone: list[PreflightRecord]
    new: list[PreflightRecord]
    both: list[PreflightRecord]


class EdgeShape(Part):
    """Two unlike runs next to each other, which differ on `axis`."""

    axis: AxisName
    before: SideShape
    after: SideShape
    preflight: PreflightShape | None


class NextRun(Part):
    """The versions of a run that would be next, and its purpose."""

    at: At
    why: str


class BisectionResult(Part):
    """What a bisection came to; `answer` is null while it is not over.

    `before` and `after` are the sides of the first of `edges`, or the one side that is known.
    `libraries` are those of the axes that differ at an edge. Paths are seen from the bisection's
    folder. `on` is the device, the kind of device or the engine, if several were asked; `engine` is
    set if it is an engine. `folder`, `next` and `exit_code` are printed by `--json` only; `next` is
    the run that `replay --dry-run` leaves out.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_number: Annotated[Literal[1], Field(alias="schema")]
    kind: Literal["bisect"]
    bisect: str
    case: str
    axes: Annotated[tuple[AxisName, ...], Field(min_length=1, max_length=2)]
    candidates: Mapping[AxisName, tuple[str, ...]]
    held: Mapping[AxisName, str]
    paths: Mapping[AxisName, Mapping[str, str]]
    match: str | None
    repeat: Repeat
    bound: BoundShape
    devices: tuple[str, ...]
    on: str | None
    engine: str | None
    target: str
    backend: str
    finished: bool
    answer: AxisFinding | CornersFinding | None
    versions: dict[AxisName, dict[str, BuildShape]]
    runs: list[RunShape]
    before: SideShape | None
    after: SideShape | None
    preflight: PreflightShape | None
    edges: list[EdgeShape]
    libraries: dict[AxisName, Difference]
    folder: str | None = None
    next: NextRun | None = None
    exit_code: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As result.json has it."""
        return self.model_dump(mode="json", exclude={"folder", "next", "exit_code"})


class BisectionNotBegun(Part):
    """One of several bisections that was not gone on with; `left_out`: why it never is."""

    schema_number: Annotated[Literal[1], Field(alias="schema")] = 1
    kind: Literal["bisect"] = "bisect"
    bisect: str
    folder: str
    finished: Literal[False] = False
    on: str | None
    engine: str | None
    left_out: str | None = None


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
    before, after = sides_of(finding, answers)
    numbered = enumerate(zip(answers, records, strict=True), start=1)
    runs = [_run(number, *answered) for number, answered in numbered]
    sides = [_side(run) for run in runs]
    edges = [
        EdgeShape(
            axis=_differs_on(task, answers[old], answers[new]),
            before=sides[old],
            after=sides[new],
            preflight=_preflight(records[old], records[new]),
        )
        for old, new in edges_of(finding, answers)
    ]
    bound = task.search.bound()
    return BisectionResult(
        schema_number=1,
        kind="bisect",
        bisect=name,
        **{field: getattr(task, field) for field in _OF_TASK},
        axes=task.axes,
        candidates=task.search.versions,
        repeat=task.search.repeat,
        bound=BoundShape(runs=bound.runs, alike=bound.alike, text=str(bound)),
        finished=finding is not None,
        answer=finding,
        versions=_versions(task, runs, builds or {}),
        runs=runs,
        before=None if before is None else sides[before],
        after=None if after is None else sides[after],
        preflight=edges[0].preflight if edges else None,
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
    task: Task, runs: Sequence[RunShape], builds: Builds
) -> dict[AxisName, dict[str, BuildShape]]:
    """The build of every version that was met."""
    known: dict[AxisName, dict[str, str | None]] = {
        axis: dict(found) for axis, found in builds.items()
    }
    for run in runs:
        versions = task.versions(run.at)
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
