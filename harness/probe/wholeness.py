"""Whether what a probe said bears out that its plan was carried out: all of it, nothing else."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from harness.probe.plan import Plan
from harness.probe.transcript import EARLIER_FAILED, Transcript

_MAX_EXCERPT_BYTES: Final = 100


def damage(transcript: Transcript) -> str | None:
    """What happened to events on their way here, None if they came as they were sent (pure)."""
    if transcript.malformed_count == 0:
        return None
    first = transcript.malformed[0]
    excerpt = first.excerpt[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
    count = transcript.malformed_count
    return f"{count} events were damaged on their way, the first: {first.reason}: {excerpt!r}"


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
