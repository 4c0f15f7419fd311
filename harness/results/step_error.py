"""The error record of a failed step, and who is at fault for it (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import Cause
from harness.probe.events import StepResult
from harness.qnn.codes import describe
from harness.results.chain import error_lines, failure_chain
from harness.results.ort_step import is_ort_failure, ort_error
from harness.results.record import ErrorRecord


@dataclass(frozen=True)
class Blame:
    """Who is at fault when the probe itself refused a step, or found that its result is wrong.

    `error` is the kind that the probe names, `text` is found in its message.
    """

    error: str
    cause: Cause
    text: str = ""


BLAME: Final = (
    # A library that cannot be loaded, or lacks what it should export, is a property of the runtime
    # under test.
    Blame("dlopen", "target"),
    Blame("symbol", "target"),
    # The library answered with success, and what it gave is wrong; the files it was given are the
    # harness's own and were checked when they were made.
    Blame("mismatch", "target"),
    Blame("guard", "target"),
    Blame("size", "target"),
    Blame("metadata", "harness", r"unknown version"),
    Blame("metadata", "target"),
    # ORT ran, and not on the execution provider that was asked for.
    Blame("placement", "target"),
    Blame("no-device", "target"),
    Blame("memory", "infra"),
    # A file that is not there was not deployed; one that cannot be read or written is the device's
    # storage.
    Blame("file", "harness", r"No such file|not a regular file|the limit is|path too long"),
    Blame("file", "infra"),
)
"""The first that fits decides; what none of them names is a bug of the harness."""

_AFTER_SUCCESS: Final = ("mismatch", "guard")


def step_error(step: StepResult) -> ErrorRecord:
    """The error record of a failed step.

    The message is what the library logged as errors during the step, since that names the real
    cause; then the probe's own words; then the library's text for the code; then ours.
    """
    code = 0 if step.error in _AFTER_SUCCESS else step.code
    logged = error_lines(step)
    if is_ort_failure(step):
        return ort_error(step, logged)
    said = step.message or ""
    if step.error is not None:
        message = "\n".join([said or step.error, *logged])
    elif logged:
        message = "\n".join(logged)
    else:
        message = said or (describe(code).note or "" if code is not None else "")
    return ErrorRecord.of(
        api=step.api or ("dlopen" if step.error == "dlopen" else None),
        code=code,
        symbol=step.symbol,
        message=message,
        step=step.step,
        context=step.context,
        chain=failure_chain(step),
    )


def cause_of(step: StepResult, blame: Sequence[Blame]) -> Cause:
    """Who is at fault for a step that ended badly."""
    if step.error is None:
        return "target"
    message = step.message or ""
    for one in blame:
        if one.error == step.error and re.search(one.text, message):
            return one.cause
    return "harness"
