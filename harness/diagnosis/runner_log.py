"""Parser of the output of ExecuTorch's `qnn_executor_runner` into steps like the probe's (pure).

A user's own build of it runs on devices for which ExecuTorch's wheel has no libraries. It prints no
events: its steps are recognised in lines of its log, and on Android in those of logcat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from harness.probe.plan import Plan
from harness.probe.transcript import (
    EARLIER_FAILED,
    Accepted,
    Done,
    LogLine,
    Start,
    StepResult,
    Transcript,
)

STARTED: Final = "qnn-harness-started"
"""The line of the shell before it executes the runner, with the process id and /proc/uptime."""

_STARTED: Final = re.compile(rf"{STARTED} ([0-9]{{1,10}}) ([0-9]{{1,12}}\.[0-9]{{1,6}})")
# [ERROR] [Qnn ExecuTorch]: text; I 00:00:00.000418 executorch:file.cpp:57] text; W/tag( 123): text
_DELEGATE: Final = re.compile(r"\[(\w{1,16})\] \[Qnn ExecuTorch\]:? ?(.*)")
_OWN: Final = re.compile(r"([DIWEF]) [0-9:.]{8,20} executorch:([^\]]{1,200})\] (.*)")
_LOGCAT: Final = re.compile(r"([VDIWEF])/([^:(]{1,64})(?:\( *[0-9]{1,10}\))?: ?(.*)")
_LEVELS: Final = {
    **dict.fromkeys(("E", "F", "ERROR", "FATAL"), "error"),
    **dict.fromkeys(("W", "WARNING"), "warn"),
    **dict.fromkeys(("I", "INFO"), "info"),
}

_STATUS: Final = re.compile(r"(?:status|failed:|method_meta for .*:) 0x([0-9a-fA-F]{1,8})")
_NOT_PARSED: Final = "Failed to parse model file"
_GIVEN: Final = re.compile(r"Number of inputs \(\d+\) mismatch|Input\(\d+\) size mismatch")
_TOOK: Final = re.compile(r"^\d+ inference took ([0-9.]{1,20}) ms")
_INFERENCE: Final = re.compile(r"Start inference \((\d{1,6})\)")
_SYMBOLS: Final = {
    0x01: "Internal",
    0x02: "InvalidState",
    0x10: "NotSupported",
    0x11: "NotImplemented",
    0x12: "InvalidArgument",
    0x14: "OperatorMissing",
    0x20: "NotFound",
    0x21: "MemoryAllocationFailed",
    0x22: "AccessFailed",
    0x23: "InvalidProgram",
    0x25: "OutOfResources",
    0x30: "DelegateInvalidCompatibility",
    0x31: "DelegateMemoryAllocationFailed",
    0x32: "DelegateInvalidHandle",
}
_INVALID_PROGRAM: Final = 0x23
_INTERNAL: Final = 1
_CALLS: Final = {
    "executorch-program": "Program::load",
    "executorch-device": "Program::load_method",
    "executorch-context": "Program::load_method",
    "executorch-run": "Method::execute",
}
_RUN: Final = "executorch-run"
_AFTER: Final = ("cleanup", "executorch-free")


@dataclass(frozen=True)
class OutputLine:
    """A line of the runner's output, and its time (microseconds since the start)."""

    text: str
    t_us: int


def is_delegate_line(text: str) -> bool:
    """Return whether a line of the output comes from ExecuTorch's QNN backend."""
    return "[Qnn ExecuTorch]" in text


def is_logged_line(text: str) -> bool:
    """Return whether a line of Android's log comes from ExecuTorch."""
    logged = _LOGCAT.match(text)
    return logged is not None and "executorch" in logged[2].lower()


def process_of(output: Sequence[OutputLine]) -> int | None:
    """Return the runner's process id, None if it was not started."""
    match = next((match for line in output if (match := _STARTED.match(line.text))), None)
    return int(match[1]) if match else None


def runner_transcript(plan: Plan, output: Sequence[OutputLine], code: int | None) -> Transcript:
    """Return the results of the steps of a plan; `code` is the exit code, None if it was ended.

    A status in the output ends the current step: the runner aborts itself then, which is no crash.
    If it ended in any other way, the current step did not end.
    """
    reader = _Reader(plan)
    for line in output:
        reader.feed(line)
    if code == 0 and reader.failed is None:
        reader.go_to(reader.end)
    return reader.transcript()


