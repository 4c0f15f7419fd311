"""The `bench` fixture of a test: a prepared device, and the means to record results."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from harness.bench.case_placement import Placement
from harness.bench.case_session import CaseSession, Observation, TargetFailure
from harness.bench.exception_attribution import require
from harness.bench.kept_outputs import keep_outputs_of
from harness.bench.ort_on_device import OrtOnDevice, ort_on_device
from harness.containers.graph_partitions import CPU, NPU, Placed, place_row
from harness.core.context_options import any_of, checked_options
from harness.core.engine import CASE_TIMEOUT_S, ENGINES, Engine, FileRun
from harness.core.errors import ConfigError
from harness.core.matrix_axes import BACKEND_LIBRARIES
from harness.core.versions import QnnVersion, VersionRange
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.refused_nodes import RefusedNode, messages_of, refusal_text, refused_nodes
from harness.diagnosis.verdict import Verdict
from harness.lab.lab_device import AttachedDevice
from harness.models.builtin_models import Model
from harness.models.compiler import CompileError
from harness.models.context_file import AnyPath, resolve_paths
from harness.models.contexts import Source
from harness.models.onnx_model import OnnxModel, OnnxNodes
from harness.models.session_plan import (
    RESIDENCIES,
    DeployedContext,
    DeployedModel,
    Libraries,
    Reference,
    Schedule,
    add_context_facts,
    graph_of,
    schedule,
    session_plan,
)
from harness.probe.plan import DEFAULT_WINDOW, ONCE, Plan, Rounds, Settings
from harness.results.output_drift import KEPT
from harness.results.probe_figures import graph_figures
from harness.results.record import Check, as_json, conclusion, failure_text
from harness.transport.shell import Completed

_HINT: Final = (
    "by default no node may run on the CPU; `--fallback=allow`, or `fallback=True` in a test of "
    "your own, lets these run there, and the record lists them"
)
NO_FALLBACK: Final = re.compile(
    r"This session contains graph nodes that are assigned to the default"
)


def refusals(model: OnnxNodes, refused: list[RefusedNode], on: str) -> dict[str, object]:
    """Return the nodes of a model as figures when all that is known is which were refused."""
    default = "the provider gives no reason"
    reason_of = {(node.name, node.op_type): node.reason or default for node in refused}
    reasons = [
        (node, f"it is in a subgraph of {node.parent}" if node.parent else reason_of.get(node.key))
        for node in model.nodes
    ]
    # the partitions that the provider would have made are not known
    rows = [
        place_row(Placed(node, CPU if reason else on, None, reason)) for node, reason in reasons
    ]
    return {"nodes": rows} if refused else {}


def refused_words(refused: Iterable[RefusedNode], model: OnnxNodes, hint: str = _HINT) -> str:
    """Describe refused nodes by their names in the model; `hint` says what to do."""
    named = []
    for refusal in refused:
        same = [node.name for node in model.nodes if node.key == (refusal.name, refusal.op_type)]
        named.append(replace(refusal, name=same[0]) if len(same) == 1 else refusal)
    return refusal_text(named, model.shapes(), hint)


def refused_compile(
    case: CaseSession, error: CompileError, sources: Iterable[Source]
) -> TargetFailure:
    """Return the failure for a model that the compiler refused; record nodes that caused it."""
    case.notes.makers += filter(None, [case.placement.compiler])
    refused = refused_nodes(messages_of(error.output))
    models = [*{source.path for source in sources if isinstance(source, OnnxModel)}]
    if not refused or not any(NO_FALLBACK.search(line) for line in error.chain):
        return TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=str(error))))
    model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
    words = refused_words(refused, model)
    summary = str(error).partition(": ")[0]
    case.notes.measurements.update(refusals(model, refused, NPU))
    plain = ErrorRecord.of(message=f"{words}\n{summary}")
    return TargetFailure(Verdict("failed", "target", plain))


_SYSTEM = "libQnnSystem.so"


class Bench:
    """A device with a runtime on it, for one case.

    `placement` names both; `run` runs a plan in a new process there. Figures passed to `measure`
    go into the case's record.
    """

    def __init__(self, case: CaseSession) -> None:
        self.case = case

    @property
    def placement(self) -> Placement:
        """The device, backend, engine and versions of the case."""
        return self.case.placement

    @property
    def device(self) -> AttachedDevice:
        """The device; `device.transport` runs commands there and moves files."""
        return self.case.device

    def qnn_in(self, versions: str) -> bool:
        """Return whether the runtime's QNN is in a range such as ">=2.49,<2.51".

        Raises ConfigError for anything else than a range.
        """
        return QnnVersion.parse(self.placement.qnn_version) in VersionRange.parse(versions)

    def with_qnn(self, qnn: str) -> Bench:
        """Return a bench for this device with another QNN version, for preparatory work."""
        return Bench(self.case.with_qnn(qnn))

    def measure(self, **figures: object) -> None:
        """Add figures to the record's `measurements`; units belong in the names.

        Raises ConfigError for a value that JSON cannot represent.
        """
        for name, figure in figures.items():
            try:
                as_json(figure)
            except ValueError as error:
                raise ConfigError(str(error), field=f"measure({name}=...)") from error
        self.case.notes.measurements.update(figures)

    def conclude(self, text: str) -> None:
        """Set the conclusion of the case, a text that is shown at the end of the run."""
        require(str, text)
        self.case.notes.conclusion = text

    def check(self, *checks: Check) -> None:
        """Record checks without failing; `expect` also fails the case for a broken one."""
        require(Check, *checks)
        self.case.notes.checks += checks

    def expect(self, *checks: Check) -> None:
        """Record checks and make them the conclusion.

        Raises TargetFailure, naming the broken checks, if there are any.
        """
        self.check(*checks)
        self.conclude(conclusion(self.case.notes.checks))
        problem = failure_text(checks)
        if problem:
            raise TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=problem)))

    def accept_refusal(self) -> None:
        """Accept the refusal of the last plan as correct. Raises ConfigError without a refusal."""
        self.case.notes.accept_refusal()

    def outputs_compared(self) -> None:
        """Record that the case itself has compared outputs with a reference."""
        self.case.notes.outputs_compared = True

    def grid(self, rows: str, columns: str) -> None:
        """Show the cases of this test as a grid of two axes, such as compiler and qnn."""
        require(str, rows, columns)
        self.case.notes.grid = rows, columns

    def contexts(self, *sources: Source) -> list[DeployedContext]:
        """Deploy the context binaries of these sources; models are compiled first.

        Raises TargetFailure if the compiler, which is under test too, refuses a model. The outcome
        is `unsupported` for contexts of another backend, since models are compiled for HTP only.
        Raises ConfigError for a missing or invalid file, and for an argument of another type.
        """
        for source in sources:
            if not isinstance(source, Source):
                raise ConfigError(f"expected Model(...) or ContextFile(...), got {source!r}")
        backend = self.placement.backend
        if backend != "htp" and any(source.compiled for source in sources):
            self._refuse_contexts("contexts are compiled for HTP")
        resolved = [source.seen_from(self.case.folder) for source in sources]
        try:
            deployed = self.case.prepared.contexts(resolved)
        except CompileError as error:
            raise refused_compile(self.case, error, resolved) from error
        contexts = [deployed[source].context for source in resolved]
        self.case.notes.makers += [context.made_by for context in contexts if context.made_by]
        if files := [context for context in contexts if not context.source.compiled]:
            earlier: Any = self.case.notes.measurements.get("context_files", {})
            self.measure(context_files=add_context_facts(earlier, files))
        for context in contexts:
            if context.backend not in (None, backend):
                self._refuse_contexts(f"{context.source} is a context for {context.backend}")
        return [deployed[source] for source in resolved]

    def _refuse_contexts(self, reason: str) -> NoReturn:
        """Raise TargetFailure: the case's backend cannot read these contexts."""
        self.libraries()
        reason = f"{reason}; the {self.placement.backend} backend cannot load them"
        raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=reason)))

    def ort(self) -> OrtOnDevice:
        """Return the placement's ONNX Runtime on the device.

        Raises ConfigError unless the test is marked `device(engine="ort")`, and TargetFailure like
        `libraries`.
        """
        backend = self.placement.backend
        self._require_engine(lambda engine: engine.takes_models)
        arch = self.case.prepared.htp_arch if backend == "htp" else None
        with self.case.require_backend():
            return ort_on_device(
                self.case.runtime, BACKEND_LIBRARIES[backend], arch, self.placement.power
            )

    def _require_engine(self, fits: Callable[[Engine], bool]) -> Engine:
        engine = ENGINES[self.placement.engine]
        if not fits(engine):
            fitting = next(filter(fits, ENGINES.values()))
            marker = f'`@pytest.mark.device(engine="{fitting.name}")`'
            raise ConfigError(f"a test that uses {fitting.title} needs the marker {marker}")
        return engine

    def session(
        self,
        model: AnyPath,
        *,
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        expected: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        repeat: int | Rounds = 1,
        timeout_s: float = CASE_TIMEOUT_S,
        fallback: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Observation:
        """Create an ONNX Runtime session of an .onnx file, with or without EPContext nodes.

        `inputs` and `expected` are as for `executorch`. Without them a plain model with a
        `tolerance` is compared with ORT on the CPU. With `fallback` the CPU runs what QNN refuses.
        `options` are context options by name, for which the provider has options of its own.
        The keys of the measurements are listed at `Observation`. Otherwise like `run`.

        Raises ConfigError like `ort`, and for a file that ONNX Runtime cannot load.
        """
        named = checked_options(options or {})
        more = {"tolerance": tolerance, "fallback": fallback, "context_options": named}
        return self._run_file("session", model, inputs, expected, repeat, timeout_s, **more)

    def executorch(
        self,
        program: AnyPath,
        *,
        method: str = "forward",
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        expected: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        repeat: int | Rounds = 1,
        timeout_s: float = CASE_TIMEOUT_S,
    ) -> Observation:
        """Load a .pte with ExecuTorch in a process of its own, execute it and judge the result.

        `inputs` and `expected` are a folder or files, raw or .npy, one for each tensor. Without
        `inputs` they are generated, the same each time. Without `expected` the runs are only
        compared with each other. If it fails, its contexts are run without ExecuTorch, and the
        record has the result. Otherwise like `run`.

        Raises ConfigError unless the test is marked `device(engine="executorch")`, for a file that
        is not a .pte, and for a device for which ExecuTorch's wheel has no libraries.
        """
        options = {"tolerance": tolerance, "graph": method}
        return self._run_file("executorch", program, inputs, expected, repeat, timeout_s, **options)

    def _run_file(
        self,
        method: str,
        path: AnyPath,
        inputs: AnyPath | Sequence[AnyPath] | None,
        expected: AnyPath | Sequence[AnyPath] | None,
        rounds: int | Rounds,
        timeout_s: float = CASE_TIMEOUT_S,
        **options: Any,
    ) -> Observation:
        engine = self._require_engine(lambda engine: engine.method == method)
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"expected the path of a file, got {path!r:.60}")
        folder = self.case.folder
        files = resolve_paths(inputs, folder), resolve_paths(expected, folder)
        run = FileRun(folder / path, *files, rounds=rounds, timeout_s=timeout_s, **options)
        return cast("Observation", engine.run(self, run))

    def model(self, model: Model) -> DeployedModel:
        """Deploy a model's ONNX file with its inputs and expected outputs."""
        (deployed,) = self.case.prepared.models([model])
        return deployed

    def reference(self, model: Model) -> Reference:
        """Return a model's inputs and expected outputs, as files on this computer."""
        return self.case.prepared.references([model])[model]

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        """Return the content of a file on the device. Raises DeviceError, also if it is larger."""
        return self.case.fetch(remote, max_bytes=max_bytes)

    def run(self, plan: Plan, *, timeout_s: float = CASE_TIMEOUT_S) -> Observation:
        """Run a plan in a probe process of its own and judge it.

        The verdict and the figures go into the case's record. Raises DeviceError or NoVerdict if
        the lab failed; to raise if the target failed, call `check` of the result.
        """
        observation = self.attempt(plan, timeout_s=timeout_s)
        self.case.notes.set_verdict(observation.verdict)
        self.measure(**observation.measurements)
        return observation

    def attempt(
        self,
        plan: Plan,
        *,
        timeout_s: float = CASE_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> Observation:
        """Run a plan like `run`, but leave the case's verdict and figures alone.

        `environment` is added to that of the runtime. Raises NoVerdict if the lab failed,
        so that this is not taken for an answer of the target.
        """
        require(Plan, plan)
        return self.case.run(plan, timeout_s, environment)

    def resident(
        self,
        contexts: Source | Sequence[Source],
        number: int | None = None,
        *,
        options: Mapping[str, object] | None = None,
    ) -> Observation:
        """Load `number` contexts, taken in turn, then execute all of them, then free them.

        Without a number each is loaded once, as in `run_contexts`.
        """
        return self.run_contexts(contexts, number, "resident", options=options)

    def run_contexts(
        self,
        contexts: Source | Sequence[Source],
        number: int | None,
        residency: str,
        *,
        window: int = DEFAULT_WINDOW,
        keep_outputs: bool = False,
        rounds: Rounds = ONCE,
        options: Mapping[str, object] | None = None,
    ) -> Observation:
        """Run contexts with a residency: `resident`, `sequential` or `window`.

        With `keep_outputs` the run keeps the outputs of each context, so that its report can
        compare them with those of other versions. `options` are context options by name, as in
        `{"reused_io_limit_mb": 64}`; one that the target does not support makes the case
        `unsupported`. Raises ConfigError for another residency, and for options that are not valid.
        """
        if residency not in RESIDENCIES:
            raise ConfigError(f"no residency {residency!r}", field="residency", choices=RESIDENCIES)
        require(int, *([] if number is None else [number]), window)
        options = self._checked(options, residency)
        # a string is a mistake: the error quotes all of it instead of its first letter
        is_single = isinstance(contexts, str) or not isinstance(contexts, Sequence)
        sources = cast("Sequence[Source]", [contexts] if is_single else contexts)
        deployed = self.contexts(*sources)
        steps = schedule(len(deployed) if number is None else number, residency, window)
        with self.scratch() if keep_outputs else contextlib.nullcontext() as folder:
            plan = session_plan(
                self.libraries(), deployed, steps, save_below=folder, rounds=rounds, options=options
            )
            result = self.run(plan, timeout_s=rounds.timeout_s)
            if folder is None:
                return result
            transcript, run_folder = result.run.transcript, self.case.run_folder
            figures, kept = keep_outputs_of(deployed, transcript, folder, self.fetch, run_folder)
        self.measure(**{KEPT: figures})
        result = replace(result, kept=kept)
        names = [each.model if isinstance(each, OnnxModel) else str(each) for each in sources]
        self.note_graphs(result, names)
        error = result.verdict.error
        step = None if error is None or error.step is None else plan.steps[error.step]
        if step is not None and (graph := graph_of(deployed, step)):
            self.conclude(f"graph {graph} failed")
        return result

    def _checked(
        self, options: Mapping[str, object] | None, residency: str
    ) -> Mapping[str, object]:
        """Check and record context options. Raises ConfigError."""
        if not options:
            return {}
        options = checked_options(options)
        if any_of(options, "group") and residency != "resident":
            problem = f"contexts of a group must be resident, not {residency}"
            raise ConfigError(problem, field="residency", choices=["resident"])
        if any_of(options, "group") and any_of(options, "list"):
            raise ConfigError("contexts are in a group or in a list, not in both", field="options")
        self.measure(context_options=options)
        return options

    def note_graphs(self, result: Observation, names: Sequence[str], on: str | None = None) -> None:
        """Record the times of each graph that an observation has; `on` is what executed them."""
        steps = result.run.transcript.steps
        self.measure(graphs=graph_figures(steps, names, on or self.case.executes_on))

    def context_plan(
        self,
        contexts: Sequence[DeployedContext],
        steps: Schedule,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        options: Mapping[str, object] | None = None,
    ) -> Plan:
        """Return the plan for a schedule over these contexts, taken in turn.

        `options` are context options by name, as for `run_contexts`.
        """
        return session_plan(self.libraries(), contexts, steps, settings, options=options)

    def libraries(self) -> Libraries:
        """Return the paths of libQnnSystem and the backend's library on the device.

        Raises TargetFailure with the outcome `unsupported` if the runtime lacks them; ONNX Runtime
        on the CPU backend does without libQnnSystem.
        """
        names = {file.path.name for file in self.case.runtime.runtime.files}
        without = self.placement.takes_models and _SYSTEM not in names
        with self.case.require_backend():
            return Libraries(
                backend=self.case.runtime.library(BACKEND_LIBRARIES[self.placement.backend]),
                system=None if without else self.case.runtime.library(_SYSTEM),
            )

    def deploy(self, files: Mapping[str, Path], programs: Collection[str] = ()) -> str:
        """Deploy files by the names they get on the device; return the path of their folder.

        Files that are there already are not pushed again. `programs` are names of executable files.
        """
        return self.case.prepared.provisioned.deployer.deploy_files("files", files, programs)

    def shell(self, script: str, *, timeout_s: float = CASE_TIMEOUT_S) -> Completed:
        """Run a shell script on the device, in an environment with the runtime's libraries.

        Its exit code gives no verdict; use `expect`. Raises DeviceError, also at the deadline.
        """
        environment = self.case.runtime.environment.items()
        exports = "".join(f"export {name}={shlex.quote(text)};" for name, text in environment)
        script = f"{self.case.device_check}{exports}{script}"
        return self.device.transport.shell(script, timeout_s=timeout_s, doing="run a test's script")

    def scratch(self) -> contextlib.AbstractContextManager[str]:
        """Create a temporary folder on the device for files of a plan. Raises DeviceError."""
        return self.case.scratch()
