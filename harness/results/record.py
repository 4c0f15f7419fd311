"""The lines of results.jsonl: records of cases, and events of devices (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeGuard

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    Tag,
    model_validator,
)

from harness.core.bounded_json import INTEGERS, MAX_DEPTH
from harness.core.errors import Cause
from harness.core.json_record import Count, Moment, Part, RecordText, Schema2, Seconds, clean_text
from harness.core.outgoing_text import counted
from harness.core.paths_inside import inner_name
from harness.diagnosis.error_record import ErrorRecord, Outcome
from harness.dsp.replies import DspReply
from harness.lab.health import DeviceEvent
from harness.probe.plan import Plan, Step
from harness.probe.transcript import Transcript
from harness.results.case_names import function_of, named, placement_text, split_node_id
from harness.results.coverage import NO_CAUSE, Ended
from harness.runtimes.preflight_findings import Finding

_MAX_DEPTH: Final = 20
WHOLE: Final = _MAX_DEPTH - MAX_DEPTH
"""The `depth` to pass for a whole file, which may be nested as deep as it can be read."""
_MOST: Final = 10**300
_LISTS: Final = (list, tuple)
_AS_THEY_ARE: Final = frozenset({int, bool, type(None)})


def as_json(value: object, depth: int = 0) -> JsonValue:
    """Convert a measured value to JSON.

    Tuples and arrays become lists, numpy's numbers plain ones, paths text; NaN and infinities,
    for which JSON has no number, become null, and integers beyond 64 bits floating numbers.
    Raises ValueError for anything else.
    """
    if type(value) is str and value.isascii():  # nearly all of a journal
        return value
    if type(value) is int:
        return _integer(value)
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, _LISTS):  # lists and floats first, since most values are
        if _AS_THEY_ARE.issuperset(map(type, value)):
            numbers = value if None not in value else [item for item in value if item is not None]
            if not numbers or (max(numbers) < INTEGERS and min(numbers) > -INTEGERS):
                return list(value)
        return [as_json(item, depth + 1) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath):
        return str(clean_text(str(value)))
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, Mapping):
        return {str(clean_text(str(key))): as_json(item, depth + 1) for key, item in value.items()}
    plain = getattr(value, "tolist", None)
    if callable(plain):
        return as_json(plain(), depth + 1)
    raise ValueError(f"JSON cannot hold a value of type {type(value).__name__}")


def _integer(value: int) -> int | float | None:
    if -INTEGERS < value < INTEGERS:
        return value
    return float(value) if -_MOST < value < _MOST else None


JsonObject = Annotated[dict[str, JsonValue], BeforeValidator(as_json)]


def whole_numbers(value: object) -> list[int]:
    """Return the integers of a list that the probe reported; empty if it is no list."""
    return [item for item in value if type(item) is int] if isinstance(value, list) else []


CheckVerdict = Literal["held", "broken", "unseen"]
_VERDICT_WORDS: Final[Mapping[CheckVerdict, str]] = {
    "broken": "failed",
    "held": "passed",
    "unseen": "not tested",
}


class Check(Part):
    """One expectation and its verdict.

    `unseen` means that this target cannot show it. `reason` is a sentence with the figures that
    decided; `figures` has them as numbers, with units in the names.
    """

    name: RecordText
    verdict: CheckVerdict
    reason: RecordText
    figures: JsonObject = Field(default={})


def held(name: str, holds: bool, reason: str, **figures: JsonValue) -> Check:
    """Return a check that could be decided."""
    verdict: CheckVerdict = "held" if holds else "broken"
    return Check(name=name, verdict=verdict, reason=reason, figures=figures)


def undecided(name: str, reason: str, **figures: JsonValue) -> Check:
    """Return a check that nothing could decide; records call it `unseen`."""
    return Check(name=name, verdict="unseen", reason=reason, figures=figures)


def broken(checks: Iterable[Check]) -> list[Check]:
    """Return the checks that did not hold."""
    return [check for check in checks if check.verdict == "broken"]


def failure_text(checks: Sequence[Check]) -> str:
    """Return a line for each broken check; empty if none is."""
    return "\n".join(f"{check.name}: {check.reason}" for check in broken(checks))


def conclusion(checks: Sequence[Check]) -> str:
    """Return the names of failed, passed and untested checks in one line."""
    groups = []
    for verdict, word in _VERDICT_WORDS.items():
        names = [check.name for check in checks if check.verdict == verdict]
        groups += [f"checks {word}: {', '.join(names)}"] if names else []
    return "; ".join(groups)


Outputs = Literal["reference", "agreement", "unverified"]
"""The basis of comparison of outputs: expected outputs, those of the same inputs, or none."""

_LOADS: Final = ("context-load", "executorch-program")
_NO_OPTIONS: Final = ("context", "file")
_OWN_BUFFERS: Final = ("execute", "executorch-run", "ort-run")
_EXECUTES: Final = (*_OWN_BUFFERS, "io-run")


@dataclass(frozen=True)
class Execution:
    """One step that executed a graph.

    `compared` is true if outputs were compared with expected ones. `work` is the binary, graph and
    inputs, so that equal work has to give equal outputs; None if the plan does not say. `digests`
    are hashes of the outputs, empty if there are none.
    """

    verb: str
    work: tuple[str, ...] | None
    compared: bool
    digests: tuple[int, ...]


def executions(plan: Plan, transcript: Transcript) -> Iterator[Execution]:
    """Yield the executions of one process that gave outputs, right or wrong."""
    binaries: dict[str, str] = {}
    bound: dict[str, Step] = {}
    ended = {step.step: step for step in transcript.steps if step.ok or step.error == "mismatch"}
    for number, step in enumerate(plan.steps):
        context = step.fields.get("context", "0")
        if step.verb in _LOADS:
            binaries[context] = step.fields["file"]
        elif step.verb == "ort-session":  # options may change what the same model computes
            options = (text for key, text in step.fields.items() if key not in _NO_OPTIONS)
            binaries[context] = " ".join((*options, step.fields["file"]))
        elif step.verb == "io-bind":
            bound[context] = step
        elif step.verb in _EXECUTES and (result := ended.get(number)) is not None:
            by, work = bound.get(context) if step.verb == "io-run" else step, None
            if by is not None and (binary := binaries.get(context)) is not None:
                inputs = [text for key, text in by.fields.items() if key.startswith("input.")]
                work = (binary, by.fields.get("graph", "0"), *inputs)
            outputs = result.data.get("outputs")
            compared = isinstance(outputs, list) and bool(outputs)
            for output in outputs if isinstance(outputs, list) else ():
                compared &= isinstance(output, dict) and "max_abs" in output
            # runs of a wrong step may differ from each other
            digests = whole_numbers(result.data.get("digests")) if result.ok else []
            yield Execution(step.verb, work, compared, tuple(digests))


def outputs_of(runs: Sequence[Execution]) -> Outputs | None:
    """Return the basis of comparison of all these outputs; None if nothing was executed."""
    if not runs:
        return None
    alone = [run for run in runs if not run.compared]
    if not alone:
        return "reference"
    groups = _by_work(alone)
    is_known = all(run.work is not None and run.digests for run in alone)
    agree = all(len(digests) > 1 and len(set(digests)) == 1 for digests in groups.values())
    return "agreement" if is_known and agree else "unverified"


def disagreement(runs: Iterable[Execution]) -> str | None:
    """Return which executions gave different outputs for the same inputs, in words; else None.

    Executions with kept buffers are left to their planner: such buffers may contain anything.
    """
    fresh = (run for run in runs if run.verb in _OWN_BUFFERS)
    for work, digests in _by_work(fresh).items():
        outputs = [
            i for i, column in enumerate(zip(*digests, strict=False)) if len(set(column)) > 1
        ]
        if outputs:
            name = work[0].rpartition("/")[2]
            return (
                f"the same inputs gave {counted(len(set(digests)), 'different output')} in "
                f"{counted(len(digests), 'execution')}: {name}, graph {work[1]}, "
                f"output {outputs[0]}"
            )
    return None


def _by_work(runs: Iterable[Execution]) -> Mapping[tuple[str, ...], list[tuple[int, ...]]]:
    groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for run in runs:
        if run.work is not None and run.digests:
            groups.setdefault(run.work, []).append(run.digests)
    return groups


SCHEMA: Final = 2
"""The schema of the lines of results.jsonl; no other one is written or read."""
_NUMBERS: Final = frozenset({int, float})


def is_figure(value: object) -> TypeGuard[int | float]:
    """Return whether a measured value is a number that can be printed in digits."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def are_figures(values: Sequence[Any]) -> bool:
    """Return whether all values are figures; fast for plain numbers, as in a journal."""
    if values and _NUMBERS.issuperset(map(type, values)):
        return bool(min(values) > -1e300 and max(values) < 1e300)
    return all(map(is_figure, values))


