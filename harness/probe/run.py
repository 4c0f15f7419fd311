"""Runs a plan in a fresh probe process, on a device or on this host, and says how it went."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.adb.deadline import Deadline
from harness.errors import ConfigError, DeviceError, DeviceTimeout, InfraError
from harness.probe.events import Transcript, TranscriptParser
from harness.probe.plan import Plan

if TYPE_CHECKING:
    from harness.adb.device import AdbDevice

MAX_STDERR_BYTES: Final = 256 << 10
MAX_OUTPUT_BYTES: Final = 64 << 20
LOOK_S: Final = 8.0
"""How long whoever is told of a hang may look at the process, if its deadline leaves so much."""
_EXIT_DEADLINE: Final = 124
_NO_FOLDER: Final = 97
_CHUNK_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class ProbeRun:
    """How one probe process went: facts, no verdict.

    `exit_code`: 0 all steps fine, 1 a step failed, 2 the plan was refused; None if it was ended by
    `signal` or from outside. `timed_out`: its deadline passed, be it the probe's own or the one of
    whoever ran it. `truncated`: it wrote more than was taken, and was ended. `raw_events` is its
    stdout, `stderr` the last part of its stderr, which also holds what the library prints.
    """

    transcript: Transcript
    exit_code: int | None
    signal: int | None
    timed_out: bool
    truncated: bool
    raw_events: bytes
    stderr: bytes
    duration_s: float


def run_plan(
    device: AdbDevice,
    probe: str,
    plan: Plan,
    *,
    env: Mapping[str, str],
    cwd: str,
    timeout_s: float,
    first: str = "",
    on_hang: Callable[[int, Deadline], None] | None = None,
) -> ProbeRun:
    """Runs `plan` with the probe at this path on the device, in `cwd`, with `env` added.

    `first` is shell text that the shell which starts the probe runs before; it may exit instead.

    The plan gets a deadline a little before `timeout_s` if it has none, so that the probe itself
    can say where it hung; if even that fails, its process group is ended and the run has
    `timed_out`. `on_hang` is called once, in either case, with the probe's process id and a
    deadline, while the process is still there; it may end it, and an InfraError of it is ignored.

    Raises DeviceError if the probe did not start; DeviceLost if the connection broke, with a note
    of the step that was under way; DeviceTimeout if the device could not be reached to end it,
    since then the link may have been what hung; whatever else `AdbDevice.shell` raises.
    """
    parser = TranscriptParser()
    raw, stderr = bytearray(), bytearray()
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
        raw.extend(data)
        parser.feed(data)
        if parser.transcript.deadline and not told:
            tell(overall.at_most(LOOK_S))

    def on_stderr(data: bytes) -> None:
        stderr.extend(data)
        del stderr[:-MAX_STDERR_BYTES]

    plan = _with_deadline(plan, timeout_s, looks=on_hang is not None)
    overall = Deadline(timeout_s)
    script = first + _script(probe, env, cwd)
    started = time.monotonic()
    exit_code: int | None = None
    number: int | None = None
    timed_out = truncated = False
    try:
        completed = device.shell(
            script,
            stdin=plan.text().encode(),
            timeout_s=timeout_s,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            max_output_bytes=MAX_OUTPUT_BYTES,
            before_end=tell,
        )
        exit_code, number = completed.exit_code, completed.signal
        truncated = completed.truncated
    except DeviceTimeout as error:
        timed_out = True
        if parser.transcript.start is None or not error.ended:
            raise
    except DeviceError as error:
        step = parser.close().last_begun
        if step is not None:
            error.add_note(f"step {step.step} ({step.verb}) had begun")
        raise
    transcript = parser.close()
    if transcript.deadline and told and number == signal.SIGKILL:
        # it was about to end itself, and whoever looked at it did not wait for that
        exit_code, number = _EXIT_DEADLINE, None
    if transcript.start is None:
        said = bytes(stderr or raw)
        raise DeviceError(
            f"the probe did not start (exit code {exit_code}, signal {number})",
            serial=device.serial,
            command=script,
            output=said,
        )
    return ProbeRun(
        transcript=transcript,
        exit_code=exit_code,
        signal=number,
        timed_out=timed_out or transcript.deadline,
        truncated=truncated,
        raw_events=bytes(raw),
        stderr=bytes(stderr),
        duration_s=time.monotonic() - started,
    )


def run_plan_locally(
    probe: Path,
    plan: Plan,
    *,
    env: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
) -> ProbeRun:
    """Runs `plan` on this host with exactly `env` as its environment; as `run_plan` otherwise.

    Raises ConfigError if the probe cannot be executed, InfraError if it did not start properly.
    """
    text = _with_deadline(plan, timeout_s).text().encode()
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [str(probe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"cannot run the probe: {error}", file=probe) from error
    run = _LocalRun(process, started + timeout_s)
    with process:
        try:
            run.exchange(text)
        finally:
            _end_group(process)
    transcript = run.parser.close()
    if transcript.start is None and not run.timed_out:
        said = bytes(run.stderr[-2000:]).decode("utf-8", "replace")
        raise InfraError(f"the probe did not start (status {process.returncode}): {said}")
    ended = run.timed_out or run.truncated
    status = process.returncode
    return ProbeRun(
        transcript=transcript,
        exit_code=status if status >= 0 and not ended else None,
        signal=-status if status < 0 and not ended else None,
        timed_out=run.timed_out or transcript.deadline,
        truncated=run.truncated,
        raw_events=bytes(run.raw),
        stderr=bytes(run.stderr),
        duration_s=time.monotonic() - started,
    )


class _LocalRun:
    """Feeds a process its input and takes its output, both bounded, until a moment."""

    def __init__(self, process: subprocess.Popen[bytes], until: float) -> None:
        self._process = process
        self._until = until
        self.parser = TranscriptParser()
        self.raw = bytearray()
        self.stderr = bytearray()
        self.timed_out = False
        self.truncated = False

    def exchange(self, text: bytes) -> None:
        """Returns when the process has ended, unreaped, or must be ended."""
        process = self._process
        pipes = [pipe for pipe in (process.stdin, process.stdout, process.stderr) if pipe]
        ended = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(ended, selectors.EVENT_READ)
                for pipe in pipes:
                    os.set_blocking(pipe.fileno(), False)
                    writing = pipe is process.stdin
                    event = selectors.EVENT_WRITE if writing else selectors.EVENT_READ
                    selector.register(pipe, event)
                self._serve(selector, ended, memoryview(text))
        finally:
            os.close(ended)
        # what a process of the library's still holds open never reaches its end
        for pipe in pipes[1:]:
            while not self.truncated and self._read(pipe):
                pass

    def _serve(self, selector: selectors.BaseSelector, ended: int, left: memoryview) -> None:
        while not self.truncated:
            remaining = self._until - time.monotonic()
            if remaining <= 0:
                self.timed_out = True
                return
            for key, _ in selector.select(remaining):
                if key.fd == ended:
                    return
                if key.fileobj is self._process.stdin:
                    left = self._write(left)
                    if not left:
                        selector.unregister(key.fileobj)
                        self._process.stdin.close()
                elif not self._read(key.fileobj):
                    selector.unregister(key.fileobj)

    def _write(self, left: memoryview) -> memoryview:
        stdin = self._process.stdin
        try:
            return left[os.write(stdin.fileno(), left[:_CHUNK_BYTES]) :] if stdin else left[:0]
        except BrokenPipeError:
            return left[:0]

    def _read(self, pipe: Any) -> int:
        try:
            data = os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if pipe is self._process.stderr:
            self.stderr += data
            del self.stderr[:-MAX_STDERR_BYTES]
        else:
            self.raw += data
            self.parser.feed(data)
            self.truncated = len(self.raw) > MAX_OUTPUT_BYTES
        return len(data)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a process group; its leader, not yet reaped, keeps the number ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _script(probe: str, env: Mapping[str, str], cwd: str) -> str:
    for name in env:
        if not name.isidentifier() or not name.isascii():
            raise ConfigError(f"not the name of an environment variable: {name!r}")
    exports = "".join(f"export {name}={shlex.quote(value)};" for name, value in env.items())
    return f"cd {shlex.quote(cwd)}||exit {_NO_FOLDER};{exports}exec {shlex.quote(probe)}"


def _with_deadline(plan: Plan, timeout_s: float, *, looks: bool = False) -> Plan:
    """`plan` with a deadline before `timeout_s`; with `looks`, time to look at it in between."""
    settings = plan.settings
    if settings.deadline_ms is None:
        grace_s = min(2.0 + (LOOK_S if looks else 0.0), timeout_s / 4)
        deadline_ms = max(1, int((timeout_s - grace_s) * 1000))
        settings = dataclasses.replace(settings, deadline_ms=deadline_ms)
    if looks and settings.deadline_ms and not settings.linger_ms:
        left_ms = int(timeout_s * 1000) - settings.deadline_ms
        linger_ms = max(0, min(int(LOOK_S * 1000), left_ms - 200))
        settings = dataclasses.replace(settings, linger_ms=linger_ms)
    return dataclasses.replace(plan, settings=settings)
