"""One case on a prepared device: driven by the plug-in, used by tests through `bench`."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.bench.exception_attribution import line_at_work
from harness.bench.kept_outputs import KeptOutput, ToKeep
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceRefused, InfraError
from harness.core.files import disk_errors, scratch_folder
from harness.core.outgoing_text import log_without_secrets
from harness.diagnosis.diagnosis import Foreseen, diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict, judge, lacking_processor
from harness.dsp.replies import DspReply, clear_replies, log_size, read_replies, read_votes
from harness.evidence.case_evidence import CaseEvidence, telling_lines
from harness.lab.lease import LeaseLost
from harness.probe.events import kept_events
from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun, run_plan
from harness.results.probe_figures import loaded_contexts, measure, power_figures, refused_votes
from harness.results.record import (
    Check,
    Execution,
    Outputs,
    RuntimeRecord,
    disagreement,
    executions,
    named_figures,
    outputs_of,
)
from harness.runtimes.runtime import LibraryMissing

if TYPE_CHECKING:
    from harness.bench.prepared_devices import PreparedPlacement
    from harness.lab.lab_device import AttachedDevice

_EVIDENCE_S = 20.0
_SCRATCH_S = 20.0
_FETCH_S = 60.0
_EVIDENCE = "evidence"
_GATE = "gate"
_VOTES_END_S = 10.0


class NotPassed(Exception):
    """A case ended without passing; carries the verdict for the record."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.explanation())

    @staticmethod
    def of(verdict: Verdict) -> NotPassed:
        """Return the exception for a verdict: NoVerdict if it says nothing about the target."""
        return NoVerdict(verdict) if verdict.outcome == "error" else TargetFailure(verdict)


class TargetFailure(NotPassed, AssertionError):
    """The target did not do what the case requires."""


class NoVerdict(NotPassed):
    """The lab or the harness failed, so that nothing is known about the target."""


class NoFigureError(ConfigError, KeyError):
    """A test asked for a figure that was not measured."""

    __str__ = ConfigError.__str__  # KeyError would put it into quotes


class Figures(dict[str, Any]):
    """Figures by name; the error for a missing one lists those that exist."""

    def __missing__(self, name: str) -> NoReturn:
        raise NoFigureError(f"{name!r} was not measured; measured: {', '.join(self) or 'nothing'}")


@dataclass(frozen=True)
class Observation:
    """The result of one probe process: its transcript, the verdict and its figures.

    `measurements` has figures by name, with units at the ends of names; steps that were not done
    have none.

    - Contexts (`resident`, `executorch`...): `loaded`, `executed` and `freed` count them. `load_us`
      and `execute_us` are lists, with one value for each load and execution, in order.
    - ONNX Runtime (`session`): `sessions`, `runs` and `released` count. `create_us`, `run_us` and
      `release_us` are lists like these. `placement` has the nodes of each execution provider.
    - Both: `rss_bytes` and `pss_bytes`, each with `start`, `peak` and `end`; `outputs`, where some
      were compared, with `compared`, `max_abs` and `beyond_tolerance`.

    With `repeat` or `rounds` an execution is one value all the same: the p50 of their steady state.
    `kept` are outputs that have a reference to compare them with.
    """

    run: ProbeRun = field(repr=False)
    verdict: Verdict
    measurements: dict[str, Any] = field(repr=False)
    kept: Sequence[KeptOutput] = field(default=(), repr=False)

    @property
    def loaded(self) -> int:
        """The number of contexts that were loaded, one by one or as a list."""
        return loaded_contexts(self.run.transcript.steps)

    def check(self) -> None:
        """Raise TargetFailure, or NoVerdict, unless everything in the plan succeeded."""
        if self.verdict.outcome != "passed":
            raise NotPassed.of(self.verdict)


