"""Runs a plan in a fresh probe process, on a device or on this host, and says how it went."""

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
from harness.core.notices import at_work, followed
from harness.probe.events import TranscriptParser
from harness.probe.plan import Plan, loads
from harness.probe.transcript import Transcript
from harness.transport.shell import Completed, Found, ScriptTimeout
from harness.transport.this_computer import ThisComputer

if TYPE_CHECKING:
    from harness.transport.device import Transport


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


MAX_STDERR_BYTES: Final = 256 << 10
MAX_OUTPUT_BYTES: Final = 64 << 20
"""No probe may say more than that, whatever its plan."""
_OUTPUT_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 1 << 10
_DOING: Final = "run the probe"
EXIT_DONE: Final = 86
EXIT_STEP_FAILED: Final = 87
EXIT_BAD_PLAN: Final = 88
EXIT_DEADLINE: Final = 124
EXIT_OUTPUT: Final = 125
"""Only the probe itself ends with these (native/probe.h). So a library's `exit(0)` is not taken for
a plan that was carried out and whose end nobody heard.
"""
_NO_FOLDER: Final = 97
_STATUS: Final = "qnn-harness-status"
_STATUS_SAID: Final = re.compile(rf"{_STATUS} ([0-9]{{1,3}})\n\Z".encode())


