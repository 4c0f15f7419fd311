"""A user's own `qnn_executor_runner`, where ExecuTorch's wheel has no libraries for a device."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from harness.contexts.context.metadata import Tensor
from harness.device.transport.shell import Completed, ScriptTimeout
from harness.ground.errors import ConfigError
from harness.libraries.runtimes.executorch import RUNNER
from harness.probe.deadline import alive_at_deadline
from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun
from harness.probe.transcript import StepResult
from harness.run.bench.saved_outputs import run_keeping
from harness.verdict.failure.runner_log import (
    STARTED,
    Heard,
    is_delegate_line,
    is_logged_line,
    process_of,
    runner_transcript,
)

if TYPE_CHECKING:
    from pathlib import Path

    from harness.device.transport.device import Transport
    from harness.run.bench.case_session import CaseSession, Observation
    from harness.run.bench.executorch import Program

_INFERENCES: Final = 2  # so that outputs can be compared with each other
_NOT_STARTED: Final = ("CANNOT LINK EXECUTABLE", "error while loading shared libraries")
_LOOK_S: Final = 30.0
_MOST_LINES: Final = 200_000
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class RunnerCall:
    """What the runner is called with; all paths are on the device, `folder` is one to write in."""

    runner: str
    program: str
    inputs: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    method: int = 0

    @property
    def outputs(self) -> str:
        return f"{self.folder}/outputs"

    def input_list(self) -> bytes:
        """One line for each inference; none where the program takes nothing."""
        return f"{' '.join(self.inputs)}\n".encode() * _INFERENCES if self.inputs else b""

    def script(self) -> str:
        """Shell text that becomes the runner, and says before that who and when it is (pure).

        All on one stream: two have no order, and its first lines would come before that.
        """
        own = self.runner.rpartition("/")[0]
        paths = dict(self.environment)
        for name, between in (("LD_LIBRARY_PATH", ":"), ("ADSP_LIBRARY_PATH", ";")):
            paths[name] = between.join(filter(None, (own, paths.get(name))))
        exports = "".join(f"export {name}={shlex.quote(text)};" for name, text in paths.items())
        words = [self.runner, "--model_path", self.program, "--output_folder_path", self.outputs]
        if self.inputs:
            words += ["--input_list_path", f"{self.folder}/input_list.txt"]
        if self.method:
            words += ["--method_index", str(self.method)]
        return (
            f"cd {shlex.quote(self.folder)}&&mkdir outputs&&cat >input_list.txt||exit 97;{exports}"
            f'read -r up rest </proc/uptime;echo "{STARTED} $$ $up";exec {shlex.join(words)} 2>&1'
        )


class _Lines:
    """Cuts what comes from two streams into lines, with the times at which they came."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.raw = bytearray()
        self._rest = [b"", b""]
        self._began = time.monotonic()

    def taker(self, stream: int) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            self.raw += data
            t_us = int((time.monotonic() - self._began) * 1e6)
            *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
            self._add(lines, t_us)

        return take

    def close(self) -> None:
        self._add([one for one in self._rest if one], int((time.monotonic() - self._began) * 1e6))

    def _add(self, lines: Sequence[bytes], t_us: int) -> None:
        if len(self.heard) < _MOST_LINES:
            texts = (one.decode("utf-8", "replace").rstrip("\r")[:4000] for one in lines)
            self.heard += [Heard(text, t_us) for text in texts]


def call_runner(
    device: Transport, call: RunnerCall, plan: Plan, *, first: str, timeout_s: float
) -> ProbeRun:
    """Runs it in the place of a probe that had this plan, and says how that went.

    `first` is shell text that may refuse the device. Raises ConfigError for a build whose libraries
    are not complete; else as `run_plan`.
    """
    lines, started = _Lines(), time.monotonic()
    completed: Completed | None = None
    timed_out = False
    try:
        completed = device.shell(
            first + call.script(),
            stdin=call.input_list(),
            timeout_s=timeout_s,
            on_stdout=lines.taker(0),
            on_stderr=lines.taker(1),
            max_output_bytes=_MOST_BYTES,
            doing=f"run {RUNNER}",
            collect=False,
        )
    except ScriptTimeout as error:
        completed = error.completed
        seen = runner_transcript(plan, lines.heard, None)
        if completed is None:
            due_s = timeout_s * 3 / 4  # what comes before its start takes no longer
            timed_out = alive_at_deadline(
                seen,
                error.found,
                due_s,
                late_bytes=error.late_bytes,
                heard_out=error.heard_out,
            )
            if not timed_out:
                raise
    lines.close()
    said = next((one.text for one in lines.heard if any(t in one.text for t in _NOT_STARTED)), None)
    if said is not None:
        raise ConfigError(f"the {RUNNER} given does not start: {said}", field="--executorch")
    heard = lines.heard
    process = process_of(heard)
    if process is not None and not any(is_delegate_line(one.text) for one in heard):
        heard = _with_logcat(device, process, heard)
    exit_code = completed.exit_code if completed else None
    transcript = runner_transcript(plan, heard, exit_code)
    failed = transcript.finished is not None and transcript.first_failure is not None
    return ProbeRun(
        plan=plan,
        transcript=transcript,
        # how it ends itself once a status was not Ok tells nothing more
        exit_code=1 if failed else exit_code,
        signal=None if failed or completed is None else completed.signal,
        timed_out=timed_out,
        truncated=completed is not None and completed.truncated,
        raw_events=b"",
        stderr=bytes(lines.raw),
        duration_s=time.monotonic() - started,
    )