@dataclass
class Notes:
    """The results of a case so far; they become part of its record.

    `verdict` is that of the last plan that the case ran, None once it was accepted, and `test_line`
    the line of the test that ran it. `makers` are the QNN versions that made the contexts it used.
    `outputs_compared`: the case itself has compared outputs with a reference. `surroundings` are
    those of its processes; the record has them if times were measured. `dsp_replies` are the
    distinct answers of a simulated DSP.
    """

    measurements: dict[str, object] = field(default_factory=dict)
    conclusion: str | None = None
    grid: tuple[str, str] | None = None
    checks: list[Check] = field(default_factory=list)
    verdict: Verdict | None = None
    test_line: str | None = None
    probe_us: int = 0
    logs: list[str] = field(default_factory=list)
    runtime: RuntimeRecord | None = None
    makers: list[str] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    outputs_compared: bool = False
    surroundings: dict[str, object] = field(default_factory=dict)
    dsp_replies: list[DspReply] = field(default_factory=list)

    @property
    def outputs(self) -> Outputs | None:
        """The kind of comparison that the outputs of all executions passed."""
        return "reference" if self.outputs_compared else outputs_of(self.executions)

    def set_verdict(self, verdict: Verdict) -> None:
        """Set the verdict of the last plan that counts for the case."""
        self.verdict, self.test_line = verdict, line_at_work()

    def accept_refusal(self) -> None:
        """Accept the refusal of the last plan as correct; its code becomes a figure."""
        outcome = self.verdict.outcome if self.verdict else None
        refused = self.verdict and self.verdict.error
        if outcome is None and not self.logs:
            raise ConfigError(
                "nothing has run yet; call `accept_refusal()` after the call that is refused"
            )
        if outcome in ("passed", "crashed", "hung"):
            raise ConfigError(f"the last plan was not refused: it {outcome}")
        if refused and refused.code == 0:
            raise ConfigError("nothing was refused: the call succeeded, but its outputs are wrong")
        self.measurements["refused_code"] = refused.code if refused else None
        self.verdict = None

    def libraries(self) -> RuntimeRecord | None:
        """Return the record's `runtime`: the libraries and the makers of the contexts."""
        made_by = ", ".join(dict.fromkeys(self.makers)) or None
        return self.runtime and self.runtime.model_copy(update={"contexts_by": made_by})

    def figures(self) -> dict[str, object]:
        timed = any(value and name.endswith("_us") for name, value in self.measurements.items())
        surroundings = {"surroundings": self.surroundings} if timed else {}
        return (
            self.measurements
            | surroundings
            | named_figures(conclusion=self.conclusion, grid=self.grid, probe_us=self.probe_us)
        )


