"""One case on a device made ready: what the plug-in drives, and a test sees through its bench."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.bench.kept_outputs import KeptOutput
from harness.bench.wrong_call import line_at_work
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceRefused, InfraError
from harness.core.outgoing_text import log_without_secrets
from harness.core.whole_file import disk_errors, scratch_folder
from harness.diagnosis.diagnosis import Foreseen, diagnosed
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict, judge
from harness.dsp.dsp import Said, forget_said, log_size, read_said
from harness.evidence.case_evidence import CaseEvidence, telling_lines
from harness.lab.lease import LeaseLost
from harness.probe.events import kept_events
from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun, run_plan
from harness.results.measurements import loaded_contexts, measure
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
    from harness.bench.target import Target
    from harness.lab.attach import AttachedDevice

_EVIDENCE_S = 20.0
_SCRATCH_S = 20.0
_FETCH_S = 60.0
_EVIDENCE = "evidence"
_GATE = "gate"


class NotPassed(Exception):
    """A case ends without having passed; carries the verdict for the record."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.explanation())

    @staticmethod
    def of(verdict: Verdict) -> NotPassed:
        """The exception for a verdict; which one depends on whether it is about the target."""
        return NoVerdict(verdict) if verdict.outcome == "error" else TargetFailure(verdict)


class TargetFailure(NotPassed, AssertionError):
    """The target did not do what the case demands."""


class NoVerdict(NotPassed):
    """The lab or the harness kept the target from an answer, so that nothing is known of it."""


class NoFigureError(ConfigError, KeyError):
    """A test asks for a figure that was not measured."""

    __str__ = ConfigError.__str__  # KeyError would put it into quotes


class Figures(dict[str, Any]):
    """Figures by name; who asks for one that there is not is told which there are."""

    def __missing__(self, name: str) -> NoReturn:
        raise NoFigureError(f"no {name!r} was measured; there are: {', '.join(self) or 'none'}")


@dataclass(frozen=True)
class Observation:
    """One probe process: what it did, what that means, and the figures it gave.

    `measurements` has figures by name, with units at the ends of names; what was not done has none.

    - Contexts (`resident`, `executorch`...): `loaded`, `executed` and `freed` count them. `load_us`
      and `execute_us` are lists, with one value for each load and execution, in order.
    - ONNX Runtime (`session`): `sessions`, `runs` and `released` count. `create_us`, `run_us` and
      `release_us` are lists like these. `placement` has the nodes of each execution provider.
    - Both: `rss_bytes` and `pss_bytes`, each with `start`, `peak` and `end`; `outputs`, where some
      were compared, with `compared`, `max_abs` and `beyond_tolerance`.

    With `repeat` or `rounds` an execution is one value all the same: the median of its rounds.
    `kept` are outputs with something to tell them against.
    """

    run: ProbeRun = field(repr=False)
    verdict: Verdict
    measurements: dict[str, Any] = field(repr=False)
    kept: Sequence[KeptOutput] = field(default=(), repr=False)

    def keeping(self, kept: Sequence[KeptOutput]) -> Observation:
        """The same, with outputs that were kept."""
        return replace(self, kept=kept)

    @property
    def loaded(self) -> int:
        """How many contexts were loaded, one by one or as a list."""
        return loaded_contexts(self.run.transcript.steps)

    def check(self) -> None:
        """Raises TargetFailure, or NoVerdict, unless everything in the plan succeeded."""
        if self.verdict.outcome != "passed":
            raise NotPassed.of(self.verdict)


@dataclass
class Notes:
    """What a case has found out so far; becomes part of its record.

    `verdict` is what the last plan that the case ran came to, None once that was accepted, and `at`
    the line of the test that ran it. `makers` are the QNN versions that made the contexts it took.
    `outputs_compared`: the case has compared outputs with a reference by itself. `surroundings` are
    those of its processes; the record has them if they measured times. `said` is what a simulated
    DSP answered, each once.
    """

    measurements: dict[str, object] = field(default_factory=dict)
    conclusion: str | None = None
    grid: tuple[str, str] | None = None
    checks: list[Check] = field(default_factory=list)
    verdict: Verdict | None = None
    at: str | None = None
    probe_us: int = 0
    logs: list[str] = field(default_factory=list)
    runtime: RuntimeRecord | None = None
    makers: list[str] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    outputs_compared: bool = False
    surroundings: dict[str, object] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)

    @property
    def outputs(self) -> Outputs | None:
        """What is known of the outputs of all that was executed."""
        return "reference" if self.outputs_compared else outputs_of(self.executions)

    def came_to(self, verdict: Verdict) -> None:
        """What the last plan came to, of those that the case stands by."""
        self.verdict, self.at = verdict, line_at_work()

    def accept_refusal(self) -> None:
        """What the last plan came to is as it must be; its code becomes a figure."""
        outcome = self.verdict.outcome if self.verdict else None
        refused = self.verdict and self.verdict.error
        if outcome is None and not self.logs:
            raise ConfigError("nothing has run yet: `accept_refusal()` is for what ran before it")
        if outcome in ("passed", "crashed", "hung"):
            raise ConfigError(f"nothing was refused: what ran last {outcome}")
        if refused and refused.code == 0:
            raise ConfigError("nothing was refused: the call succeeded, and its outputs are wrong")
        self.measurements["refused_code"] = refused.code if refused else None
        self.verdict = None

    def libraries(self) -> RuntimeRecord | None:
        """What the record says of the libraries: its `runtime`."""
        made_by = ", ".join(dict.fromkeys(self.makers)) or None
        return self.runtime and self.runtime.model_copy(update={"contexts_by": made_by})

    def figures(self) -> dict[str, object]:
        """All that the record's `measurements` hold."""
        timed = any(value and name.endswith("_us") for name, value in self.measurements.items())
        around = {"surroundings": self.surroundings} if timed else {}
        return (
            self.measurements
            | around
            | named_figures(conclusion=self.conclusion, grid=self.grid, probe_us=self.probe_us)
        )


