"""The error record of a failed step, and who is at fault for it (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.ground.errors import Cause
from harness.ground.facts.codes import describe
from harness.ground.facts.ort_errors import take_apart
from harness.probe.transcript import StepResult
from harness.verdict.failure.chain import call_chain, error_lines, failure_chain
from harness.verdict.failure.error import ErrorRecord, OrtCode
from harness.verdict.failure.executorch_log import causal, first_failed_call


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
    # What a user gave for a program, whose tensors only ExecuTorch knows.
    Blame("given", "config"),
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
"""The first that fits decides. What none of them names is a bug of the harness."""

_DIGITS: Final = (6, 9)  # the probe gives 9 at most
_AFTER_SUCCESS: Final = ("mismatch", "guard")


def step_error(step: StepResult) -> ErrorRecord:
    """The error record of a failed step.

    The message begins with what the library logged as errors during the step, since that names the
    real cause. Then come the probe's words, the library's text for the code, and ours.
    """
    code = 0 if step.error in _AFTER_SUCCESS else step.code
    logged = error_lines(step)
    if step.verb.startswith("ort-") and step.error is None and step.code:
        return _ort_error(step, step.code, logged)
    if step.verb.startswith("executorch-") and step.error is None and step.code:
        return _executorch_error(step)
    if step.error is not None:
        message = "\n".join([step.message or step.error, *logged])
    elif logged:
        message = "\n".join(logged)
    else:
        message = step.message or (describe(code).note or "" if code is not None else "")
    error = ErrorRecord.of(
        api=step.api or ("dlopen" if step.error == "dlopen" else None),
        code=code,
        symbol=step.symbol,
        message=message,
        step=step.step,
        context=step.context,
        chain=failure_chain(step),
    )
    apart = _difference(step) if step.error == "mismatch" else None
    return error if apart is None else error.with_line(apart)


def _difference(step: StepResult) -> str | None:
    """How far the first wrong output is from what was expected, with the tolerance that it had.

    Not in the signature: the figures differ from run to run.
    """
    outputs = step.data.get("outputs")
    for one in outputs if isinstance(outputs, list) else []:
        match one:
            case {"beyond": int(beyond), "name": str(name), "max_abs": int() | float() as most} if (
                beyond
            ):
                got, wanted = _apart(one.get("first_value"), one.get("first_expected"))
                values = f"the first of them is {got}, and {wanted} was expected"
                nan = one.get("nan")
                told = f"; NaN: {nan} of its elements" if isinstance(nan, int) and nan else ""
                return f"{name} differs by up to {most:.6g}; {values}{told}"
    return None


def _apart(*values: object) -> list[str]:
    """Two numbers, with as many digits as it takes to tell them apart.

    JSON has null for what is NaN or infinite.
    """
    for digits in _DIGITS:
        told = [
            f"{one:.{digits}g}" if isinstance(one, int | float) else "no finite number"
            for one in values
        ]
        if told[0] != told[1]:
            break
    return told


def cause_of(step: StepResult, blame: Sequence[Blame]) -> Cause:
    """Who is at fault for a step that ended badly."""
    if step.error is None:
        return "target"
    message = step.message or ""
    for one in blame:
        if one.error == step.error and re.search(one.text, message):
            return one.cause
    return "harness"


def _executorch_error(step: StepResult) -> ErrorRecord:
    """The record: the call of QNN that failed first, then all that ExecuTorch said."""
    step = replace(step, logs=causal(step.logs))
    call = first_failed_call(line.text for line in step.logs)
    own = f"{step.api} returned {step.code} ({step.symbol})"
    message = "\n".join([*error_lines(step), own])
    symbol = step.symbol if call is None else None
    return ErrorRecord.of(
        api=step.api if call is None else call.api,
        code=None if call is None else call.code,
        symbol=symbol,
        message=message,
        step=step.step,
        context=step.context,
        chain=call_chain(step, code=call.code if call else None, symbol=symbol, message=own),
    )


def _ort_error(step: StepResult, code: int, logged: Sequence[str]) -> ErrorRecord:
    """The record: QNN's code where the texts hold one, ORT's own beside it, all that was said."""
    text = step.data.get("status_text")
    message = text if isinstance(text, str) else step.message or ""
    error = take_apart(code, message, logged)
    return ErrorRecord.of(
        api=step.api,
        code=error.qnn_code,
        symbol=error.qnn_symbol,
        message="\n".join(error.chain),
        step=step.step,
        context=step.context,
        ort=OrtCode(code=error.code, name=error.name),
        chain=call_chain(step, code=error.qnn_code, symbol=error.qnn_symbol, message=message),
    )
