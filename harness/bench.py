"""What a test holds in its hand: a device made ready, and a way to say what was found out."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.adb.deadline import Deadline
from harness.adb.evidence import CaseEvidence, telling_lines
from harness.contexts.budget import Fit, Limit, SizePoint, Trial, conclude, largest_that_fits
from harness.contexts.compile import Reference
from harness.contexts.compiler import CompileError
from harness.contexts.models import ModelSpec
from harness.contexts.schedule import RESIDENCIES, Schedule, schedule
from harness.contexts.session_plan import (
    DeployedContext,
    DeployedModel,
    Libraries,
    session_plan,
)
from harness.errors import ConfigError, DeviceRefused, InfraError
from harness.lab.attach import AttachedDevice
from harness.ort_bench import OrtOnDevice, ort_on_device
from harness.probe.plan import Plan, Settings
from harness.probe.run import ProbeRun, run_plan
from harness.qnn.backends import BACKEND_LIBRARIES
from harness.results.checks import Check
from harness.results.grid import GRID
from harness.results.measurements import context_estimate, measure
from harness.results.record import ErrorRecord
from harness.results.summary import CONCLUSION
from harness.results.verdict import Verdict, judge
from harness.runtimes.findings import Finding
from harness.runtimes.runtime import LibraryMissing
from harness.workbench import Placement, Workbench

_CASE_TIMEOUT_S = 300.0
_EVIDENCE_S = 20.0
_SCRATCH_S = 20.0
_FETCH_S = 60.0
_EVIDENCE = "evidence"
_SYSTEM = "libQnnSystem.so"
_NO_MEMORY = Settings(memory="off")


class TargetFailure(AssertionError):
    """The target did not do what the case demands; carries the verdict for the record."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.explanation())


@contextlib.contextmanager
def _has_backend() -> Iterator[None]:
    """A runtime without a backend's library does not support that backend."""
    try:
        yield
    except LibraryMissing as error:
        missing = ErrorRecord.of(api=None, code=None, message=str(error))
        raise TargetFailure(Verdict("unsupported", None, missing)) from error


@dataclass(frozen=True)
class Observation:
    """One probe process: what it did, what that means, and the figures it gave."""

    run: ProbeRun
    verdict: Verdict
    measurements: dict[str, object]

    def check(self) -> None:
        """Raises TargetFailure unless everything in the plan succeeded."""
        if self.verdict.outcome != "passed":
            raise TargetFailure(self.verdict)


@dataclass
class Notes:
    """What a case has found out so far; becomes part of its record."""

    measurements: dict[str, object] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    verdict: Verdict | None = None
    probe_us: int = 0
    logs: list[str] = field(default_factory=list)
    runtime: Mapping[str, object] | None = None
    preflight: tuple[Finding, ...] = ()


