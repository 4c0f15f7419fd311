"""From what a probe process did to outcome, cause and error of a case (pure).

What the lab loses on the way (connection, device, deadline of adb) is an exception and never
comes here: a verdict is given only about a process whose end was seen.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass
from typing import Final

from harness.errors import Cause
from harness.lab.coprocessors import Coprocessors
from harness.probe.events import StepResult, Transcript
from harness.probe.run import ProbeRun
from harness.qnn.codes import describe
from harness.results.chain import error_lines, failure_chain
from harness.results.ort_step import is_ort_failure, ort_error
from harness.results.record import ErrorRecord, Outcome
from harness.results.unsupported import is_unsupported

_MAX_STDERR_CHARS: Final = 1000
_EXIT_NOBODY_READS: Final = 125
# A shell reports a process ended by signal n as exit code 128 + n.
_SHELL_SIGNALS: Final = range(129, 129 + 64)


@dataclass(frozen=True)
class Verdict:
    """What a process comes to; `error` and `cause` are None if nothing went wrong.

    For `unsupported` there is an error, which says what the target cannot do, and no cause.
    """

    outcome: Outcome
    cause: Cause | None = None
    error: ErrorRecord | None = None

    def explanation(self) -> str:
        """One or more lines for a person: outcome, place, API, code, symbol, message."""
        if self.error is None:
            return self.outcome
        error, where = self.error, ""
        if error.step is not None:
            context = "" if error.context is None else f", context {error.context}"
            where = f" in step {error.step}{context}"
        code = f" returned {error.ort.code} ({error.ort.name})" if error.ort else ""
        if error.code is not None:
            named = ", ".join(part for part in (error.symbol, error.component) if part)
            what = f" returned {error.code}" if error.ort is None else f"{code}, QNN {error.code}"
            code = what + (f" ({named})" if named else "")
        api = f": {error.api}{code}" if error.api else code
        began = error.first_cause
        first = "" if began is None or began.message in error.message else began.message
        cause = f"\nfirst cause: {first}" if first else ""
        return f"{self.outcome}{where}{api}\n{error.message}{cause}".rstrip()


# What the probe refused or found itself. dlopen and symbol: a library that cannot be loaded, or
# lacks what it should export, is a property of the runtime under test. mismatch, guard, size,
# metadata: the library answered with success, and what it gave is wrong; the files it was given
# are the harness's own and were checked when they were made.
# placement, no-device: ORT ran, and not on the execution provider that was asked for.
_OF_THE_TARGET: Final = (
    *("dlopen", "symbol", "mismatch", "guard", "size", "metadata"),
    *("placement", "no-device"),
)
_AFTER_SUCCESS: Final = ("mismatch", "guard")


def judge(run: ProbeRun, coprocessors: Coprocessors | None = None) -> Verdict:
    """What a probe process comes to, on a device that shows these `coprocessors` (None: not known).

    The worst that happened decides. A process that was ended or ended itself before its plan was
    done has crashed or hung, in the step begun last, even if a step had failed before: the failed
    step then stands in the message. Otherwise the first failed step decides. A process of which
    nothing was heard never reached the target: that is an error of the lab.
    """
    transcript = run.transcript
    if transcript.plan_error is not None:
        return _no_verdict("harness", f"the probe refused its plan: {transcript.plan_error}")
    ended_by = _signal_number(run)
    if run.timed_out or transcript.deadline:
        if transcript.start is None:
            return _no_verdict("infra", _silence(run, "was not heard of before its deadline"))
        return _cut_short(run, "hung", f"did not end within {run.duration_s:.1f} s")
    if transcript.start is None:
        return _no_verdict("infra", _silence(run, "did not start"))
    if run.truncated:
        return _cut_short(run, "hung", "wrote without end and was ended")
    if ended_by is not None:
        return _cut_short(run, "crashed", f"was ended by {_signal_name(ended_by)}")
    if not transcript.done:
        if run.exit_code == _EXIT_NOBODY_READS:
            return _no_verdict("infra", _silence(run, "could not write its results"))
        how = f"ended with exit code {run.exit_code} before its plan was done"
        return _cut_short(run, "crashed", how)
    return _of_finished(transcript, coprocessors)


def _of_finished(transcript: Transcript, coprocessors: Coprocessors | None) -> Verdict:
    step = transcript.first_failure
    if step is None:
        return Verdict("passed")
    if step.unfinished:
        # It came to an end, since its successors did: what it said about it was lost.
        return _no_verdict(
            "harness",
            f"what the probe said about step {step.step} ({step.verb}) was damaged on its way "
            f"({transcript.malformed_count} events)",
        )
    cause = _cause_of(step)
    if cause != "target":
        return _no_verdict(cause, step.message or f"{step.error}", step)
    error = step_error(step)
    if is_unsupported(error, coprocessors):
        return Verdict("unsupported", None, error)
    return Verdict("failed", "target", error)


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


def _cause_of(step: StepResult) -> Cause:
    """Who is at fault for a step that ended badly."""
    if step.error is None:
        return "target"
    message = step.message or ""
    if step.error == "metadata" and "unknown version" in message:
        return "harness"
    if step.error in _OF_THE_TARGET:
        return "target"
    if step.error == "memory":
        return "infra"
    if step.error == "file":
        # A file that is not there was not deployed; one that cannot be read or written is the
        # device's storage.
        ours = re.search(r"No such file|not a regular file|the limit is|path too long", message)
        return "harness" if ours else "infra"
    return "harness"


def _cut_short(run: ProbeRun, outcome: Outcome, how: str) -> Verdict:
    """A process that crashed or hung, with the step it was in and what had failed before."""
    transcript = run.transcript
    step = transcript.last_begun
    inside = step is not None and step.unfinished
    if step is None:
        place = "before its first step"
    elif inside:
        place = f"in step {step.step} ({_named(step)})"
    elif transcript.done:
        place = "after its plan was done"
    else:
        place = f"after step {step.step} ({_named(step)})"
    lines = [f"the process {how}, {place}"]
    if inside and step is not None:
        if step.code is not None:
            lines.append(f"{step.api or step.verb} had returned {step.code}")
        lines += error_lines(step)
    failed = transcript.first_failure
    if failed is not None and failed is not step:
        error = step_error(failed)
        first = error.message.partition("\n")[0]
        lines.append(
            f"before that, step {failed.step} failed: {_named(failed)} {error.code}: {first}"
        )
    error = ErrorRecord.of(
        api=(step.api or step.verb) if inside and step is not None else None,
        code=step.code if inside and step is not None else None,
        message="\n".join(lines),
        step=step.step if inside and step is not None else None,
        context=step.context if inside and step is not None else None,
        chain=failure_chain(step) if inside and step is not None else (),
    )
    return Verdict(outcome, "target", error)


def _no_verdict(cause: Cause, message: str, step: StepResult | None = None) -> Verdict:
    error = ErrorRecord.of(
        api=step.api if step else None,
        code=None,
        message=message,
        step=step.step if step else None,
        context=step.context if step else None,
    )
    return Verdict("error", cause, error)


def _silence(run: ProbeRun, what: str) -> str:
    said = run.stderr.decode("utf-8", "replace").strip()[-_MAX_STDERR_CHARS:]
    ended_by = _signal_number(run)
    how = f"exit code {run.exit_code}" if ended_by is None else _signal_name(ended_by)
    return f"the probe {what} ({how})" + (f": {said}" if said else "")


def _signal_number(run: ProbeRun) -> int | None:
    if run.signal is not None:
        return run.signal
    code = run.exit_code
    if code is None or code not in _SHELL_SIGNALS or run.transcript.done:
        return None
    return code - 128


def _signal_name(number: int) -> str:
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = " (often the low-memory killer)" if name == "SIGKILL" else ""
    return f"{name}{hint}"


def _named(step: StepResult) -> str:
    context = "" if step.context is None else f", context {step.context}"
    return f"{step.api or step.verb}{context}"