@dataclass(frozen=True)
class ProbeRun:
    """How one probe process went: facts, no verdict.

    `plan` is the one it was given, its deadline included. `exit_code`: `EXIT_DONE` all steps fine,
    `EXIT_STEP_FAILED` a step failed, `EXIT_BAD_PLAN` the plan was refused, anything else is not the
    probe's; None if it was ended by `signal` or from outside. `timed_out`:
    it was alive when its deadline had passed, by the device's own clock: it said so itself, or was
    found then. `truncated`: it wrote more than was taken, and was ended. `raw_events` is its
    stdout, `stderr` the last part of its stderr, which also holds what the library prints.
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
    """Runs `plan` with the probe at this path on the device, in `cwd`, with `env` added.

    `first` is shell text that the shell which starts the probe runs before; it may exit instead.
    `on_start` gets the plan that the probe was given once it has said something, and goes on.

    The plan gets a deadline a little before `timeout_s` if it has none, so that the probe itself
    can say where it hung. If even that fails, its process group is ended, and the run has
    `timed_out` if the device says that the process was still there. A process that had ended by
    itself, and was only heard of too late, is a run like any other. `on_hang` is called once, in
    either case of a hang, with the probe's process id and a deadline (8 s), while the process is
    still there. It may end that, and an InfraError of it is ignored.

    Raises DeviceError if the probe did not start. Raises DeviceLost, with a note of the step under
    way, if the connection broke. Raises DeviceTimeout if nothing proves that the process was alive
    at its deadline: then the link may have hung. Else raises as `Transport.shell`.
    """
    parser = TranscriptParser()
    raw, stderr = bytearray(), bytearray()
    how_far = _HowFar(device.serial, plan)
    told = False

    def tell(deadline: Deadline) -> None:
        nonlocal told
        start = parser.transcript.start
        if on_hang is None or told or start is None or start.pid is None:
            return
        told = True
        with contextlib.suppress(InfraError):
            on_hang(start.pid, deadline)

    def on_stdout(data: bytes) -> None:
        if on_start is not None and not raw:
            on_start(plan)
        raw.extend(data)
        parser.feed(data)
        if followed():
            how_far.tell(parser.transcript)
        # what is heard of only after the deadline has been ended by then
        if parser.transcript.deadline and not overall.expired:
            tell(Deadline(LOOK_S))

    def on_stderr(data: bytes) -> None:
        stderr.extend(data)
        del stderr[:-MAX_STDERR_BYTES]

    plan = with_deadline(plan, timeout_s, looks=on_hang is not None)
    overall = Deadline(timeout_s)
    # a link that is checked needs no second witness
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
            before_end=tell,
            doing=_DOING,
            collect=False,
        )
    except ScriptTimeout as error:
        completed = error.completed
        alive = alive_at_deadline(
            parser.transcript,
            error.found,
            _due_s(plan, timeout_s),
            late_bytes=error.late_bytes,
            heard_out=error.heard_out,
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
    if transcript.deadline and told and number == signal.SIGKILL:
        # it was about to end itself, and whoever looked at it did not wait for that
        exit_code, number = EXIT_DEADLINE, None
    if transcript.start is None:
        raise DeviceError(
            f"the probe did not start (exit code {exit_code}, signal {number})",
            serial=device.serial,
            command=_DOING,
            output=bytes(stderr or raw),
        )
    if not fits:
        raise DeviceError(
            "its exit status is not what the shell that ran the probe said, or that is missing",
            serial=device.serial,
            command=_DOING,
            output=bytes(stderr),
        )
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
    """So many bytes may come of a plan: what its log may hold, escaped, and some for each step."""
    asked = 2 * plan.settings.max_log_bytes + _STEP_BYTES * len(plan.steps)
    return min(MAX_OUTPUT_BYTES, _OUTPUT_BYTES + asked)


class _HowFar:
    """Tells who follows a run where its plan is."""

    def __init__(self, serial: str, plan: Plan) -> None:
        self._serial = serial
        self._plan = plan
        self._over = self._loaded = 0

    def tell(self, transcript: Transcript) -> None:
        """Looks only at the steps that were not over when it last looked."""
        if not transcript.steps:
            return
        for step in transcript.steps[self._over :]:
            if not step.ended and step.skipped is None:
                break
            self._over += 1
            if step.ok and step.step < len(self._plan.steps):
                self._loaded += loads(self._plan.steps[step.step])
        now = transcript.steps[-1]
        at_work(
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
    probe: Path,
    plan: Plan,
    *,
    env: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
) -> ProbeRun:
    """Runs `plan` on this host with `env` as its environment, and PATH; as `run_plan` otherwise.

    Raises ConfigError if the probe cannot be executed, InfraError if it did not start properly.
    """
    if not os.access(probe, os.X_OK):
        raise ConfigError("cannot run the probe: no program is there", file=probe)
    return run_plan(
        ThisComputer.for_plans(env),
        str(probe),
        plan,
        env=env,
        cwd=str(cwd or Path.cwd()),
        timeout_s=timeout_s,
    )


def _script(probe: str, env: Mapping[str, str], cwd: str, *, tell_status: bool) -> str:
    """Starts the probe; with `tell_status`, the shell says on stderr, too, how it ended.

    One flipped bit of an exit status would make a crash of a success. Where all went well the shell
    ends with 0 and says nothing, which costs no packet. What the shell prints about a crash is no
    word of the library's.
    """
    for name in env:
        if not name.isidentifier() or not name.isascii():
            raise ConfigError(f"not the name of an environment variable: {name!r}")
    exports = "".join(f"export {name}={shlex.quote(value)};" for name, value in env.items())
    begin = f"cd {shlex.quote(cwd)}||exit {_NO_FOLDER};{exports}"
    if not tell_status:
        return f"{begin}exec {shlex.quote(probe)}"
    told = f"s=$?;[ $s = {EXIT_DONE} ]&&exit;echo {_STATUS} $s >&3;exit $s"
    return f"{begin}exec 3>&2 2>/dev/null;(exec {shlex.quote(probe)} 2>&3 3>&-);{told}"


def _take_status(completed: Completed, stderr: bytearray) -> tuple[int | None, bool]:
    """Takes what the shell said out of `stderr`: the probe's exit code, and whether that holds.

    It holds if the daemon says the same.
    """
    status = completed.exit_code if completed.signal is None else 128 + completed.signal
    said = _STATUS_SAID.search(stderr)
    if said is None:
        return (EXIT_DONE, True) if status == 0 else (completed.exit_code, False)
    holds = int(said[1]) == status
    del stderr[said.start() :]
    return completed.exit_code, holds


def _due_s(plan: Plan, timeout_s: float) -> float:
    usual = with_deadline(Plan(()), timeout_s).settings.deadline_ms or 0
    return min(plan.settings.deadline_ms or usual, usual) / 1000