class Bench:
    """A device with a runtime on it, for one case.

    Placement tells which; `run` runs a plan in a fresh process there. Whatever is passed to
    `measure` ends in the case's record.
    """

    def __init__(self, workbench: Workbench, placement: Placement, log_folder: Path) -> None:
        self.placement = placement
        self.notes = Notes()
        self._workbench = workbench
        self._log_folder = log_folder
        self._runs = 0
        self.device: AttachedDevice = workbench.device(placement.device)
        self._runtime, self._probe = workbench.deploy_runtime(placement)
        self.notes.runtime = workbench.runtime_identity(placement)
        self.notes.preflight = workbench.findings(placement)
        self._evidence = CaseEvidence(self.device.adb, workbench.baselines.of(placement.device))

    def measure(self, **figures: object) -> None:
        """Adds figures to the record's `measurements`; units belong in the names."""
        self.notes.measurements.update(figures)

    def conclude(self, text: str) -> None:
        """Says in words what the case found out; shown at the end of the run."""
        self.measure(**{CONCLUSION: text})

    def grid(self, rows: str, columns: str) -> None:
        """Has the cases of this test shown as a grid of two axes, such as compiler and qnn."""
        self.measure(**{GRID: [rows, columns]})

    def settle(self) -> None:
        """Waits until the device is cool and idle, as a timed case wants it; records what it was.

        Raises InfraError if it does not become so in the time that the lab's `gate` gives it.
        """
        settled = self._workbench.settle(self.placement.device)
        if settled:
            self.measure(gate=settled)

    def contexts(self, *models: ModelSpec) -> list[DeployedContext]:
        """The models' context binaries, compiled for this placement and put on the device.

        Raises TargetFailure if the compiler does not make one: it is software under test, too.
        """
        taken = {"contexts_by": self.placement.compiler} if models else {}
        self.notes.runtime = {**(self.notes.runtime or {}), **taken}
        try:
            deployed = self._workbench.deploy_contexts(self.placement, models)
        except CompileError as error:
            refusal = ErrorRecord.of(api=None, code=None, message=str(error))
            raise TargetFailure(Verdict("failed", "target", refusal)) from error
        return [deployed[model] for model in models]

    def ort(self) -> OrtOnDevice:
        """The ONNX Runtime of the placement, on the device.

        Raises ConfigError unless the test is marked `device(engine="ort")`, and TargetFailure as
        `libraries`.
        """
        backend = self.placement.backend
        if self.placement.engine != "ort":
            raise ConfigError(
                'a test that uses ONNX Runtime is marked `@pytest.mark.device(engine="ort")`'
            )
        arch = self._workbench.htp_arch(self.placement.device) if backend == "htp" else None
        with _has_backend():
            return ort_on_device(self._runtime, BACKEND_LIBRARIES[backend], arch)

    def model(self, model: ModelSpec) -> DeployedModel:
        """A model's ONNX file on the device, with inputs and expected outputs."""
        (deployed,) = self._workbench.deploy_models(self.placement, [model])
        return deployed

    def reference(self, model: ModelSpec) -> Reference:
        """A model's inputs and expected outputs on this host."""
        return self._workbench.reference(self.placement, model)

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        """What a plan wrote into a file on the device. Raises DeviceError, also if it is larger."""
        with tempfile.TemporaryDirectory(prefix="qnn-harness-") as folder:
            local = Path(folder) / "fetched"
            self.device.adb.pull(remote, local, timeout_s=_FETCH_S, max_bytes=max_bytes)
            return local.read_bytes()

    def run(self, plan: Plan, *, timeout_s: float = _CASE_TIMEOUT_S) -> Observation:
        """Runs a plan in a probe process of its own and judges it.

        The observation becomes the case's own: its verdict and figures go into the record.
        Raises DeviceError if the lab failed on the way; a failing target raises nothing here.
        """
        observation = self.attempt(plan, timeout_s=timeout_s)
        self.notes.verdict = observation.verdict
        self.measure(**observation.measurements)
        return observation

    def attempt(self, plan: Plan, *, timeout_s: float = _CASE_TIMEOUT_S) -> Observation:
        """Like `run`, for a process whose failure is an answer and not yet the case's verdict."""
        started = time.monotonic()
        run = run_plan(
            self.device.adb,
            self._probe,
            plan,
            env=self._runtime.environment,
            cwd=self._runtime.root,
            timeout_s=timeout_s,
            first=self._workbench.check_of(self.placement.device),
            on_hang=self._evidence.look,
        )
        self._runs += 1
        self.notes.probe_us += run.transcript.elapsed_us or int(
            (time.monotonic() - started) * 1_000_000
        )
        self._keep(plan, run)
        verdict = judge(run, self.device.facts.coprocessors)
        return Observation(run, verdict, measure(run.transcript))

    def run_contexts(
        self, models: Sequence[ModelSpec], contexts: int, residency: str, *, window: int = 4
    ) -> Observation:
        """Loads, executes and frees `contexts` contexts, taking the models in turn.

        Raises ConfigError for a residency that does not exist.
        """
        if residency not in RESIDENCIES:
            raise ConfigError(f"no residency {residency!r}", field="residency", choices=RESIDENCIES)
        steps = schedule(contexts, residency, window)
        return self.run(self.context_plan(self.contexts(*models), steps))

    def context_plan(
        self,
        contexts: Sequence[DeployedContext],
        steps: Schedule,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> Plan:
        """The plan for a schedule over these contexts, taken in turn."""
        libraries = self.libraries(BACKEND_LIBRARIES[self.placement.backend])
        return session_plan(libraries, contexts, steps, settings)

    def libraries(self, backend: str) -> Libraries:
        """Where the runtime's backend library of this name and libQnnSystem lie on the device.

        Raises TargetFailure with the outcome `unsupported` if the runtime does not have them; ONNX
        Runtime on the CPU backend does without libQnnSystem.
        """
        names = {file.path.name for file in self._runtime.runtime.files}
        without = self.placement.engine == "ort" and _SYSTEM not in names
        with _has_backend():
            return Libraries(
                backend=self._runtime.library(backend),
                system=None if without else self._runtime.library(_SYSTEM),
            )

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder on the device for what a plan writes; it is gone afterwards.

        Raises DeviceError if it cannot be made. What a run that was killed left behind goes after
        a day.
        """
        base = f"{self.device.workdir}/scratch"
        folder = f"{base}/{secrets.token_hex(8)}"
        old = f"find {shlex.quote(base)} -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {{}} +"
        made = self.device.adb.shell(
            f"mkdir -p {shlex.quote(folder)} && {{ {old}; :; }}", timeout_s=_SCRATCH_S
        )
        if made.exit_code != 0:
            raise DeviceRefused(
                "cannot make a folder for what the case writes",
                serial=self.device.adb.serial,
                command=f"mkdir -p {folder}",
                output=made.stderr,
            )
        try:
            yield folder
        finally:
            with contextlib.suppress(InfraError):
                self.device.adb.shell(f"rm -rf {shlex.quote(folder)}", timeout_s=_SCRATCH_S)

    def find_limit(self, models: Sequence[ModelSpec], *, cap: int) -> tuple[Limit, list[SizePoint]]:
        """Finds how many contexts of each model fit at most, and what kind of limit that is.

        Every number is tried in a fresh process. Raises TargetFailure if a process crashes, hangs
        or fails for another reason than a refused load.
        """
        points = [self._size_point(model, cap) for model in models]
        return conclude(points), points

    def _size_point(self, model: ModelSpec, cap: int) -> SizePoint:
        (deployed,) = self.contexts(model)
        estimates: list[int] = []

        def attempt(number: int) -> Trial:
            resident = schedule(number, "resident")
            loads = Schedule(resident.moves[:number], resident.frees)
            observation = self.attempt(self.context_plan([deployed], loads, _NO_MEMORY))
            self._only_refused_loads(observation)
            loaded = int(str(observation.measurements["loaded"]))
            estimates.extend(context_estimate(observation.run.transcript))
            return Trial(ok=loaded == number, loaded=loaded)

        fit: Fit = largest_that_fits(attempt, cap)
        rounds = min(cap, (fit.refused_at or cap) + 2)
        in_turn = schedule(rounds, "sequential")
        moves = tuple(move for move in in_turn.moves if move.verb != "execute")
        turns = Schedule(moves, in_turn.frees)
        turn = self.attempt(self.context_plan([deployed], turns, _NO_MEMORY))
        self._only_refused_loads(turn)
        return SizePoint(
            label=str(model),
            bytes_per_context=max(estimates, default=deployed.context.memory_bytes),
            estimate_source="library" if estimates else "metadata",
            fits=fit.fits,
            refused_at=fit.refused_at,
            sequential_loads=int(str(turn.measurements["loaded"])),
            sequential_tried=rounds,
        )

    def _only_refused_loads(self, observation: Observation) -> None:
        failure = observation.run.transcript.first_failure
        refused = failure is not None and failure.verb == "context-load" and failure.code
        if observation.verdict.outcome != "passed" and not (
            refused and observation.verdict.outcome == "failed"
        ):
            self.notes.verdict = observation.verdict
            raise TargetFailure(observation.verdict)

    def collect_evidence(self) -> tuple[str, ...]:
        """Asks the device what it has to say about this case, once it has gone wrong.

        Gives the lines of its logs. Never raises because of the device: what could not be had is
        noted in evidence.json.
        """
        folder = self._log_folder / _EVIDENCE
        collected = self._evidence.collect(folder, deadline=Deadline(_EVIDENCE_S))
        self.notes.logs += [f"{_EVIDENCE}/{name}" for name in collected.files]
        self._workbench.baselines.keep(self.placement.device, collected.baseline)
        return telling_lines(folder, collected.files)

    def _keep(self, plan: Plan, run: ProbeRun) -> None:
        """Writes down what the probe was told and answered, for whoever looks into the case."""
        stem = "probe" if self._runs == 1 else f"probe-{self._runs}"
        files: Mapping[str, bytes] = {
            f"{stem}.plan": plan.text().encode(),
            f"{stem}.jsonl": run.raw_events,
            f"{stem}.stderr": run.stderr,
        }
        try:
            self._log_folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                if content:
                    (self._log_folder / name).write_bytes(content)
                    self.notes.logs.append(name)
        except OSError as error:
            why = f"cannot keep logs in {self._log_folder}: {error.strerror or error}"
            raise InfraError(why) from error
