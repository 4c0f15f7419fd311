"""What is known of one probe process once its events are put together (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from harness.core.outgoing_text import counted
from harness.probe.plan import Plan

MAX_KEPT: Final = 100
"""How many malformed events are kept; all are counted."""

EARLIER_FAILED: Final = "an earlier step failed"
"""Why the probe skips what comes between a step that failed and the cleanup (native/main.c)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the library's log; `t_us` since the probe's start."""

    level: str
    text: str
    t_us: int | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """What claimed to be an event and is none, or not the next one: why, and its start."""

    reason: str
    excerpt: bytes


@dataclass(frozen=True, slots=True)
class Start:
    """The probe's first event: the hash of its source, its process id, what it was built for."""

    source: str | None
    pid: int | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The plan that the probe had read: its checksum, its steps, and when that was.

    `boot_us` is by the clock that /proc/uptime shows: since the device booted, sleep included.
    """

    checksum: int | None
    steps: int | None
    boot_us: int


@dataclass(frozen=True, slots=True)
class Done:
    """What the probe says of a plan that it carried out: how many steps, how many failed."""

    steps: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class SeenLibrary:
    """A library that the process had loaded when its first step failed.

    `name` is its own, `path` the file that the loader took. `hides` is the file of that name beside
    the plan's libraries, if another one was taken; `version` is that of a QNN from elsewhere.
    """

    name: str
    path: str
    build_id: str | None = None
    version: str | None = None
    hides: str | None = None


@dataclass(slots=True)
class StepResult:
    """What is known of one step.

    `api` is the call that was under way last. A step that began and neither ended nor was skipped
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
    """Everything one probe process said, as far as it came.

    `accepted` is the plan that it had read. `finished` is what it said once it had carried out its
    whole plan, whatever came of the steps. `deadline` tells that it ended itself because its
    deadline passed, `unread` that it may have waited before for somebody to read what it printed.
    `plan_error` says why it refused its plan, `plan_damaged` that the plan did not arrive as it was
    sent. `malformed` are events that were lost, repeated or changed on their way; `cut_off` tells
    that the process ended in the middle of one. `libraries` tell what it had loaded when its first
    step failed.
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
    libraries: list[SeenLibrary] = field(default_factory=list)
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
    """What happened to events on their way here, None if they came as they were sent (pure)."""
    if transcript.malformed_count == 0:
        return None
    first = transcript.malformed[0]
    excerpt = first.excerpt[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    damaged = counted(transcript.malformed_count, "event was", "events were")
    return f"{damaged} damaged on the way, the first: {first.reason}: {excerpt!r}"


def misfit(transcript: Transcript, plan: Plan) -> str | None:
    """What a probe that says it is done left out, or said besides; None if nothing (pure).

    Each step of the plan must have begun and ended once, or have been skipped for a reason that
    holds, in the order of the plan. And the probe must have counted as we do.
    """
    if damaged := damage(transcript):
        return damaged
    accepted, finished = transcript.accepted, transcript.finished
    if transcript.start is None or accepted is None or finished is None:
        return "it said nothing of its start, its plan or its end"
    body = plan.text().partition("\n")[2]
    if (accepted.checksum, accepted.steps) != (crc32(body.encode()), len(plan.steps)):
        return f"it had a plan of {accepted.steps} steps, which is not the one it was given"
    if len(transcript.steps) != len(plan.steps):
        return f"it told of {len(transcript.steps)} of {len(plan.steps)} steps"
    failed = 0
    for number, (said, told) in enumerate(zip(transcript.steps, plan.steps, strict=True)):
        if (said.step, said.verb) != (number, told.verb):
            return f"step {number} is {told.verb}, it told of step {said.step}, {said.verb}"
        if said.unfinished or not (said.begun or said.skipped):
            return f"step {number} ({said.verb}) began and did not end"
        if said.skipped == EARLIER_FAILED and not failed:
            return f"step {number} ({said.verb}) was skipped for a failure that there was not"
        failed += said.failed
    if (finished.steps, finished.failed) != (len(plan.steps), failed):
        return (
            f"it counted {finished.failed} failures in {finished.steps} steps, {failed} were told"
        )
    return None
