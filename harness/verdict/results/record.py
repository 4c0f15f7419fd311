"""The line of results.jsonl: what is known about one case after it ran (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeGuard

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    Tag,
    model_validator,
)

from harness.device.dsp.dsp import Said
from harness.device.lab.health import EventKind, LabEvent, State
from harness.ground.errors import Cause
from harness.ground.files.bounded_json import INTEGERS
from harness.ground.files.names_inside import inner_name
from harness.ground.files.schema_field import Schema2
from harness.libraries.runtimes.findings import Severity
from harness.verdict.failure.error import (
    ErrorRecord,
    Outcome,
    Part,
    RecordText,
    clean_text,
    cut_message,
)
from harness.verdict.results.checks import Check
from harness.verdict.results.coverage import Standing, Tally, standing_of
from harness.verdict.results.json_value import JsonObject, as_json
from harness.verdict.results.outputs import Outputs

SCHEMA: Final = 2
"""Of the lines of results.jsonl, the only one that is written and read."""
NO_CAUSE: Final[tuple[Outcome, ...]] = ("passed", "unsupported", "skipped")
_NUMBERS: Final = frozenset({int, float})


def is_figure(value: object) -> TypeGuard[int | float]:
    """Whether a measured value is a number that can be told in digits."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def are_figures(values: Sequence[Any]) -> bool:
    """Whether all values are figures; plain numbers, as in a journal, are not asked one by one."""
    if values and _NUMBERS.issuperset(map(type, values)):
        return bool(min(values) > -1e300 and max(values) < 1e300)
    return all(map(is_figure, values))


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is no time of the calendar in UTC") from error


LogPath = Annotated[RecordText, AfterValidator(inner_name)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]
"""How long something took; nothing here takes 115 days."""
Count = Annotated[StrictInt, Field(ge=1, le=(1 << 31) - 1)]
"""A number from 1 that any database holds."""


class PreflightRecord(Part):
    """What preflight found wrong or doubtful before the case ran; see docs/preflight.md."""

    code: RecordText
    severity: Severity
    files: tuple[RecordText, ...] = ()
    explanation: RecordText
    fix: RecordText
    thread: RecordText | None = None


class RuntimeRecord(Part):
    """The libraries a case ran with: `build_id` is what they say of themselves.

    `contexts_by` is the QNN that made the contexts that the case took, a compiler's version or the
    build that a file names, null if it took none.
    """

    qnn: RecordText
    build_id: RecordText | None = None
    source: RecordText
    ort: RecordText | None = None
    contexts_by: RecordText | None = None


class PlacementRecord(Part):
    """Where the harness put a case, and with what it was to run: what its name begins with.

    `device` is the device, or the pool or kind of equal ones of which any would do. `ort` is null
    where none was asked for, `compiler` where contexts are made by that of the runtime's own
    version. Versions are called as options do: the source may stand in front, as in sdk:2.31.0.
    """

    device: RecordText
    engine: RecordText
    backend: RecordText
    qnn: RecordText
    ort: RecordText | None
    compiler: RecordText | None


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
    """Why it was expected: the id of a known issue, or `xfail: REASON` of the test's own mark."""

    known_issue: RecordText


class Fixed(Part):
    """Known issues under whose conditions this case passed: fixed, or not always there.

    `fails` tells that the run was to fail on that (`--strict-known`).
    """

    known_issues: Annotated[tuple[RecordText, ...], Field(min_length=1)]
    fails: StrictBool


class EmulatedAnswer(Part):
    """An answer that a case got of a simulated board's DSP, and that is neither success nor QNN's.

    `by` is `kernel` where the harness stands in for kernel, driver and DSP system, `emulator` where
    the emulator cannot do what was asked; `answer` is what `call` gave, `words` say why.
    """

    by: Literal["kernel", "emulator"]
    call: RecordText
    answer: RecordText
    words: RecordText


def emulated_answer(said: Said) -> EmulatedAnswer:
    """What a simulated DSP said, as records have it."""
    return EmulatedAnswer(by=said.kind, call=said.call, answer=said.answer, words=said.words)


class Asked(Part):
    """What options asked of a file, as far as they did: which inputs, and when it passes.

    `inputs`, `expected` and `reference` are SHA-256 of what these files hold; the others are the
    options of these names.
    """

    inputs: RecordText | None = None
    expected: RecordText | None = None
    reference: RecordText | None = None
    graph: RecordText | None = None
    tolerance: float | None = None
    max_error: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    fallback: Literal["allow"] | None = None

    def __str__(self) -> str:
        hashed = ("inputs", "expected", "reference")
        options = ((name, value) for name, value in self if value is not None)
        words = (f"{name} {value[:8] if name in hashed else value}" for name, value in options)
        return re.sub(r"[^\w.,+ -]", ".", ", ".join(words).replace("_", "-"))


