"""From what a probe process did to outcome, cause and error of a case (pure).

What the lab loses on the way (connection, device, deadline of adb) is an exception and never comes
here. A verdict is given only about a process whose end was seen.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from harness.device.dsp.dsp import Said
from harness.device.lab.facts import Coprocessors
from harness.ground.errors import Cause
from harness.probe.plan_runner import (
    EXIT_BAD_PLAN,
    EXIT_DEADLINE,
    EXIT_DONE,
    EXIT_OUTPUT,
    EXIT_STEP_FAILED,
    ProbeRun,
)
from harness.probe.transcript import StepResult, Transcript
from harness.probe.wholeness import damage, misfit
from harness.verdict.failure.chain import error_lines, failure_chain
from harness.verdict.failure.diagnosis import EARLIER, NOTHING, Foreseen, diagnosed
from harness.verdict.failure.error import ErrorRecord, LoadedLibrary, Outcome
from harness.verdict.failure.step_error import BLAME, Blame, cause_of, step_error
from harness.verdict.failure.unsupported import emulator_lacks, is_unsupported

_MAX_STDERR_CHARS: Final = 1000
_MAX_STDERR_BYTES: Final = 64 << 10
# Behind its last event.
_EXITS_HAVING_SAID: Final = (EXIT_DONE, EXIT_STEP_FAILED, EXIT_BAD_PLAN)
# It could not print, or not even that its deadline had passed.
_EXITS_NOBODY_READS: Final = (EXIT_DEADLINE, EXIT_OUTPUT)
# The probe's, or of a program that is not ours, or of a library that unloads.
_WENT_WELL: Final = (EXIT_DONE, 0)
# A shell reports a process ended by signal n as exit code 128 + n.
_SHELL_SIGNALS: Final[Mapping[int | None, int]] = {128 + number: number for number in range(1, 65)}


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
        if error.code == 0 and self.outcome == "failed":
            code = " succeeded, and what it gave is wrong"
        elif error.code is not None:
            named = ", ".join(part for part in (error.symbol, error.component) if part)
            what = f" returned {error.code}" if error.ort is None else f"{code}, QNN {error.code}"
            code = what + (f" ({named})" if named else "")
        api = f": {error.api}{code}" if error.api else code
        began = error.first_cause
        first = "" if began is None or began.message in error.message else began.message
        cause = f"\nfirst cause: {first}" if first else ""
        known = f"\ndiagnosis: {error.diagnosis.text()}" if error.diagnosis else ""
        # what has neither says at once what is wrong: its first line is all that a summary shows
        end = "\n" if where or api else ": "
        return f"{self.outcome}{where}{api}{end}{error.message}{cause}{known}".rstrip(" :\n")


@dataclass(frozen=True)
class ProcessEnding:
    """One way in which a probe process can end: how to see it, and what it comes to."""

    name: str
    holds: Callable[[ProbeRun], bool]
    verdict: Callable[[ProbeRun], Verdict]


ENDINGS: Final = (
    ProcessEnding(
        "damaged",
        lambda run: damage(run.transcript) is not None,
        lambda run: _no_verdict("infra", f"{damage(run.transcript)}"),
    ),
    ProcessEnding(
        "plan-damaged",
        lambda run: run.transcript.plan_damaged,
        lambda run: _no_verdict(
            "infra", f"the plan was damaged on its way: {run.transcript.plan_error}"
        ),
    ),
    ProcessEnding(
        "plan-refused",
        lambda run: run.transcript.plan_error is not None,
        lambda run: _no_verdict(
            "harness", f"the probe refused its plan: {run.transcript.plan_error}"
        ),
    ),
    ProcessEnding(
        "not-started",
        lambda run: run.transcript.start is None,
        lambda run: _no_verdict("infra", _silence(run, "did not start")),
    ),
    ProcessEnding(
        "unread-until-deadline",
        lambda run: run.transcript.unread and _late(run),
        lambda run: _no_verdict(
            "infra", _silence(run, "may have waited for somebody to read what it printed")
        ),
    ),
    ProcessEnding(
        "hung",
        lambda run: _late(run),
        lambda run: _cut_short(run, "hung", f"did not end within {run.duration_s:.1f} s"),
    ),
    ProcessEnding(
        "endless-output",
        lambda run: run.truncated,
        lambda run: _cut_short(run, "hung", "wrote without end and was ended"),
    ),
    ProcessEnding(
        "signal",
        lambda run: _signal(run) is not None and not _failed_before_its_end(run),
        lambda run: _cut_short(run, "crashed", f"was ended by {_signal(run)}"),
    ),
    ProcessEnding(
        "nobody-read",
        lambda run: not run.transcript.done and run.exit_code in _EXITS_NOBODY_READS,
        lambda run: _no_verdict("infra", _silence(run, "could not write its results")),
    ),
    ProcessEnding(
        # one flipped bit in an adb packet's header, and its server drops the packet without a word
        "last-words-lost",
        lambda run: not run.transcript.done and run.exit_code in _EXITS_HAVING_SAID,
        lambda run: _no_verdict("infra", _silence(run, "came to its end, and was not heard out")),
    ),
    ProcessEnding(
        # a process ends by itself between events; only a signal can strike within one
        "event-unfinished",
        lambda run: run.transcript.cut_off and _signal(run) is None,
        lambda run: _no_verdict("infra", _silence(run, "ended by itself, and within an event")),
    ),
    ProcessEnding(
        "left-early",
        lambda run: not run.transcript.done,
        lambda run: _cut_short(
            run, "crashed", f"ended with exit code {run.exit_code} before its plan was done"
        ),
    ),
    ProcessEnding(
        "another-plan",
        lambda run: misfit(run.transcript, run.plan) is not None,
        lambda run: _no_verdict(
            "infra",
            f"what the probe said does not fit its plan: {misfit(run.transcript, run.plan)}",
        ),
    ),
    ProcessEnding(
        "left-with-a-code",
        lambda run: run.exit_code not in _WENT_WELL and run.transcript.first_failure is None,
        lambda run: _cut_short(run, "crashed", f"ended with exit code {run.exit_code}"),
    ),
)
"""The worst that can happen comes first. The first that holds decides; else the steps do."""


def judge(
    run: ProbeRun,
    coprocessors: Coprocessors | None = None,
    *,
    foreseen: Foreseen = NOTHING,
    said: Sequence[Said] = (),
    endings: Sequence[ProcessEnding] = ENDINGS,
    blame: Sequence[Blame] = BLAME,
) -> Verdict:
    """What a probe process comes to, on a device that shows these `coprocessors` (None: not known).

    The worst that happened decides. A process that ended, or was ended, before its plan was done
    has crashed or hung in the step begun last. If a step had failed before, the message says so.
    Otherwise the first failed step decides. If the process then crashed behind the end of its plan,
    the message says that. A process of which nothing was heard never reached the target: that is an
    error of the lab.

    What went wrong with the target gets the diagnosis that its texts and codes, and what was
    `foreseen`, allow. `said` is what a simulated DSP said meanwhile: where its emulator could not
    do something, nothing that came of it counts.
    """
    ending = next((ending for ending in endings if ending.holds(run)), None)
    if ending is not None:
        verdict = ending.verdict(run)
    else:
        verdict = _of_finished(run.transcript, coprocessors, blame)
    if (lacking := emulator_lacks(said, verdict.error)) and verdict.outcome != "error":
        return Verdict("unsupported", None, lacking)
    if verdict.error is None or verdict.outcome == "error":
        return verdict
    error = verdict.error.model_copy(update={"libraries": _loaded(run)})
    if ending is None and (struck := _signal(run)) is not None:
        error = error.with_line(f"the process was ended by {struck} after its plan")
    # what libraries printed besides their log; as little trusted as a device's logs
    printed = run.stderr[-_MAX_STDERR_BYTES:].decode("utf-8", "replace").splitlines()
    known = diagnosed(verdict.outcome, error, printed, foreseen=foreseen)
    return replace(verdict, error=known)


def _of_finished(
    transcript: Transcript, coprocessors: Coprocessors | None, blame: Sequence[Blame]
) -> Verdict:
    step = transcript.first_failure
    if step is None:
        return Verdict("passed")
    cause = cause_of(step, blame)
    if cause != "target":
        return _no_verdict(cause, step.message or f"{step.error}", step)
    error = step_error(step)
    if is_unsupported(error, coprocessors):
        return Verdict("unsupported", None, error)
    return Verdict("failed", "target", error)


def _failed_before_its_end(run: ProbeRun) -> bool:
    """Whether a process carried out its plan, and a step of it failed.

    A crash after that is one of tearing down what was never set up; the step tells why.
    """
    return run.transcript.done and run.transcript.first_failure is not None


def _loaded(run: ProbeRun) -> tuple[LoadedLibrary, ...]:
    return tuple(LoadedLibrary.model_validate(asdict(one)) for one in run.transcript.libraries)


def _late(run: ProbeRun) -> bool:
    return run.timed_out or run.transcript.deadline


def _cut_short(run: ProbeRun, outcome: Outcome, how: str) -> Verdict:
    """A process that crashed or hung, with the step it was in and what had failed before."""
    transcript = run.transcript
    step = transcript.last_begun
    inside = step if step is not None and step.unfinished else None
    if step is None:
        place = "before its first step"
    elif inside:
        place = f"in step {step.step} ({_named(step)})"
    elif transcript.done:
        place = "after its plan was done"
    else:
        place = f"after step {step.step} ({_named(step)})"
    lines = [f"the process {how}, {place}"]
    if inside:
        if inside.code is not None:
            lines.append(f"{inside.api or inside.verb} had returned {inside.code}")
        lines += error_lines(inside)
    failed = transcript.first_failure
    if failed is not None and failed is not step:
        error = step_error(failed)
        first = error.message.partition("\n")[0]
        lines.append(f"{EARLIER}step {failed.step} failed: {_named(failed)} {error.code}: {first}")
    error = ErrorRecord.of(
        api=(inside.api or inside.verb) if inside else None,
        code=inside.code if inside else None,
        message="\n".join(lines),
        step=inside.step if inside else None,
        context=inside.context if inside else None,
        chain=failure_chain(inside) if inside else (),
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
    how = _signal(run) or f"exit code {run.exit_code}"
    return f"the probe {what} ({how})" + (f": {said}" if said else "")


def _signal(run: ProbeRun) -> str | None:
    """The signal that ended a process, None if none did or nobody knows."""
    number = run.signal
    if number is None and not run.transcript.done:
        number = _SHELL_SIGNALS.get(run.exit_code)
    if number is None:
        return None
    try:
        name = signals.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = " (often the low-memory killer)" if name == "SIGKILL" else ""
    return f"{name}{hint}"


def _named(step: StepResult) -> str:
    context = "" if step.context is None else f", context {step.context}"
    return f"{step.api or step.verb}{context}"
