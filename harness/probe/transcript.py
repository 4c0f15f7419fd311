"""Transcript of one probe process, made of its events (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from harness.core.json_record import Part, RecordText
from harness.core.outgoing_text import counted
from harness.probe.plan import Plan

MAX_KEPT: Final = 100
"""Most malformed events that are kept; all are counted."""

EARLIER_FAILED: Final = "an earlier step failed"
"""The probe's reason to skip steps between one that failed and the cleanup (native/main.c)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the library's log; `t_us` since the probe's start."""

    level: str
    text: str
    t_us: int | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Text that looks like an event and is none, or not the next one: the reason, and its start."""

    reason: str
    excerpt: bytes


@dataclass(frozen=True, slots=True)
class Start:
    """The probe's first event: the hash of its source, its process id, its target."""

    source: str | None
    pid: int | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The plan that the probe has read: its checksum, its number of steps, and the time.

    `boot_us` is by the clock that /proc/uptime shows: since the device booted, sleep included.
    """

    checksum: int | None
    steps: int | None
    boot_us: int


@dataclass(frozen=True, slots=True)
class Done:
    """The probe's last event: the number of steps, and of those that failed."""

    steps: int | None
    failed: int | None


class LoadedLibrary(Part):
    """A library that was loaded when the process failed, and its file.

    `build_id` is the linker's. `version` is the QNN version in a library from outside of the
    runtime's folder, `hides` the runtime's file that was not loaded because of it.
    """

    name: RecordText
    path: RecordText
    build_id: RecordText | None = None
    version: RecordText | None = None
    hides: RecordText | None = None

    def text(self) -> str:
        """Return one line of text, which rules search, too."""
        parts = (self.version, self.build_id and f"build id {self.build_id}")
        details = ", ".join(part for part in parts if part)
        hides = f" hides {self.hides}" if self.hides else ""
        return f"{self.name}: {self.path}" + (f" ({details})" if details else "") + hides


@dataclass(slots=True)
class StepResult:
    """Result of one step.

    `api` is the last call. A step that began and neither ended nor was skipped
    is where the process crashed, hung or was ended. `code` is the library's (0: success). None with
    an `error` means that the probe itself refused (`file`, `size`, `dlopen`, `symbol`, `plan`,
    `memory`, `metadata`, `unsupported`, `given`: what a user gave does not fit a program), or that
    the result is wrong: `mismatch` (outputs differ from what was expected), `guard` (the library
    wrote outside of a buffer), `no-device` or `placement` (ORT offers no device of the execution
    provider, or gave nodes to another one). Durations (microseconds) cover the library's calls
    only.
    """

    step: int
    verb: str
    api: str | None = None
    context: int | None = None
    file: str | None = None
    begun: bool = False
    ended: bool = False
    skipped: str | None = None
    code: int | None = None
    error: str | None = None
    symbol: str | None = None
    message: str | None = None
    duration_us: int | None = None
    rss_before_bytes: int | None = None
    rss_after_bytes: int | None = None
    pss_before_bytes: int | None = None
    pss_after_bytes: int | None = None
    logs: list[LogLine] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.ended and self.code == 0 and self.error is None

    @property
    def unfinished(self) -> bool:
        return self.begun and not self.ended and self.skipped is None

    @property
    def failed(self) -> bool:
        return self.unfinished or (self.ended and not self.ok)


@dataclass(slots=True)
class Transcript:
    """All events of one probe process, as far as they arrived.

    `accepted` is the plan that it has read. `finished` is set once it has carried out its whole
    plan, even if steps failed. `deadline`: it ended itself because its deadline passed; `unread`:
    it may have been blocked before, as nobody read its output. `plan_error` says why it refused its
    plan; `plan_damaged`: the plan was changed on its way. `malformed` are events that were lost,
    repeated or changed on their way; `cut_off`: the process ended in the middle of one. `libraries`
    are those that it had loaded when its first step failed.
    """

    start: Start | None = None
    steps: list[StepResult] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)
    malformed_count: int = 0
    cut_off: bool = False
    accepted: Accepted | None = None
    finished: Done | None = None
    deadline: bool = False
    unread: bool = False
    libraries: list[LoadedLibrary] = field(default_factory=list)
    plan_error: str | None = None
    plan_damaged: bool = False
    elapsed_us: int | None = None

    @property
    def done(self) -> bool:
        return self.finished is not None

    @property
    def first_failure(self) -> StepResult | None:
        return next((step for step in self.steps if step.failed), None)

    @property
    def last_begun(self) -> StepResult | None:
        return next((step for step in reversed(self.steps) if step.begun), None)


_MAX_EXCERPT_BYTES: Final = 100


def damage(transcript: Transcript) -> str | None:
    """Return a description of damaged events, None if there are none (pure)."""
    if transcript.malformed_count == 0:
        return None
    first = transcript.malformed[0]
    excerpt = first.excerpt[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    damaged = counted(transcript.malformed_count, "event was", "events were")
    return f"{damaged} damaged in transit, the first: {first.reason}: {excerpt!r}"


def misfit(transcript: Transcript, plan: Plan) -> str | None:
    """Return how the transcript of a finished probe differs from its plan; None if not (pure).

    Each step of the plan must have begun and ended once, or have been skipped for a valid reason,
    in the order of the plan. And the probe's counts must be ours.
    """
    if damaged := damage(transcript):
        return damaged
    accepted, finished = transcript.accepted, transcript.finished
    if transcript.start is None or accepted is None or finished is None:
        return "it did not report its start, its plan or its end"
    body = plan.text().partition("\n")[2]
    if (accepted.checksum, accepted.steps) != (crc32(body.encode()), len(plan.steps)):
        return f"it ran another plan, of {accepted.steps} steps"
    if len(transcript.steps) != len(plan.steps):
        return f"it reported {len(transcript.steps)} of {len(plan.steps)} steps"
    failed = 0
    for number, (result, step) in enumerate(zip(transcript.steps, plan.steps, strict=True)):
        if (result.step, result.verb) != (number, step.verb):
            return (
                f"step {number} is {step.verb}, but it reported step {result.step}, {result.verb}"
            )
        if result.unfinished or not (result.begun or result.skipped):
            return f"step {number} ({result.verb}) began and did not end"
        if result.skipped == EARLIER_FAILED and not failed:
            return f"step {number} ({result.verb}) was skipped, although no step had failed"
        failed += result.failed
    if (finished.steps, finished.failed) != (len(plan.steps), failed):
        counted = f"it counted {finished.failed} failures in {finished.steps} steps"
        return f"{counted}, but reported {failed}"
    return None