class CaseSession:
    """A device with a runtime on it, for one case, and the notes that its record is made of.

    `folder` is that of the test: relative paths of context files start there. `foreseen` are the
    findings of preflight about the case.
    """

    def __init__(
        self, prepared: PreparedPlacement, log_folder: Path, folder: Path = Path()
    ) -> None:
        self.prepared = prepared
        self.placement = prepared.placement
        self.folder = folder
        self.notes = Notes()
        self.foreseen = Foreseen()
        self._provisioned = prepared.provisioned
        self._is_used = False
        self.runtime = prepared.runtime
        self.notes.runtime = prepared.record
        self._log_folder = log_folder
        self._runs = 0
        self._log_start = 0
        device, baseline = self._provisioned.device, self._provisioned.baseline
        self._evidence = CaseEvidence(device.transport, baseline, dsp=device.simulated_dsp)

    @property
    def device(self) -> AttachedDevice:
        """The device; access counts as use."""
        self._is_used = True
        return self._provisioned.device

    @property
    def is_unused(self) -> bool:
        """Return whether neither device nor compiler were used and nothing was recorded."""
        notes = self.notes
        noted = (notes.checks, notes.conclusion, notes.makers, notes.measurements.keys() - {_GATE})
        return not self._is_used and not any(noted)

    def with_qnn(self, qnn: str) -> CaseSession:
        self._is_used = True
        placement = self.placement.model_copy(update={"qnn": qnn, "compiler": qnn})
        logs = self._log_folder / f"qnn-{qnn}"
        session = CaseSession(self._provisioned.prepare(placement), logs, self.folder)
        session._surroundings = self._surroundings  # it is no other case
        return session

    @cached_property
    def _surroundings(self) -> dict[str, object]:
        return self._provisioned.watch.environment(self._provisioned.lab_device)

    @property
    def device_check(self) -> str:
        """Shell text that exits if another device answers than the one that was prepared."""
        return self._provisioned.lab_device.device_id.check()

    @property
    def executes_on(self) -> str:
        """The processor that executes a case's graphs, in words."""
        backend, arch = self.placement.backend.upper(), self.prepared.htp_arch
        name = f"{backend} v{arch}" if backend == "HTP" and arch else backend
        return f"{name}, simulated on this computer" if self.device.simulated else name

    @property
    def run_folder(self) -> Path:
        """The folder of the run; the logs of the case are two levels below."""
        return self._log_folder.parents[1]

    @contextlib.contextmanager
    def require_backend(self) -> Iterator[None]:
        """Turn a missing library of the backend into TargetFailure (`unsupported`)."""
        try:
            yield
        except LibraryMissing as error:
            missing = ErrorRecord.of(message=str(error))
            error_record = diagnosed("unsupported", missing, foreseen=self.foreseen)
            raise TargetFailure(Verdict("unsupported", None, error_record)) from error

    def wait_until_idle(self, *, may_move: bool) -> None:
        """Wait until the device is cool and idle, as a timed case needs it, and record its state.

        Raises InfraError if that takes longer than the lab's `gate` allows, and DeviceHot at once
        for a case that `may_move` to another device.
        """
        settled = self._provisioned.watch.wait_until_idle(
            self._provisioned.lab_device, may_move=may_move
        )
        if settled:
            self.notes.measurements[_GATE] = settled

    def run(
        self,
        plan: Plan,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        *,
        probe: str | None = None,
    ) -> Observation:
        """Run a plan in a probe process of its own and judge it; see `Bench.attempt`.

        `probe` is the path of a probe on the device, by default that of the target. Where a case
        of the same placement has shown that the device lacks the processor, nothing is run again.
        """
        self._is_used = True
        if (refusal := self._provisioned.refusals.get(self.placement)) is not None:
            self.notes.set_verdict(refusal)
            raise NotPassed.of(refusal)
        if self.placement.power is not None:
            plan = replace(plan, settings=replace(plan.settings, power=self.placement.power))
        self._forget_dsp_replies()
        started = time.monotonic()
        with self._current_folder() as folder:
            run = run_plan(
                self.device.transport,
                probe or self.prepared.probe,
                plan,
                env=self.runtime.environment | dict(environment or {}),
                cwd=folder,
                timeout_s=timeout_s,
                first=self.device_check,
                on_start=self._write_plan,
                on_hang=self._evidence.look,
            )
        self.notes.probe_us += run.transcript.elapsed_us or int(
            (time.monotonic() - started) * 1_000_000
        )
        return self.judge_run(run, plan_kept=bool(run.raw_events))

    def run_and_keep(
        self, run: Callable[[Plan], Observation], plan: Plan, outputs: Sequence[ToKeep]
    ) -> Observation:
        """Run a plan and keep the outputs that have a reference.

        The steps of the verb are shared out evenly, in order, among the sets of outputs.
        """
        numbers = [number for number, step in enumerate(plan.steps) if step.verb == outputs[0].verb]
        each = len(numbers) // len(outputs)
        with self.scratch() if outputs[0].references else contextlib.nullcontext("") as folder:
            steps = list(plan.steps)
            for position, number in enumerate(numbers):
                index = position // each
                names = range(len(outputs[index].references))
                saved = {f"save.{output}": f"{folder}/{index}.{output}.raw" for output in names}
                steps[number] = replace(steps[number], fields={**steps[number].fields, **saved})
            observation = run(replace(plan, steps=tuple(steps)))
            kept_outputs, results = list[KeptOutput](), observation.run.transcript.steps
            for index, output_set in enumerate(outputs):
                mine = numbers[index * each : (index + 1) * each]
                if any(
                    step.ok or step.error == "mismatch" for step in results if step.step in mine
                ):

                    def fetch(output: int, size: int, index: int = index) -> bytes:
                        return self.fetch(f"{folder}/{index}.{output}.raw", max_bytes=size)

                    kept_outputs += output_set.save(self.run_folder, fetch)
            return replace(observation, kept=kept_outputs)

    def judge_run(self, run: ProbeRun, *, plan_kept: bool = False) -> Observation:
        """Write the logs of a process and judge it. Raises NoVerdict if the lab failed."""
        if not plan_kept:
            self._write_plan(run.plan)
        self._write_log("jsonl", run.raw_events)
        self._write_log("stderr", run.stderr)
        level = run.plan.settings.log_level
        rounds = max((int(step.fields.get("repeat", 1)) for step in run.plan.steps), default=1)
        is_full = any("least_ms" in step.fields for step in run.plan.steps)
        settings = {"log_level": level, "rounds": rounds} | (
            {"profile_run": "full"} if is_full else {}
        )
        self.notes.surroundings = settings | self._surroundings
        if self.placement.power is not None:
            self._note_power(self.placement.power, run)
        replies = self._dsp_replies()
        known = self.notes.dsp_replies
        known += [reply for reply in replies if reply not in known]
        facts = self.device.facts
        verdict = judge(run, facts.coprocessors, foreseen=self.foreseen, dsp_replies=replies)
        # an experiment that counts successes must not take an emulator's limit for the target's
        if verdict.cause == "infra" or any(reply.by == "emulator" for reply in replies):
            self.notes.set_verdict(verdict)
            raise NotPassed.of(verdict)
        if (lacks := lacking_processor(verdict, facts.coprocessors)) and verdict.error:
            logs = f"{self._log_folder.parent.name}/{self._log_folder.name}/"
            why = f"not run again, as the device has no {lacks.upper()}: {logs} shows the refusal"
            refusal = replace(verdict, error=verdict.error.with_line(why))
            self._provisioned.refusals[self.placement] = refusal
        self.notes.executions += executions(run.plan, run.transcript)
        if verdict.outcome == "passed" and (problem := disagreement(self.notes.executions)):
            error = ErrorRecord.of(api="QnnGraph_execute", message=problem)
            verdict = Verdict("failed", "target", error)
        return Observation(run, verdict, Figures(measure(run.transcript)))

    def _note_power(self, profile: str, run: ProbeRun) -> None:
        """Record the votes for power, the library's answers, and what arrived of them."""
        power = power_figures(profile, self.placement.engine, run.transcript)
        if self.device.simulated:
            power["answer"] = f"{power['answer']}; a simulated device has no clocks"
        if self.device.simulated_dsp is not None:
            with disk_errors("cannot read the log of the simulated DSP"):
                power["arrived"] = read_votes(self.device.simulated_dsp, _VOTES_END_S)
        self.notes.measurements["power"] = power
        refused = refused_votes(power["votes"])
        self.notes.surroundings["power"] = f"{profile} without {refused}" if refused else profile

    def _forget_dsp_replies(self) -> None:
        if self.device.simulated_dsp is not None:
            with disk_errors("cannot clear the log of the simulated DSP"):
                clear_replies(self.device.simulated_dsp)
            self._log_start = log_size(self.device.simulated_dsp)

    def _dsp_replies(self) -> tuple[DspReply, ...]:
        if self.device.simulated_dsp is None:
            return ()
        with disk_errors("cannot read the log of the simulated DSP"):
            return read_replies(self.device.simulated_dsp, self._log_start)

    @contextlib.contextmanager
    def _current_folder(self) -> Iterator[str]:
        """Yield the working directory of a probe: the GPU backend writes kernel sources there."""
        if self.placement.backend != "gpu":
            yield self.runtime.root
            return
        with self.scratch() as folder:
            yield folder

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """Create a temporary folder on the device for files of a plan.

        Raises DeviceError if it cannot be made. Leftovers of a killed run are removed after a day;
        simulated devices of a run are removed with it.
        """
        base = f"{self.device.workdir}/scratch"
        folder = f"{base}/{secrets.token_hex(8)}"
        old = f"find {shlex.quote(base)} -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {{}} +"
        completed = self.device.transport.shell(
            f"mkdir -p {shlex.quote(folder)} && {{ {old}; :; }}",
            timeout_s=_SCRATCH_S,
            doing="make a folder",
        )
        if completed.exit_code != 0:
            raise DeviceRefused(
                "cannot make a folder for what the case writes",
                serial=self.device.transport.serial,
                command=f"mkdir -p {folder}",
                output=completed.stderr,
            )
        try:
            yield folder
        finally:
            with contextlib.suppress(InfraError):
                self.device.transport.shell(f"rm -rf {shlex.quote(folder)}", timeout_s=_SCRATCH_S)

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        with scratch_folder() as folder:
            local = folder / "fetched"
            self.device.transport.pull(remote, local, timeout_s=_FETCH_S, max_bytes=max_bytes)
            return local.read_bytes()

    def lost_lease(self) -> LeaseLost | None:
        """Return the error if the lease was lost: somebody else may have used the device."""
        try:
            self._provisioned.lab_device.require_held()
        except LeaseLost as lost:
            return lost
        return None

    def collect_evidence(self) -> tuple[str, ...]:
        """Collect the device's evidence of a case that failed and return lines of its logs.

        Never raises because of the device: evidence.json notes whatever could not be collected.
        """
        folder = self._log_folder / _EVIDENCE
        collected = self._evidence.collect(folder, deadline=Deadline(_EVIDENCE_S))
        self.notes.logs += [f"{_EVIDENCE}/{name}" for name in collected.files]
        if collected.baseline is not None:
            self._provisioned.baseline = collected.baseline  # not evidence for the next case
        return telling_lines(folder, collected.files)

    def _write_plan(self, plan: Plan) -> None:
        """Write the plan of a probe; called while the probe works, so that it costs no time."""
        self._runs += 1
        self._write_log("plan", plan.text().encode())

    def _write_log(self, ending: str, content: bytes) -> None:
        """Write a plan or an output of a probe into the case's logs, without secrets."""
        if not content:
            return
        safe = (kept_events if ending == "jsonl" else log_without_secrets)(content)
        name = "probe" if self._runs == 1 else f"probe-{self._runs}"
        try:
            if ending == "plan":
                self._log_folder.mkdir(parents=True, exist_ok=True)
            (self._log_folder / f"{name}.{ending}").write_bytes(safe)
        except OSError as error:
            why = f"cannot keep logs in {self._log_folder}: {error.strerror or error}"
            raise InfraError(why) from error
        self.notes.logs.append(f"{name}.{ending}")