class CaseRecord(Part):
    """One attempt at one case. `case` is pytest's node id, `duration_s` covers all its phases.

    `test` is the node id without what the harness put in, and `placement` is what it put in:
    together with what was `asked` of a file they tell a case from others. `engine` is what executes
    it (`facts/engines.py`). `placement` and `engine` are null where no device fits. `line` is where
    in the test's file it stands, null where that is not Python.

    `cause` is null exactly for the outcomes passed, unsupported and skipped. `axes` and
    `measurements` are free, but JSON; units are in the names. `checks` are what the case expected
    of the target, each with a verdict of its own. `outputs` says what the outputs were compared
    with, null if nothing was executed. `emulated` are the answers that no phone has given. `logs`
    are paths inside the run's folder.
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
    asked: Asked | None = None
    axes: JsonObject
    device: DeviceRecord | None
    runtime: RuntimeRecord | None = None
    preflight: tuple[PreflightRecord, ...] = ()
    outcome: Outcome
    cause: Cause | None = None
    expected: Expected | None = None
    fixed: Fixed | None = None
    error: ErrorRecord | None = None
    measurements: JsonObject = Field(default={})
    checks: tuple[Check, ...] = ()
    outputs: Outputs | None = None
    emulated: tuple[EmulatedAnswer, ...] = ()
    started: Moment
    duration_s: Seconds
    attempt: Count = 1
    logs: tuple[LogPath, ...] = ()

    @model_validator(mode="after")
    def _outcome_goes_with_the_rest(self) -> CaseRecord:
        if self.fixed is not None and self.outcome != "passed":
            raise ValueError(f"outcome {self.outcome} with fixed: only what passed may be fixed")
        if (self.cause is None) != (self.outcome in NO_CAUSE):
            without = ", ".join(NO_CAUSE)
            raise ValueError(
                f"outcome {self.outcome} with cause {self.cause}: a cause is given for every "
                f"outcome but {without}"
            )
        return self

    @property
    def file(self) -> str:
        return self.case.partition("::")[0]

    @property
    def question(self) -> str:
        """The test, and what was asked of a file where that is one: what makes verdicts alike."""
        base, bracket, parameters = self.test.partition("[")
        asked = f" ({self.asked})" if self.asked is not None else ""
        return f"{base}{asked}{bracket}{parameters}"

    @property
    def function(self) -> str:
        return self.test.partition("[")[0].rpartition("::")[2]

    @property
    def is_bad(self) -> bool:
        return self.outcome not in NO_CAUSE

    @property
    def known_issue(self) -> str | None:
        return self.expected.known_issue if self.expected is not None else None

    @property
    def standing(self) -> Standing:
        return standing_of(self.outcome, self.cause, self.known_issue)

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

    @property
    def is_unexpected(self) -> bool:
        return self.is_bad and self.standing != "known"


def named_figures(
    *, conclusion: str | None, grid: tuple[str, str] | None, probe_us: int
) -> dict[str, object]:
    """The `measurements` that records give a meaning to, as far as there are any."""
    named = {"conclusion": conclusion, "grid": grid, "probe_us": probe_us}
    return {name: value for name, value in named.items() if value}


class DeviceEvent(Part):
    """What happened to a device besides cases: a check, a step to bring it back, files pushed.

    `state` is how it was afterwards, `findings` short words for what was wrong with it, `vitals`
    what it said of itself (null if it did not answer, or was not asked), with units in the names.
    `pushed_bytes` is how much a push was to send; its `state` is suspect if it did not succeed.
    """

    schema_number: Schema2 = 2
    kind: Literal["device"] = "device"
    run: RecordText
    device: RecordText
    event: EventKind
    state: State
    findings: tuple[RecordText, ...] = ()
    detail: RecordText = ""
    started: Moment
    duration_s: Seconds
    vitals: JsonObject | None = None
    pushed_bytes: Annotated[StrictInt, Field(ge=0, lt=INTEGERS)] | None = None

    @property
    def is_routine(self) -> bool:
        return self.event == "push" or (self.event == "health" and self.state == "good")

    @classmethod
    def of(cls, event: LabEvent, *, run: str) -> DeviceEvent:
        """The record of an event, as part of a run; a detail beyond 16,000 characters is cut."""
        return cls(
            run=run,
            device=event.device,
            event=event.event,
            state=event.state,
            findings=event.codes,
            detail=cut_message(str(clean_text(event.detail))),
            started=event.started,
            duration_s=event.duration_s,
            vitals=None if event.vitals is None else asdict(event.vitals),
            pushed_bytes=event.pushed_bytes,
        )


def _kind(line: object) -> str:
    kind = line.get("kind") if isinstance(line, Mapping) else getattr(line, "kind", None)
    return "device" if kind == "device" else "case"


JournalLine = Annotated[
    Annotated[CaseRecord, Tag("case")] | Annotated[DeviceEvent, Tag("device")],
    Discriminator(_kind),
]
"""Any line of results.jsonl."""


def final_attempts(records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """The last attempt at each case, in the order in which the cases first appeared."""
    return [records[index] for index in Tally(records).last]