class _Reader:
    """A state machine that follows the steps of a plan in the output."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        verbs = [step.verb for step in plan.steps]
        self._first_run = verbs.index(_RUN)
        self.end = verbs.index(_AFTER[0])
        self._index = 0
        self._delegates = 0
        self._began_us: int
        self._start: tuple[int, int] | None = None
        self.failed: int | None = None
        self._steps = [
            StepResult(
                number,
                step.verb,
                api=_CALLS.get(step.verb),
                context=int(step.fields["context"]) if "context" in step.fields else None,
            )
            for number, step in enumerate(plan.steps)
        ]

    def feed(self, line: OutputLine) -> None:
        if self._start is None and (match := _STARTED.match(line.text)):
            self._start = int(match[1]), int(float(match[2]) * 1e6)
            self._steps[0].begun = True
            self._began_us = line.t_us
            return
        if self._start is None or self.failed is not None or self._index >= self.end:
            return
        level, text = _parts(line.text)
        self._move(text, line.t_us)
        step = self._steps[min(self._index, self.end - 1)]
        step.logs.append(LogLine(level, text, line.t_us))
        if _GIVEN.search(text):
            step.error, step.message = "given", text
            self._fail(step)
        elif match := _STATUS.search(text):
            self._fail(step, int(match[1], 16) or _INTERNAL)
        elif text.startswith(_NOT_PARSED):
            self._fail(step, _INVALID_PROGRAM)
        elif step.verb == _RUN and step.duration_us is None and (match := _TOOK.match(text)):
            step.duration_us = int(float(match[1]) * 1000)

    def _move(self, text: str, t_us: int) -> None:
        if text.startswith("Deserializing processed data"):
            self._delegates += 1
            loading = 1 if self._delegates == 1 else self._delegates + 1
            self.go_to(min(loading, self._first_run - 1), t_us)
        elif text.startswith("Initialize Qnn backend parameters") and self._delegates == 1:
            self.go_to(2, t_us)
        elif text.startswith("Method loaded"):
            self.go_to(self._first_run, t_us)
        elif match := _INFERENCE.match(text):
            self.go_to(self._first_run + int(match[1]), t_us)
        elif text.startswith("Model executed successfully"):
            self.go_to(self.end, t_us)

    def go_to(self, number: int, t_us: int | None = None) -> None:
        """End all steps before this one and begin it; never go back to an earlier step."""
        for index in range(self._index, min(number, self.end)):
            step = self._steps[index]
            step.begun, step.ended, step.code = True, True, 0
            if t_us is not None:
                if step.duration_us is None:
                    step.duration_us = t_us - self._began_us
                self._began_us = t_us
        self._index = max(self._index, min(number, self.end))
        self._steps[self._index].begun = True

    def _fail(self, step: StepResult, code: int | None = None) -> None:
        self.failed = step.step
        step.begun, step.ended, step.code = True, True, code
        step.symbol = None if code is None else _SYMBOLS.get(code, "unknown")

    def transcript(self) -> Transcript:
        """Return the transcript of the output so far."""
        transcript = Transcript(steps=self._steps)
        if self._start is None:
            return transcript
        body = self._plan.text().partition("\n")[2].encode()
        transcript.start = Start(None, self._start[0], None)
        transcript.accepted = Accepted(crc32(body), len(self._plan.steps), self._start[1])
        if self.failed is None and self._index < self.end:
            transcript.steps = [step for step in self._steps if step.begun]
            return transcript
        for step in self._steps:
            if step.verb in _AFTER:
                step.begun, step.ended, step.code = True, True, 0
            elif not step.begun:
                step.skipped = EARLIER_FAILED
        transcript.finished = Done(len(self._steps), int(self.failed is not None))
        return transcript


def _parts(line: str) -> tuple[str, str]:
    """Return level and text of a line of any format."""
    for pattern in (_DELEGATE, _OWN, _LOGCAT):
        if match := pattern.match(line):
            level, text = _LEVELS.get(match[1], "debug"), match.groups()[-1]
            if pattern is _OWN:
                return level, f"{text} [{match[2]}]"
            # the text has its own level, too
            inner = _DELEGATE.match(text)
            return level, inner[2] if inner else text
    return "debug", line
