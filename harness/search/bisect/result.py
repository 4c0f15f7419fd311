"""The result of a bisection, as result.json has it: the answer, every run, both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from harness.ground.facts.axes import AxisName
from harness.ground.files.schema_field import Schema1
from harness.libraries.runtimes.difference import Difference
from harness.search.bisect.answers import Question, Repeat
from harness.search.bisect.before_after import edges_of
from harness.search.bisect.findings import AxisFinding, CornersFinding, Finding
from harness.search.bisect.log import Answered, BisectLog
from harness.search.bisect.search import Bound
from harness.search.bisect.task import Task
from harness.verdict.failure.error import Part
from harness.verdict.results.record import CaseRecord, PreflightRecord

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
