"""A plan's deadline: when it is, and what proves that the process was alive then (pure)."""

from __future__ import annotations

import dataclasses
from typing import Final

from harness.device.transport.ending import Found
from harness.probe.plan import Plan
from harness.probe.transcript import Transcript

LOOK_S: Final = 8.0
"""So many seconds, beyond all deadlines, whoever is told of a hang may look at the process."""

PIPE_BYTES: Final = 4096
"""The least that a process can have printed when nobody reads and it waits for that (pipe(7))."""

_GRACE_S: Final = 2.0


def with_deadline(plan: Plan, timeout_s: float, *, looks: bool = False) -> Plan:
    """`plan` with a deadline before `timeout_s`; with `looks`, it can be looked at after that."""
    deadline_ms, linger_ms = plan.settings.deadline_ms, plan.settings.linger_ms
    if deadline_ms is None:
        deadline_s = timeout_s - min(_GRACE_S, timeout_s / 4)
        deadline_ms = max(1, int(deadline_s * 1000))
    if looks and not linger_ms:
        linger_ms = int(LOOK_S * 1000)
    settings = dataclasses.replace(plan.settings, deadline_ms=deadline_ms, linger_ms=linger_ms)
    return Plan(plan.steps, settings)


def alive_at_deadline(
    transcript: Transcript,
    found: Found,
    due_s: float,
    *,
    late_bytes: int = 0,
    heard_out: bool = True,
) -> bool:
    """Whether what was found of a process proves that it had still not ended after `due_s`.

    Both moments are by the device's own clock: when the probe had read its plan, and when its
    process was found. It may only have been waiting, because of the link, for somebody to read what
    it printed. That is ruled out if less than a pipe takes came after the deadline (`late_bytes`),
    and then the end of the stream (`heard_out`). One damaged byte can make a daemon wait for ever
    to send more. What is in the kernel (D) waits for no reader, and cannot be ended either.
    """
    if transcript.start is None or transcript.accepted is None or found.uptime_s is None:
        return False
    pid = transcript.start.pid
    there = bool(found.states) if pid is None else pid in found.states
    alive_s = found.uptime_s - transcript.accepted.boot_us / 1e6
    reads_all = heard_out or (pid is not None and found.states.get(pid) == "D")
    alive = there and not transcript.done and alive_s >= due_s
    return alive and late_bytes < PIPE_BYTES and reads_all