def run_with(
    case: CaseSession,
    runner: str,
    program: Program,
    plan: Plan,
    expected: Sequence[Path],
    timeout_s: float,
    *,
    own: bool,
) -> Observation:
    """Runs a program's plan with a runner, whose path on the device is `runner`.

    ExecuTorch's wheel speaks as a probe does. The user's `own` one prints no events and compares
    nothing. As `CaseSession.run`, and with `own` as `call_runner`.
    """
    if not own:
        run_it = partial(case.run, timeout_s=timeout_s, probe=runner)
        return run_keeping(case, run_it, plan, [program.told_against(expected)])
    fields = next(step for step in plan.steps if step.verb == "executorch-run").fields
    inputs = tuple(path for key, path in fields.items() if key.startswith("input."))
    file, environment = plan.steps[0].fields["file"], case.runtime.environment
    content = list[bytes | None]()
    with case.scratch() as folder:
        call = RunnerCall(runner, file, inputs, folder, environment, program.number)
        way, first = case.device.transport, case.same_device
        run = call_runner(way, call, plan, first=first, timeout_s=timeout_s)
        if run.transcript.done and program.outputs and inputs:
            listed = way.shell(f"ls {shlex.quote(call.outputs)}", timeout_s=_LOOK_S).stdout
            there = listed.decode("utf-8", "replace").split()
            found = [
                [
                    case.fetch(f"{call.outputs}/{name}", max_bytes=tensor.size)
                    if (name := f"output_{at}_{number}.raw") in there
                    else None
                    for number, tensor in enumerate(program.outputs)
                ]
                for at in range(_INFERENCES)
            ]
            wanted = [path.read_bytes() for path in expected]
            content = found[0]
            run = with_outputs(run, found, program.outputs, wanted, float(fields["tolerance"]))
    seen = case.judged(run)
    outputs = program.told_against(expected if content else ())
    return seen.keeping(outputs.kept(case.run_folder, lambda at, _: content[at]))


def _with_logcat(device: Transport, process: int, heard: Sequence[Heard]) -> list[Heard]:
    asked = f"logcat -d -v brief --pid={process} 2>/dev/null"
    answer = device.shell(asked, timeout_s=_LOOK_S, max_output_bytes=8 << 20)
    start = next(at for at, one in enumerate(heard) if one.text.startswith(STARTED))
    logged = answer.stdout.decode("utf-8", "replace").splitlines()[:_MOST_LINES]
    lines = [Heard(text, heard[start].t_us) for text in logged if is_logged_line(text)]
    return [*heard[: start + 1], *lines, *heard[start + 1 :]]


def with_outputs(
    run: ProbeRun,
    outputs: Sequence[Sequence[bytes | None]],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> ProbeRun:
    """The run with what came out of each inference: hashes, and how it compares (pure)."""
    steps = list(run.transcript.steps)
    runs = [at for at, step in enumerate(steps) if step.verb == "executorch-run" and step.ok]
    for at, found in zip(runs, outputs, strict=False):
        steps[at] = _compared(steps[at], found, tensors, expected, tolerance)
    finished = run.transcript.finished
    if finished is not None:
        finished = replace(finished, failed=sum(step.failed for step in steps))
    return replace(run, transcript=replace(run.transcript, steps=steps, finished=finished))


def _compared(
    step: StepResult,
    found: Sequence[bytes | None],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> StepResult:
    digests, figures = [], []
    for at, (content, tensor) in enumerate(zip(found, tensors, strict=True)):
        if content is None or len(content) != tensor.size:
            wrote = "nothing" if content is None else f"{len(content)} bytes"
            problem = f"it wrote {wrote} for {tensor}"
            return replace(step, error="mismatch", message=problem)
        digests.append(crc32(content))
        if expected:
            figures.append({"index": at, **_difference(content, expected[at], tensor, tolerance)})
    wrong = next((one for one in figures if one["beyond"]), None)
    told = replace(step, data={"digests": digests, "outputs": figures})
    if wrong is None:
        return told
    problem = f"output {wrong['index']} has {wrong['beyond']} of {wrong['elements']} elements"
    how = f"more than {tolerance:g} from" if tolerance else "that are not"
    return replace(told, error="mismatch", message=f"{problem} {how} what is expected")


def _difference(content: bytes, expected: bytes, tensor: Tensor, within: float) -> dict[str, Any]:
    import numpy as np

    name = "uint8" if tensor.data_type == "bool8" else tensor.data_type
    got, wanted = (np.frombuffer(one, name).astype(np.float64) for one in (content, expected))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - wanted)
    # nothing is equal to what is no number, but for another such
    apart[np.isnan(got) & np.isnan(wanted)] = 0
    beyond = int(np.count_nonzero(~(apart <= within)))
    most = float(np.nanmax(apart, initial=0.0))
    return {"elements": len(got), "max_abs": most, "beyond": beyond}
