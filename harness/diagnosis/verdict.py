"""The verdict on a probe process: outcome, cause and error of a case (pure).

Failures of the lab (connection, device, deadline of adb) are exceptions and never come here. Only
a process whose end was observed gets a verdict.

ExecuTorch returns an unspecific error of its own (1, Internal). QNN's code is in a line of its
log. The lines are those of ExecuTorch 1.5.1; most are in the logs of pytorch/executorch#14985,
#6820 and #18862, too.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from harness.core.error_codes import describe, parse_ort_error, same_code
from harness.core.errors import Cause
from harness.diagnosis.diagnosis import EARLIER, NOTHING, Foreseen, diagnosed
from harness.diagnosis.error_chain import call_chain, error_lines, failure_chain
from harness.diagnosis.error_record import ErrorRecord, OrtCode, Outcome
from harness.dsp.replies import DspReply
from harness.lab.facts import Coprocessors
from harness.probe.plan_runner import (
    EXIT_BAD_PLAN,
    EXIT_DEADLINE,
    EXIT_DONE,
    EXIT_OUTPUT,
    EXIT_STEP_FAILED,
    ProbeRun,
)
from harness.probe.transcript import LogLine, StepResult, Transcript, damage, misfit


@dataclass(frozen=True)
class UnsupportedRule:
    """An error by which a target says that it does not support a request.

    `api` and `text` are regular expressions: the first must match the whole name, the second be
    found in the message. With `lacks` the rule applies only to a device without that processor; on
    any other device the error is a failure.
    """

    api: str
    code: int | None
    text: str = ""
    lacks: Literal["dsp", "gpu"] | None = None


EMULATORS: Final = (
    "phones can do this; docs/explanation/concepts.md lists what each emulator cannot"
)
_SETTING_UP = r"Qnn(?:Log|Backend|Device)_create|QnnContext_create\w*"
_LOADING = r"QnnContext_createFromBinary|CreateSession"

UNSUPPORTED: Final = (
    # libQnnHtp.so for x86-64: `QnnMem API is not supported`
    UnsupportedRule(r"QnnMem_\w+", 1000),
    # libQnnHtp.so for x86-64: custom context properties
    UnsupportedRule(r"QnnContext_(getProperty|setConfig)", 1000),
    # libQnnHtp.so for x86-64: registering a group of contexts, and most other options of a context
    UnsupportedRule(_LOADING, 5010, r"HTP Config option: \d+ not supported"),
    # libQnnHtp.so, for x86-64: `Memory Limit Hint is not supported`; for arm64: `Concurrent
    # resource sharing config is not supported on this device`
    UnsupportedRule(
        _LOADING,
        1000,
        r"(?i)(memory profiling|resource sharing config|memory limit hint|persistent binary"
        r"|binary_compatibility) is not supported",
    ),
    # libQnnHtp.so for x86-64: `Backend does not support QnnContext_createFromBinaryListAsync`
    UnsupportedRule(r"QnnContext_createFromBinaryListAsync", 1000),
    UnsupportedRule("CreateSession", 1000, r"support QnnContext_createFromBinaryListAsync"),
    # libQnnHtp.so for devices below v81: `extended UDMA which is only available for DSP
    # architectures >= 81`
    UnsupportedRule("CreateSession", 6007, r"only available for DSP architectures"),
    # libQnnGpu.so for x86-64, with or without an OpenCL driver
    UnsupportedRule(
        r"QnnBackend_create|CreateSession",
        4000,
        r"TuningMode must be enabled on x86_64-linux-clang",
    ),
    # libQnnHtp.so for arm64 on a board that is none of Qualcomm's
    UnsupportedRule(
        rf"{_SETTING_UP}|CreateSession", 4000, r"No Snapdragon SOC detected", lacks="dsp"
    ),
    # libQnnHtp.so for arm64 on a board without libcdsprpc and fastrpc nodes
    UnsupportedRule(rf"{_SETTING_UP}|CreateSession", 14001, r"Failed to load skel", lacks="dsp"),
    # ONNX Runtime with the QNN plug-in on a board where it finds no NPU
    UnsupportedRule(
        r"GetEpDevices", None, r"offers no device of QNNExecutionProvider", lacks="dsp"
    ),
    # libQnnGpu.so for arm64 on a board without an OpenCL driver
    UnsupportedRule(
        r"QnnBackend_create|CreateSession", 1006, r"Invalid OpenCL driver path", lacks="gpu"
    ),
)
"""The errors of targets that lack something, each below the place where it was observed."""


def emulator_lacks(replies: Sequence[DspReply], error: ErrorRecord | None) -> ErrorRecord | None:
    """Return the instructions that the emulator of a simulated DSP lacks; None if it has all.

    `error` is the resulting error, which has the step of the plan: a dead DSP makes calls fail, or
    crashes or blocks its client.
    """
    lacking = [reply for reply in replies if reply.by == "emulator"]
    if not lacking:
        return None
    lines = [
        f"the emulator cannot execute {reply.words} ({reply.call}: {reply.answer})"
        for reply in lacking
    ]
    record = ErrorRecord.of(message="\n".join([*lines, EMULATORS]))
    if error is None:
        return record
    place = {"api": error.api, "step": error.step, "context": error.context}
    return record.model_copy(update=place).with_line(f"the result: {error.message}")


def is_unsupported(
    error: ErrorRecord,
    coprocessors: Coprocessors | None,
    rules: Sequence[UnsupportedRule] = UNSUPPORTED,
) -> bool:
    """Return whether a target says with this error that it does not support the request.

    `coprocessors` are the visible DSP and GPU of the device, None if they are not known.
    """
    return _rule_of(error, coprocessors, rules) is not None


def _rule_of(
    error: ErrorRecord, coprocessors: Coprocessors | None, rules: Sequence[UnsupportedRule]
) -> UnsupportedRule | None:
    for rule in rules:
        applies = rule.lacks is None or (coprocessors and not getattr(coprocessors, rule.lacks))
        if (
            applies
            and same_code(error.code, rule.code)
            and re.fullmatch(rule.api, error.api or "") is not None
            and re.search(rule.text, error.message) is not None
        ):
            return rule
    return None


_BEFORE_MODELS: Final = ("QnnLog_create", "QnnBackend_create", "QnnDevice_create", "GetEpDevices")
"""Calls that see neither a context nor a model, nor an option of one."""


def lacking_processor(
    verdict: Verdict, coprocessors: Coprocessors | None
) -> Literal["dsp", "gpu"] | None:
    """Return the processor without which all cases of a placement end with this verdict.

    None for any other verdict, and where another context or model could end otherwise.
    """
    error = verdict.error
    if verdict.outcome != "unsupported" or error is None or error.api not in _BEFORE_MODELS:
        return None
    rule = _rule_of(error, coprocessors, UNSUPPORTED)
    return rule.lacks if rule else None


_NUMBER: Final = r"(\d{1,9})"

_CALLS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern.replace("<n>", _NUMBER)), api)
    for pattern, api in (
        (r"Failed to create log_handle\b.*\berror=<n>", "QnnLog_create"),
        (r"Failed to create backend_handle\b.*\berror=<n>", "QnnBackend_create"),
        (r"Failed to create device_handle\b.*\berror=<n>", "QnnDevice_create"),
        (r"HTP backend (?:perf_infrastructure|unable).*\bError <n>", "QnnDevice_getInfrastructure"),
        (
            r"Failed to interpret QNN context binary\. Error code <n>",
            "QnnSystemContext_getBinaryInfo",
        ),
        (r"Can't create context from binary\. Error <n>", "QnnContext_createFromBinary"),
        (r"Can't create dlc from binary\. Error <n>", "QnnSystemDlc_createFromBinary"),
        (r"Can't compose graph from dlc\. Error <n>", "QnnSystemDlc_composeGraphs"),
        (r"Can't retrieve graph .* from context\. Error <n>", "QnnGraph_retrieve"),
        (r"Failed to retrieve graph .*\. Error <n>", "QnnGraph_retrieve"),
        (r"Failed to finalize Qnn Graph with error: <n>", "QnnGraph_finalize"),
        (r"Tensor .* is failed to register shared memory\. Error <n>", "QnnMem_register"),
        (r"qnn_graph_execute failed\. Error <n>", "QnnGraph_execute"),
    )
)
_NOT_READ: Final = "Failed to interpret QNN context binary"
_TRIED_AS_DLC: Final = "Can't create dlc from binary"


def first_failed_call(lines: Iterable[str]) -> tuple[str, int] | None:
    """Return API and code of the first failed call of QNN in lines of `causal_lines`, if any."""
    for line in lines:
        for pattern, api in _CALLS:
            if match := pattern.search(line):
                return api, int(match[1])
    return None


def causal_lines(logs: Sequence[LogLine]) -> list[LogLine]:
    """Return the log of one delegate without the lines that are no cause.

    A blob that cannot be read as a context is tried as a DLC next. If it is no DLC, that fails with
    1002, whose cause is the 30010 before it, logged as a warning. If it is one, there is no failure
    (pytorch/executorch#21804).
    """
    unread = next((index for index, line in enumerate(logs) if _NOT_READ in line.text), None)
    if unread is None:
        return list(logs)
    rest = [line for line in logs[unread + 1 :] if _TRIED_AS_DLC not in line.text]
    is_dlc = len(rest) == len(logs) - unread - 1
    cause = [] if is_dlc else [replace(logs[unread], level="error")]
    return [*logs[:unread], *cause, *rest]


@dataclass(frozen=True)
class Blame:
    """The cause of a step that the probe itself refused, or whose result it found wrong.

    `error` is the probe's kind of error, `text` a regular expression found in its message.
    """

    error: str
    cause: Cause
    text: str = ""


BLAME: Final = (
    # A library that cannot be loaded, or lacks a symbol, is a property of the runtime under test.
    Blame("dlopen", "target"),
    Blame("symbol", "target"),
    # The call succeeded with a wrong result; its input files come from the harness and were checked
    # when they were made.
    Blame("mismatch", "target"),
    Blame("guard", "target"),
    Blame("size", "target"),
    # The user's inputs for a program, whose tensors only ExecuTorch knows.
    Blame("given", "config"),
    Blame("metadata", "harness", r"unknown version"),
    Blame("metadata", "target"),
    # ORT ran, but not on the requested execution provider.
    Blame("placement", "target"),
    Blame("no-device", "target"),
    Blame("memory", "infra"),
    # A missing file was not deployed; one that cannot be read or written is the device's storage.
    Blame("file", "harness", r"No such file|not a regular file|the limit is|path too long"),
    Blame("file", "infra"),
)
"""The first that fits decides. Any other error is a bug of the harness."""

_DIGITS: Final = (6, 9)  # the probe gives 9 at most
_AFTER_SUCCESS: Final = ("mismatch", "guard")


def step_error(step: StepResult) -> ErrorRecord:
    """Return the error record of a failed step.

    The message begins with the library's error lines during the step, since these name the real
    cause. Then come the probe's message, the library's text for the code, and ours.
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
    difference = _difference(step) if step.error == "mismatch" else None
    return error if difference is None else error.with_line(difference)


def _difference(step: StepResult) -> str | None:
    """Describe how far the first wrong output is from the expected one.

    This is not in the signature: the figures differ from run to run.
    """
    outputs = step.data.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        match output:
            case {"beyond": int(beyond), "name": str(name), "max_abs": int() | float() as most} if (
                beyond
            ):
                pair = _distinct(output.get("first_value"), output.get("first_expected"))
                values = f"the first wrong value is {pair[0]}, expected {pair[1]}"
                nan = output.get("nan")
                nan_text = f"; {nan} elements are NaN" if isinstance(nan, int) and nan else ""
                return f"{name} differs by up to {most:.6g}; {values}{nan_text}"
    return None


def _distinct(*values: object) -> list[str]:
    """Return two numbers as text, with as many digits as it takes to distinguish them.

    JSON has null for NaN and infinity.
    """
    for digits in _DIGITS:
        texts = [
            f"{number:.{digits}g}" if isinstance(number, int | float) else "no finite number"
            for number in values
        ]
        if texts[0] != texts[1]:
            break
    return texts


def _executorch_error(step: StepResult) -> ErrorRecord:
    """Return the record of the QNN call that failed first, with all messages of ExecuTorch."""
    step = replace(step, logs=causal_lines(step.logs))
    call = first_failed_call(line.text for line in step.logs)
    api, code, symbol = (*call, None) if call is not None else (step.api, None, step.symbol)
    returned = f"{step.api} returned {step.code} ({step.symbol})"
    message = "\n".join([*error_lines(step), returned])
    return ErrorRecord.of(
        api=api,
        code=code,
        symbol=symbol,
        message=message,
        step=step.step,
        context=step.context,
        chain=call_chain(step, code=code, symbol=symbol, message=returned),
    )


def _ort_error(step: StepResult, code: int, logged: Sequence[str]) -> ErrorRecord:
    """Return the record with QNN's code, if the messages have one, and ORT's own code."""
    text = step.data.get("status_text")
    message = text if isinstance(text, str) else step.message or ""
    error = parse_ort_error(code, message, logged)
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


_MAX_STDERR_CHARS: Final = 1000
_MAX_STDERR_BYTES: Final = 64 << 10
# Exit codes after the last event.
_EXITS_AFTER_RESULTS: Final = (EXIT_DONE, EXIT_STEP_FAILED, EXIT_BAD_PLAN)
# Exit codes if it could not print its events.
_EXITS_UNREAD: Final = (EXIT_DEADLINE, EXIT_OUTPUT)
# Exit codes of success: the probe's, or another program's, or of a library while it unloads.
_WENT_WELL: Final = (EXIT_DONE, 0)
# A shell reports a process ended by signal n as exit code 128 + n.
_SHELL_SIGNALS: Final[Mapping[int | None, int]] = {128 + number: number for number in range(1, 65)}


@dataclass(frozen=True)
class Verdict:
    """The verdict on a process; `error` and `cause` are None if it passed.

    For `unsupported` there is an error, which says what is not supported, and no cause.
    """

    outcome: Outcome
    cause: Cause | None = None
    error: ErrorRecord | None = None

    def explanation(self) -> str:
        """Return one or more lines of text: outcome, place, API, code, symbol, message."""
        if self.error is None:
            return self.outcome
        error, place = self.error, ""
        if error.step is not None:
            context = "" if error.context is None else f", context {error.context}"
            place = f" in step {error.step}{context}"
        code = f" returned {error.ort.code} ({error.ort.name})" if error.ort else ""
        if error.code == 0 and self.outcome == "failed":
            code = " succeeded, but its result is wrong"
        elif error.code is not None:
            details = ", ".join(part for part in (error.symbol, error.component) if part)
            code = f"{code}, QNN {error.code}" if error.ort else f" returned {error.code}"
            code += f" ({details})" if details else ""
        api = f": {error.api}{code}" if error.api else code
        link = error.first_cause
        first = "" if link is None or link.message in error.message else link.message
        cause = f"\nfirst cause: {first}" if first else ""
        lines = error.diagnosis.lines() if error.diagnosis else ()
        diagnosis = "\ndiagnosis: " * bool(error.diagnosis) + "\n".join(lines)
        # without both the message is on the first line, which is all that a summary shows
        end = "\n" if place or api else ": "
        return f"{self.outcome}{place}{api}{end}{error.message}{cause}{diagnosis}".rstrip(" :\n")


def _ending(run: ProbeRun) -> Verdict | None:
    """Return the verdict on how a process ended, the worst first; None if its steps decide."""
    transcript, signal = run.transcript, _signal(run)
    if (damaged := damage(transcript)) is not None:
        return _no_verdict("infra", damaged)
    if transcript.plan_damaged:
        return _no_verdict(
            "infra", f"the plan was damaged on the way to the device: {transcript.plan_error}"
        )
    if transcript.plan_error is not None:
        return _no_verdict("harness", f"the probe refused its plan: {transcript.plan_error}")
    if transcript.start is None:
        return _no_verdict("infra", _silence(run, "did not start"))
    if run.timed_out or transcript.deadline:
        if transcript.unread:
            why = "may have been blocked because its output was not read"
            return _no_verdict("infra", _silence(run, why))
        return _judge_cut_short(run, "hung", f"did not end within {run.duration_s:.1f} s")
    if run.truncated:
        return _judge_cut_short(run, "hung", "wrote too much output and was killed")
    # a crash after a complete plan comes from tearing down what a failed step never set up
    if signal is not None and not (transcript.done and transcript.first_failure is not None):
        return _judge_cut_short(run, "crashed", f"was ended by {signal}")
    if not transcript.done and run.exit_code in _EXITS_UNREAD:
        return _no_verdict("infra", _silence(run, "could not write its results"))
    # one flipped bit in an adb packet's header, and its server silently drops the packet
    if not transcript.done and run.exit_code in _EXITS_AFTER_RESULTS:
        return _no_verdict("infra", _silence(run, "ended, but its last output was lost"))
    # a process exits only between events; within an event only a signal ends it
    if transcript.cut_off and signal is None:
        return _no_verdict("infra", _silence(run, "exited in the middle of an event"))
    if not transcript.done:
        ending = f"ended with exit code {run.exit_code} before its plan was done"
        return _judge_cut_short(run, "crashed", ending)
    if (unfit := misfit(transcript, run.plan)) is not None:
        return _no_verdict("infra", f"the events of the probe do not match its plan: {unfit}")
    if run.exit_code not in _WENT_WELL and transcript.first_failure is None:
        return _judge_cut_short(run, "crashed", f"ended with exit code {run.exit_code}")
    return None


def judge(
    run: ProbeRun,
    coprocessors: Coprocessors | None = None,
    *,
    foreseen: Foreseen = NOTHING,
    dsp_replies: Sequence[DspReply] = (),
) -> Verdict:
    """Return the verdict on a probe process; `coprocessors` are those of the device, if known.

    The worst event decides. A process that ended, or was ended, before its plan was done has
    crashed or hung in the step begun last. If a step had failed before, the message says so.
    Otherwise the first failed step decides. If the process then crashed after the end of its plan,
    the message says that. A process without any output never reached the target: that is an error
    of the lab.

    A failure of the target gets the diagnosis that fits its messages, its codes, and what was
    `foreseen`. `dsp_replies` are those of a simulated DSP: if its emulator lacks an instruction,
    the case is unsupported.
    """
    ending = _ending(run)
    verdict = ending or _judge_finished(run.transcript, coprocessors)
    if (lacking := emulator_lacks(dsp_replies, verdict.error)) and verdict.outcome != "error":
        return Verdict("unsupported", None, lacking)
    if verdict.error is None or verdict.outcome == "error":
        return verdict
    error = verdict.error.model_copy(update={"libraries": tuple(run.transcript.libraries)})
    if ending is None and (signal := _signal(run)) is not None:
        error = error.with_line(f"the process was ended by {signal} after its plan")
    # output of libraries besides their log; it counts as evidence, like a device's logs
    printed = run.stderr[-_MAX_STDERR_BYTES:].decode("utf-8", "replace").splitlines()
    diagnosed_error = diagnosed(verdict.outcome, error, printed, foreseen=foreseen)
    return replace(verdict, error=diagnosed_error)


def _judge_finished(transcript: Transcript, coprocessors: Coprocessors | None) -> Verdict:
    step = transcript.first_failure
    if step is None:
        return Verdict("passed")
    cause: Cause = "target"
    if step.error is not None:
        causes = (
            entry.cause
            for entry in BLAME
            if entry.error == step.error and re.search(entry.text, step.message or "")
        )
        cause = next(causes, "harness")
    if cause != "target":
        return _no_verdict(cause, step.message or f"{step.error}", step)
    error = step_error(step)
    if is_unsupported(error, coprocessors):
        return Verdict("unsupported", None, error)
    return Verdict("failed", "target", error)


def _judge_cut_short(run: ProbeRun, outcome: Outcome, ending: str) -> Verdict:
    """Return the verdict on a process that crashed or hung, with its step and earlier failures."""
    transcript = run.transcript
    step = transcript.last_begun
    inside = step if step is not None and step.unfinished else None
    if step is None:
        place = "before its first step"
    elif inside:
        place = f"in step {step.step} ({_name_of(step)})"
    elif transcript.done:
        place = "after its plan was done"
    else:
        place = f"after step {step.step} ({_name_of(step)})"
    lines = [f"the process {ending}, {place}"]
    if inside:
        if inside.code is not None:
            lines.append(f"{inside.api or inside.verb} had returned {inside.code}")
        lines += error_lines(inside)
    failed = transcript.first_failure
    if failed is not None and failed is not step:
        error = step_error(failed)
        first = error.message.partition("\n")[0]
        call = f"{_name_of(failed)} {error.code}"
        lines.append(f"{EARLIER}step {failed.step} failed: {call}: {first}")
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


def _silence(run: ProbeRun, problem: str) -> str:
    stderr = run.stderr.decode("utf-8", "replace").strip()[-_MAX_STDERR_CHARS:]
    ending = _signal(run) or f"exit code {run.exit_code}"
    return f"the probe {problem} ({ending})" + (f": {stderr}" if stderr else "")


def _signal(run: ProbeRun) -> str | None:
    """Return the signal that ended a process, None if none did or it is not known."""
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


def _name_of(step: StepResult) -> str:
    context = "" if step.context is None else f", context {step.context}"
    return f"{step.api or step.verb}{context}"
