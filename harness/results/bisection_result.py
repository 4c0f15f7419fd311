"""What result.json of a bisection holds, for its JSON Schema: whoever writes it makes a dict."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.results.libraries import PreflightRecord, RuntimeRecord
from harness.results.record import CaseRecord, ErrorRecord

Axis = Literal["qnn", "ort", "compiler"]
Verdict = Literal["good", "bad"]
Answered = Literal["good", "bad", "untestable", "unknown"]
At = Annotated[list[str], Field(min_length=1, max_length=2)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
    verdict: Verdict | None


class AxisAnswer(_Answer):
    """Of a search on one axis. `between` are the candidates of which nothing is known."""

    kind: Literal["change", "range", "no-change", "undecided"]
    direction: Literal["regression", "fix"] | None
    last_good: str | None
    first_bad: str | None
    last_bad: str | None
    first_good: str | None
    between: list[str]
    one_change: bool


class GridAnswer(_Answer):
    """Of a search on two axes. `mattered` is null for an axis of which it is not known."""

    kind: Literal["frontier", "no-change", "partial", "not-monotone", "undecided"]
    first: list[At]
    first_are: Verdict
    edge_good: list[At]
    edge_bad: list[At]
    unsure: list[At]
    newer_is_better: dict[Axis, bool] | None
    mattered: dict[Axis, bool | None]
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
    answer: Answered
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
    answer: Answered
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

    axes: list[Axis]
    before: SideShape
    after: SideShape
    preflight: PreflightShape | None


class CutShape(_Shape):
    """A list that may have been cut, and its true length."""

    count: int
    names: list[str]


class FileShape(_Shape):
    """A library that both sides have, with other bytes."""

    name: str
    size_before: int
    size_after: int
    symbols_gone: CutShape
    symbols_new: CutShape
    needs_gone: CutShape
    needs_new: CutShape
    problem: str | None


class LibrariesShape(_Shape):
    """What changed between the libraries of two versions; sizes in bytes."""

    gone: dict[str, int]
    new: dict[str, int]
    same: list[str]
    changed: list[FileShape]


class CellShape(_Shape):
    """A place of the grid, and how its verdict is known."""

    at: At
    verdict: Verdict | None
    how: Literal["run", "concluded", "untestable", "open"]
    edge: bool
    unsure: bool
    contradicts: bool


class BisectionResult(_Shape):
    """A bisection: `answer` is null while it is not over.

    `before` and `after` are the sides of the first of `edges`, or the one side that is known.
    `libraries` are those of the axes that differ at an edge. Paths are seen from the bisection's
    folder. `folder` and `exit_code` are printed by `--json` only.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    kind: Literal["bisect"]
    bisect: str
    case: str
    axes: Annotated[list[Axis], Field(min_length=1, max_length=2)]
    candidates: dict[Axis, list[str]]
    held: dict[Axis, str]
    paths: dict[Axis, dict[str, str]]
    match: str | None
    repeat: int | Literal["auto"]
    bound: BoundShape
    devices: list[str]
    target: str
    backend: str
    finished: bool
    answer: AxisAnswer | GridAnswer | None
    versions: dict[Axis, dict[str, BuildShape]]
    runs: list[RunShape]
    before: SideShape | None
    after: SideShape | None
    preflight: PreflightShape | None
    edges: list[EdgeShape]
    libraries: dict[Axis, LibrariesShape]
    grid: str | None
    cells: list[CellShape] | None
    folder: str | None = None
    exit_code: int | None = None
