"""Runs a plan in a new probe process, on a device or on this host."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceError, InfraError
from harness.core.notices import followed, report_progress
from harness.probe.events import TranscriptParser
from harness.probe.plan import Plan, loads
from harness.probe.transcript import Transcript
from harness.transport.shell import Completed, RemoteProcesses, ScriptTimeout
from harness.transport.this_computer import ThisComputer

if TYPE_CHECKING:
    from harness.transport.device import Transport


LOOK_S: Final = 8.0
"""Seconds, after all deadlines, for a callback to examine a process that hangs."""

PIPE_BYTES: Final = 4096
"""Least output of a process that is blocked because nobody reads it (pipe(7))."""

_GRACE_S: Final = 2.0


def with_deadline(plan: Plan, timeout_s: float, *, lingers: bool = False) -> Plan:
    """Return `plan` with a deadline before `timeout_s`; `lingers`: it waits for a debugger."""
    deadline_ms, linger_ms = plan.settings.deadline_ms, plan.settings.linger_ms
    if deadline_ms is None:
        deadline_s = timeout_s - min(_GRACE_S, timeout_s / 4)
        deadline_ms = max(1, int(deadline_s * 1000))
    if lingers and not linger_ms:
        linger_ms = int(LOOK_S * 1000)
    settings = dataclasses.replace(plan.settings, deadline_ms=deadline_ms, linger_ms=linger_ms)
    return Plan(plan.steps, settings)


def alive_at_deadline(
    transcript: Transcript,
    state: RemoteProcesses,
    due_s: float,
    *,
    late_bytes: int = 0,
    read_to_end: bool = True,
) -> bool:
    """Return whether the state of a process proves that it was still running after `due_s`.

    Both times are by the device's own clock: when the probe had read its plan, and when its process
    was found. It may only have been blocked, because of the link, as nobody read its output. That
    is ruled out if less than a pipe's size arrived after the deadline (`late_bytes`), and then the
    end of the stream (`read_to_end`). One damaged byte can make a daemon wait forever to send more.
    A process in the kernel (D) waits for no reader, and cannot be ended either.
    """
    if transcript.start is None or transcript.accepted is None or state.uptime_s is None:
        return False
    pid = transcript.start.pid
    is_there = bool(state.states) if pid is None else pid in state.states
    alive_s = state.uptime_s - transcript.accepted.boot_us / 1e6
    reads_all = read_to_end or (pid is not None and state.states.get(pid) == "D")
    alive = is_there and not transcript.done and alive_s >= due_s
    return alive and late_bytes < PIPE_BYTES and reads_all


MAX_STDERR_BYTES: Final = 256 << 10
MAX_OUTPUT_BYTES: Final = 64 << 20
"""Most output of a probe, whatever its plan."""
_OUTPUT_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 1 << 10
_DOING: Final = "run the probe"
EXIT_DONE: Final = 86
EXIT_STEP_FAILED: Final = 87
EXIT_BAD_PLAN: Final = 88
EXIT_DEADLINE: Final = 124
EXIT_OUTPUT: Final = 125
"""Only the probe itself ends with these (native/probe.h). So a library's `exit(0)` is not mistaken
for a plan that was carried out, but whose end was lost.
"""
_NO_FOLDER: Final = 97
_STATUS: Final = "qnn-harness-status"
_STATUS_SAID: Final = re.compile(rf"{_STATUS} ([0-9]{{1,3}})\n\Z".encode())


@dataclass(frozen=True)
class ProbeRun:
    """Facts about one probe process, without a verdict.

    `plan` is the one it was given, its deadline included. `exit_code`: `EXIT_DONE` all steps fine,
    `EXIT_STEP_FAILED` a step failed, `EXIT_BAD_PLAN` the plan was refused, anything else is not the
    probe's; None if it was ended by `signal` or from outside. `timed_out`: it was alive after its
    deadline, by the device's own clock: it reported that itself, or was found then. `truncated`: it
    wrote too much, and was ended. `raw_events` is its stdout, `stderr` the last part of its stderr,
    which also has the library's output.
    """

    plan: Plan
    transcript: Transcript
    exit_code: int | None
    signal: int | None
    timed_out: bool
    truncated: bool
    raw_events: bytes
    stderr: bytes
    duration_s: float


def run_plan(
    device: Transport,
    probe: str,
    plan: Plan,
    *,
    env: Mapping[str, str],
    cwd: str,
    timeout_s: float,
    first: str = "",
    on_start: Callable[[Plan], None] | None = None,
    on_hang: Callable[[int, Deadline], None] | None = None,
) -> ProbeRun:
    """Run `plan` with the probe at this path on the device, in `cwd`, with `env` added.

    `first` is shell text that runs before the probe; it may exit instead. `on_start` is called with
    the final plan once the probe has printed something.

    The plan gets a deadline a little before `timeout_s` if it has none, so that the probe itself
    can report where it hung. If even that fails, its process group is ended, and the run has
    `timed_out` if the device reports that the process still existed. A process that had ended by
    itself, but whose output came too late, is a run like any other. `on_hang` is called once, in
    either case of a hang, with the probe's process id and a deadline (8 s), while the process still
    exists. It may end the process, and its InfraError is ignored.

    Raises DeviceError if the probe did not start. Raises DeviceLost, with a note of the step under
    way, if the connection broke. Raises DeviceTimeout if nothing proves that the process was alive
    at its deadline: then the link may have hung. Else raises as `Transport.shell`.
    """
    parser = TranscriptParser()
    raw, stderr = bytearray(), bytearray()
    progress = _Progress(device.serial, plan)
    hang_reported = False

    def report_hang(deadline: Deadline) -> None:
        nonlocal hang_reported
        start = parser.transcript.start
        if on_hang is None or hang_reported or start is None or start.pid is None:
            return
        hang_reported = True
        with contextlib.suppress(InfraError):
            on_hang(start.pid, deadline)

    def on_stdout(data: bytes) -> None:
        if on_start is not None and not raw:
            on_start(plan)
        raw.extend(data)
        parser.feed(data)
        if followed():
            progress.report(parser.transcript)
        # a hang reported after the deadline has been ended by then
        if parser.transcript.deadline and not overall.expired:
            report_hang(Deadline(LOOK_S))

    def on_stderr(data: bytes) -> None:
        stderr.extend(data)
        del stderr[:-MAX_STDERR_BYTES]

    plan = with_deadline(plan, timeout_s, lingers=on_hang is not None)
    usual_ms = with_deadline(Plan(()), timeout_s).settings.deadline_ms or 0
    due_s = min(plan.settings.deadline_ms or usual_ms, usual_ms) / 1000
    overall = Deadline(timeout_s)
    # a link with checksums needs no second report of the status
    script = first + _script(probe, env, cwd, tell_status=not device.is_checked)
    started = time.monotonic()
    completed: Completed | None = None
    timed_out = False
    try:
        completed = device.shell(
            script,
            stdin=plan.text().encode(),
            timeout_s=timeout_s,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            max_output_bytes=most_output(plan),
            before_end=report_hang,
            doing=_DOING,
            collect=False,
        )
    except ScriptTimeout as error:
        completed = error.completed
        alive = alive_at_deadline(
            parser.transcript,
            error.processes,
            due_s,
            late_bytes=error.late_bytes,
            read_to_end=error.read_to_end,
        )
        timed_out = completed is None and (alive or parser.transcript.deadline)
        if completed is None and not timed_out:
            raise
    except DeviceError as error:
        step = parser.close().last_begun
        if step is not None:
            error.add_note(f"step {step.step} ({step.verb}) had begun")
        raise
    transcript = parser.close()
    exit_code, number, truncated, fits = None, None, False, True
    if completed is not None:
        exit_code, number = completed.exit_code, completed.signal
        truncated = completed.truncated
        if not device.is_checked and not truncated:
            exit_code, fits = _take_status(completed, stderr)
    if transcript.deadline and hang_reported and number == signal.SIGKILL:
        # it was about to end itself, but `on_hang` ended it first
        exit_code, number = EXIT_DEADLINE, None
    problem = None
    if transcript.start is None:
        problem = f"the probe did not start (exit code {exit_code}, signal {number})"
    elif not fits:
        problem = "the exit status of the shell differs from that of the probe, or is missing"
    if problem is not None:
        output = bytes(stderr or raw)
        raise DeviceError(problem, serial=device.serial, command=_DOING, output=output)
    return ProbeRun(
        plan=plan,
        transcript=transcript,
        exit_code=exit_code,
        signal=number,
        timed_out=timed_out or transcript.deadline,
        truncated=truncated,
        raw_events=bytes(raw),
        stderr=bytes(stderr),
        duration_s=time.monotonic() - started,
    )


def most_output(plan: Plan) -> int:
    """Return the most output of a plan (bytes): its log, escaped, and some for each step."""
    expected = 2 * plan.settings.max_log_bytes + _STEP_BYTES * len(plan.steps)
    return min(MAX_OUTPUT_BYTES, _OUTPUT_BYTES + expected)


class _Progress:
    def __init__(self, serial: str, plan: Plan) -> None:
        self._serial = serial
        self._plan = plan
        self._finished = self._loaded = 0

    def report(self, transcript: Transcript) -> None:
        """Report the current step, examining only steps that were not finished before."""
        if not transcript.steps:
            return
        for step in transcript.steps[self._finished :]:
            if not step.ended and step.skipped is None:
                break
            self._finished += 1
            if step.ok and step.step < len(self._plan.steps):
                self._loaded += loads(self._plan.steps[step.step])
        now = transcript.steps[-1]
        report_progress(
            self._serial,
            step=now.step + 1,
            steps=len(self._plan.steps),
            verb=now.verb,
            loaded=self._loaded,
            contexts=self._contexts,
        )

    @cached_property
    def _contexts(self) -> int:
        return sum(map(loads, self._plan.steps))


def run_plan_locally(
    probe: Path, plan: Plan, *, env: Mapping[str, str], timeout_s: float
) -> ProbeRun:
    """Run `plan` on this host with `env` as its environment, and PATH; as `run_plan` otherwise.

    Raises ConfigError if the probe cannot be executed, InfraError if it did not start properly.
    """
    if not os.access(probe, os.X_OK):
        raise ConfigError("cannot run the probe: there is no program", file=probe)
    here = ThisComputer.for_plans(env)
    return run_plan(here, str(probe), plan, env=env, cwd=str(Path.cwd()), timeout_s=timeout_s)


def _script(probe: str, env: Mapping[str, str], cwd: str, *, tell_status: bool) -> str:
    """Return the script that starts the probe; with `tell_status` it also prints the exit status.

    One flipped bit of an exit status would make a success of a crash. After a success the shell
    ends with 0 and prints nothing, which costs no packet. The shell's own message about a crash is
    dropped, as it is not the library's.
    """
    for name in env:
        if not name.isidentifier() or not name.isascii():
            raise ConfigError(f"not the name of an environment variable: {name!r}")
    exports = "".join(f"export {name}={shlex.quote(value)};" for name, value in env.items())
    begin = f"cd {shlex.quote(cwd)}||exit {_NO_FOLDER};{exports}"
    if not tell_status:
        return f"{begin}exec {shlex.quote(probe)}"
    report = f"s=$?;[ $s = {EXIT_DONE} ]&&exit;echo {_STATUS} $s >&3;exit $s"
    return f"{begin}exec 3>&2 2>/dev/null;(exec {shlex.quote(probe)} 2>&3 3>&-);{report}"


def _take_status(completed: Completed, stderr: bytearray) -> tuple[int | None, bool]:
    """Remove the shell's status from `stderr`; return the exit code, and whether both agree.

    They agree if the daemon reports the same.
    """
    status = completed.exit_code if completed.signal is None else 128 + completed.signal
    match = _STATUS_SAID.search(stderr)
    if match is None:
        return (EXIT_DONE, True) if status == 0 else (completed.exit_code, False)
    agrees = int(match[1]) == status
    del stderr[match.start() :]
    return completed.exit_code, agrees