class CaseSession:
    """A device with a runtime on it, for one case, and the notes that its record is made of.

    `folder` is that of the test: relative paths of context files are meant from there. `foreseen`
    is what preflight said of the case.
    """

    def __init__(self, target: Target, log_folder: Path, folder: Path = Path()) -> None:
        self.target = target
        self.placement = target.placement
        self.folder = folder
        self.notes = Notes()
        self.foreseen = Foreseen()
        self._held = target.held
        self._asked = False
        self.runtime = target.runtime
        self.notes.runtime = target.record
        self._log_folder = log_folder
        self._runs = 0
        self._logged = 0
        transport, dsp = target.held.device.transport, target.held.device.simulated_dsp
        self._evidence = CaseEvidence(transport, self._held.baseline, dsp=dsp)

    @property
    def device(self) -> AttachedDevice:
        """The device. Whoever takes it in hand asks it something."""
        self._asked = True
        return self._held.device

    @property
    def says_nothing(self) -> bool:
        """Whether nothing was asked of the device or the compiler, and nothing noted, so far."""
        notes = self.notes
        found = (notes.checks, notes.conclusion, notes.makers, notes.measurements.keys() - {_GATE})
        return not self._asked and not any(found)

    def beside(self, qnn: str) -> CaseSession:
        """This device with another QNN on it."""
        self._asked = True
        placement = replace(self.placement, qnn=qnn, compiler=qnn)
        logs = self._log_folder / f"beside-{qnn}"
        beside = CaseSession(self._held.place(placement), logs, self.folder)
        beside._surroundings = self._surroundings  # it is no other case
        return beside

    @cached_property
    def _surroundings(self) -> dict[str, object]:
        return self._held.watch.surroundings(self._held.lab_device)

    @property
    def same_device(self) -> str:
        """Shell text that exits where another device answers than the one made ready."""
        return self._held.lab_device.device_id.check()

    @property
    def executes_on(self) -> str:
        """In words, what executes a case's graphs."""
        backend, arch = self.placement.backend.upper(), self.target.htp_arch
        name = f"{backend} v{arch}" if backend == "HTP" and arch else backend
        return f"{name}, simulated on this computer" if self.device.simulated else name

    @property
    def run_folder(self) -> Path:
        """The folder of the run that the case is part of: its logs lie two below."""
        return self._log_folder.parents[1]

    @contextlib.contextmanager
    def has_backend(self) -> Iterator[None]:
        """A runtime without a backend's library does not support that backend: TargetFailure."""
        try:
            yield
        except LibraryMissing as error:
            missing = ErrorRecord.of(message=str(error))
            known = diagnosed("unsupported", missing, foreseen=self.foreseen)
            raise TargetFailure(Verdict("unsupported", None, known)) from error

    def settle(self, *, may_move: bool) -> None:
        """Waits until the device is cool and idle, as a timed case wants it; records what it was.

        Raises InfraError if it does not become so in the time that the lab's `gate` gives it,
        DeviceHot at once for a case that `may_move`.
        """
        settled = self._held.watch.settle(self._held.lab_device, may_move=may_move)
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
        """Runs a plan in a probe process of its own and judges it; see `Bench.attempt`.

        `probe` is the path of another probe than the one that each device gets.
        """
        self._asked = True
        self._forget_said()
        started = time.monotonic()
        with self._current_folder() as folder:
            run = run_plan(
                self.device.transport,
                probe or self.target.probe,
                plan,
                env=self.runtime.environment | dict(environment or {}),
                cwd=folder,
                timeout_s=timeout_s,
                first=self.same_device,
                on_start=self._keep_plan,
                on_hang=self._evidence.look,
            )
        self.notes.probe_us += run.transcript.elapsed_us or int(
            (time.monotonic() - started) * 1_000_000
        )
        return self.judged(run, plan_kept=bool(run.raw_events))

    def judged(self, run: ProbeRun, *, plan_kept: bool = False) -> Observation:
        """Keeps what a process said, and judges it. Raises NoVerdict where the lab failed."""
        if not plan_kept:
            self._keep_plan(run.plan)
        self._keep("jsonl", run.raw_events)
        self._keep("stderr", run.stderr)
        level = run.plan.settings.log_level
        rounds = max((int(one.fields.get("repeat", 1)) for one in run.plan.steps), default=1)
        around = {"log_level": level, "rounds": rounds}
        self.notes.surroundings = around | self._surroundings
        said = self._said()
        self.notes.said += [one for one in said if one not in self.notes.said]
        verdict = judge(run, self.device.facts.coprocessors, foreseen=self.foreseen, said=said)
        # whoever counts how much succeeds must not take an emulator's limit for the target's
        if verdict.cause == "infra" or any(one.kind == "emulator" for one in said):
            self.notes.came_to(verdict)
            raise NotPassed.of(verdict)
        self.notes.executions += executions(run.plan, run.transcript)
        if verdict.outcome == "passed" and (why := disagreement(self.notes.executions)):
            error = ErrorRecord.of(api="QnnGraph_execute", message=why)
            verdict = Verdict("failed", "target", error)
        return Observation(run, verdict, Figures(measure(run.transcript)))

    def _forget_said(self) -> None:
        if self.device.simulated_dsp is not None:
            with disk_errors("cannot begin with what the DSP says"):
                forget_said(self.device.simulated_dsp)
            self._logged = log_size(self.device.simulated_dsp)

    def _said(self) -> tuple[Said, ...]:
        if self.device.simulated_dsp is None:
            return ()
        with disk_errors("cannot read what the DSP said"):
            return read_said(self.device.simulated_dsp, self._logged)

    @contextlib.contextmanager
    def _current_folder(self) -> Iterator[str]:
        """The folder a probe runs in: the GPU backend leaves its maker's kernel sources there."""
        if self.placement.backend != "gpu":
            yield self.runtime.root
            return
        with self.scratch() as folder:
            yield folder

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder on the device for what a plan writes; it is gone afterwards.

        Raises DeviceError if it cannot be made. What a run that was killed left behind goes after
        a day; a run's simulated devices go with it.
        """
        base = f"{self.device.workdir}/scratch"
        folder = f"{base}/{secrets.token_hex(8)}"
        old = f"find {shlex.quote(base)} -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {{}} +"
        made = self.device.transport.shell(
            f"mkdir -p {shlex.quote(folder)} && {{ {old}; :; }}",
            timeout_s=_SCRATCH_S,
            doing="make a folder",
        )
        if made.exit_code != 0:
            raise DeviceRefused(
                "cannot make a folder for what the case writes",
                serial=self.device.transport.serial,
                command=f"mkdir -p {folder}",
                output=made.stderr,
            )
        try:
            yield folder
        finally:
            with contextlib.suppress(InfraError):
                self.device.transport.shell(f"rm -rf {shlex.quote(folder)}", timeout_s=_SCRATCH_S)

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        """A file of the device, as `Bench.fetch`."""
        with scratch_folder() as folder:
            local = folder / "fetched"
            self.device.transport.pull(remote, local, timeout_s=_FETCH_S, max_bytes=max_bytes)
            return local.read_bytes()

    def lost_lease(self) -> LeaseLost | None:
        """Why nothing of this case may count: somebody else may have used the device meanwhile."""
        try:
            self._held.lab_device.require_held()
        except LeaseLost as lost:
            return lost
        return None

    def collect_evidence(self) -> tuple[str, ...]:
        """Asks the device what it has to say about this case, once it has gone wrong.

        Gives the lines of its logs. Never raises because of the device: what could not be had is
        noted in evidence.json.
        """
        folder = self._log_folder / _EVIDENCE
        collected = self._evidence.collect(folder, deadline=Deadline(_EVIDENCE_S))
        self.notes.logs += [f"{_EVIDENCE}/{name}" for name in collected.files]
        if collected.baseline is not None:
            self._held.baseline = collected.baseline  # the next case is not told of it
        return telling_lines(folder, collected.files)

    def _keep_plan(self, plan: Plan) -> None:
        """Writes down what a probe was told: while it works, which costs no time."""
        self._runs += 1
        self._keep("plan", plan.text().encode())

    def _keep(self, ending: str, content: bytes) -> None:
        """Writes down what a probe was told or answered, for whoever looks into the case.

        Without secrets, whoever said them.
        """
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