LogPath = Annotated[RecordText, AfterValidator(inner_name)]


class RuntimeRecord(Part):
    """The libraries a case ran with; `build_id` is read from them.

    `contexts_by` is the QNN that made the case's contexts, a compiler's version or the build that a
    file names, null if it had none.
    """

    qnn: RecordText
    build_id: RecordText | None = None
    source: RecordText
    ort: RecordText | None = None
    contexts_by: RecordText | None = None


class PlacementRecord(Part):
    """The placement of a case, which its name begins with.

    `device` is the device, or the pool or kind of equal devices. `ort` is null without ONNX
    Runtime, `compiler` if the contexts are compiled with the runtime's own version. Versions are
    written as in options: the source may come first, as in sdk:2.31.0. `power` is the profile that
    the case votes for, null without a vote.
    """

    device: RecordText
    engine: RecordText
    backend: RecordText
    qnn: RecordText
    ort: RecordText | None
    compiler: RecordText | None
    power: RecordText | None = None

    def __str__(self) -> str:
        return placement_text(dict(self))


class DeviceRecord(BaseModel):
    """The device a case ran on, or was to run on; further keys are free."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Annotated[JsonValue, BeforeValidator(as_json)]]

    name: RecordText
    serial: RecordText | None
    soc: RecordText | None
    target: RecordText | None
    simulated: StrictBool


class Expected(Part):
    """The reason why a failure was expected: a known issue's id, or the mark's `xfail: REASON`."""

    known_issue: RecordText


class Fixed(Part):
    """Known issues under whose conditions this case passed: fixed, or not always there.

    `fails` is true if that fails the run (`qnn_strict_known`).
    """

    known_issues: Annotated[tuple[RecordText, ...], Field(min_length=1)]
    fails: StrictBool


class FileOptions(Part):
    """The options given for a user's file: its inputs, how it loads, and when it passes.

    `inputs`, `expected` and `reference` are SHA-256 of the contents of these files; the others are
    the options of these names.
    """

    inputs: RecordText | None = None
    expected: RecordText | None = None
    reference: RecordText | None = None
    graph: RecordText | None = None
    window: int | None = None
    tolerance: float | None = None
    max_error: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    fallback: Literal["allow"] | None = None
    context_option: RecordText | None = None

    def __str__(self) -> str:
        hashed = ("inputs", "expected", "reference")
        options = ((name, value) for name, value in self if value is not None)
        words = (f"{name} {value[:8] if name in hashed else value}" for name, value in options)
        return re.sub(r"[^\w.,+ -]", ".", ", ".join(words).replace("_", "-").replace("=", " "))


class CaseRecord(Part, Ended):
    """One attempt at one case. `case` is pytest's node id, `duration_s` covers all its phases.

    `test` is the node id without `placement`; the two, and the options in `asked`, identify a case.
    `files_sha256` is the hash of the user's file (of several files, of their hashes), even if the
    case never read it: two verdicts with different hashes are not flaky. `engine` is the engine
    that executes it (`core/matrix_axes.py`). `placement` and `engine` are null if no device fits.
    `line` is its line in the test's file, null if that is not Python.

    `cause` is null exactly for the outcomes passed, unsupported and skipped. `axes` and
    `measurements` are free, but JSON; units are in the names. `checks` are the case's expectations
    of the target, each with its own verdict. `outputs` says what the outputs were compared with,
    null if nothing was executed. `emulated` are answers that no phone has given. `logs` are paths
    inside the run's folder.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"outcome": {"enum": list(NO_CAUSE)}}},
            "then": {"properties": {"cause": {"type": "null"}}},
            "else": {"properties": {"cause": {"type": "string"}}},
        }
    )

    schema_number: Schema2 = 2
    kind: Literal["case"] = "case"
    run: RecordText
    case: RecordText
    test: RecordText
    placement: PlacementRecord | None
    engine: RecordText | None = None
    suite: RecordText
    line: Count | None = None
    asked: FileOptions | None = None
    files_sha256: RecordText | None = None
    axes: JsonObject
    device: DeviceRecord | None
    runtime: RuntimeRecord | None = None
    preflight: tuple[Finding, ...] = ()
    outcome: Outcome
    cause: Cause | None = None
    expected: Expected | None = None
    fixed: Fixed | None = None
    error: ErrorRecord | None = None
    measurements: JsonObject = Field(default={})
    checks: tuple[Check, ...] = ()
    outputs: Outputs | None = None
    emulated: tuple[DspReply, ...] = ()
    started: Moment
    duration_s: Seconds
    attempt: Count = 1
    logs: tuple[LogPath, ...] = ()

    @model_validator(mode="after")
    def _outcome_goes_with_the_rest(self) -> CaseRecord:
        if self.fixed is not None and self.outcome != "passed":
            raise ValueError(f"outcome {self.outcome} with fixed: only a passed case may be fixed")
        if (self.cause is None) != (self.outcome in NO_CAUSE):
            without = ", ".join(NO_CAUSE)
            raise ValueError(
                f"outcome {self.outcome} with cause {self.cause}: every outcome but "
                f"{without} needs a cause, and these have none"
            )
        return self

    @property
    def file(self) -> str:
        return self.case.partition("::")[0]

    @property
    def question(self) -> str:
        """The test with the options given for a user's file: its verdicts are comparable."""
        base, parameters = split_node_id(self.test)
        return named(base if self.asked is None else f"{base} ({self.asked})", parameters or "")

    @property
    def function(self) -> str:
        return function_of(self.test)

    @property
    def known_issue(self) -> str | None:
        return self.expected.known_issue if self.expected is not None else None

    @property
    def state(self) -> str:
        return "expected" if self.standing == "known" else self.outcome

    @property
    def conclusion(self) -> str | None:
        text = self.measurements.get("conclusion")
        return text if isinstance(text, str) else None

    @property
    def grid(self) -> tuple[str, str] | None:
        axes = self.measurements.get("grid")
        return (str(axes[0]), str(axes[1])) if isinstance(axes, list) and len(axes) == 2 else None

    @property
    def breaks_strictness(self) -> bool:
        return self.fixed is not None and self.fixed.fails


def named_figures(
    *, conclusion: str | None, grid: tuple[str, str] | None, probe_us: int
) -> dict[str, object]:
    """Return the `measurements` with a meaning in records, as far as there are any."""
    named = {"conclusion": conclusion, "grid": grid, "probe_us": probe_us}
    return {name: value for name, value in named.items() if value}


def _kind(line: object) -> str:
    kind = line.get("kind") if isinstance(line, Mapping) else getattr(line, "kind", None)
    return "device" if kind == "device" else "case"


JournalLine = Annotated[
    Annotated[CaseRecord, Tag("case")] | Annotated[DeviceEvent, Tag("device")], Discriminator(_kind)
]
"""Any line of results.jsonl."""
