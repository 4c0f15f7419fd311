"""The `bench` fixture of a test: a prepared device, and the means to record results."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from harness.bench.case_session import CaseSession, Observation, TargetFailure
from harness.bench.executorch import can_be_replayed, open_program, replay_contexts, run_with
from harness.bench.kept_outputs import keep_outputs_of
from harness.bench.litert import ON_LITERT, compiled_model
from harness.bench.placement import Placement
from harness.bench.provisioner import program_set
from harness.bench.session import (
    SESSION_OUTPUTS,
    OrtOnDevice,
    SessionModel,
    open_session,
    ort_on_device,
    run_and_keep,
)
from harness.bench.wrong_call import require
from harness.containers.graph_nodes import (
    CPU,
    NPU,
    Assigned,
    Placed,
    figures_of,
    is_as_in_file,
    place_row,
    placed_as,
    transfers_in,
)
from harness.core.axes import BACKEND_LIBRARIES
from harness.core.engines import ENGINES
from harness.core.errors import ConfigError, HarnessError, InternalError
from harness.core.versions import QnnVersion, VersionRange
from harness.core.whole_file import scratch_folder
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error import ErrorRecord, signature
from harness.diagnosis.refused_nodes import (
    RefusedNode,
    messages_of,
    refusal_text,
    refused_nodes,
)
from harness.diagnosis.verdict import Verdict
from harness.lab.attach import AttachedDevice
from harness.models.compile import compile_options
from harness.models.compiler import CompileError, CompileJob, run_jobs
from harness.models.context_file import AnyPath, resolve_paths
from harness.models.contexts import Source, require_contexts
from harness.models.models import Model
from harness.models.onnx_model import OnnxModel, OnnxNodes
from harness.models.source import (
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
from harness.probe.ort_plan import CPU_EP
from harness.probe.plan import ONCE, Plan, Rounds, Settings, rounds_of
from harness.results.drift import KEPT
from harness.results.measurements import graph_figures, named_graphs, token_figures
from harness.results.record import Check, as_json, conclusion, failure_text
from harness.runtimes.ort import RUNNER
from harness.transport.shell import Completed

ON: Final[Mapping[str, str]] = {"htp": NPU, "gpu": "GPU", "cpu": CPU}
"""The processor of the nodes that QNN's provider took, by backend."""

_HINT: Final = (
    "`--fallback allow` lets such nodes run on the CPU, and the record tells which; without it "
    "none may"
)
_NO_FALLBACK: Final = re.compile(
    r"This session contains graph nodes that are assigned to the default"
)


def session_figures(
    model: OnnxNodes, assigned: Assigned, refused: list[RefusedNode], on: str
) -> dict[str, object]:
    """Return the nodes of an ORT session as figures of a record.

    `transfers` is null where ORT rewrote the graph, because the file no longer shows them. Without
    a session and without refused nodes there are no figures.
    """
    if not assigned:
        return refusals(model, refused, on)
    reasons = {(n.name, n.op_type): n.reason for n in refused if n.reason is not None}
    placed = placed_as(model.nodes, assigned, reasons)
    figures = figures_of(placed, model.sizes)
    if not is_as_in_file(model.nodes, placed) and len({part for part, _, _ in assigned}) > 1:
        figures["transfers"] = None
    return figures


def refusals(model: OnnxNodes, refused: list[RefusedNode], on: str) -> dict[str, object]:
    """Return the nodes of a model as figures when all that is known is which were refused."""
    default = "the provider names no reason"
    reason_of = {(node.name, node.op_type): node.reason or default for node in refused}
    reasons = [
        (node, f"it lies within {node.parent}" if node.parent else reason_of.get(node.key))
        for node in model.nodes
    ]
    # the partitions that the provider would have made are not known
    rows = [
        place_row(Placed(node, CPU if reason else on, None, reason)) for node, reason in reasons
    ]
    return {"nodes": rows} if refused else {}


def _named(refused: Iterable[RefusedNode], model: OnnxNodes) -> Iterator[RefusedNode]:
    """Give refused nodes the names in the model, where an unnamed one can be identified."""
    for refusal in refused:
        same = [node.name for node in model.nodes if node.key == (refusal.name, refusal.op_type)]
        yield replace(refusal, name=same[0]) if len(same) == 1 else refusal


def _carried(
    case: CaseSession, session: SessionModel, assigned: Assigned, sizes: Mapping[str, int]
) -> object:
    """Return the transfers in the graph as ORT on this computer partitions it, None if it differs.

    The compiler and the HTP are the same, and ORT writes the graph with its partitions.
    """
    target = case.target
    if case.placement.backend != "htp" or not session.models:
        return None
    model = target.provisioner.onnx.path(session.models[0])
    host, options = target.provisioner.catalog.compiler_host(target.compiler), target.htp_arch
    with scratch_folder() as folder:
        job = CompileJob(
            "cut", "it is not cut", model, folder, compile_options(options), fallback=True
        )
        if run_jobs(host, [job])[job.job] is not None:
            return None
        cut = OnnxNodes.of(folder / "context.onnx")
    return transfers_in(cut.nodes, {**sizes, **cut.sizes}, assigned)


def _assigned(parts: object, on: str) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
    """Yield part, processor and nodes (name, type) of a device's report, which may be anything."""
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        match part:
            case {"ep": str(ep), "nodes": list(nodes)}:
                pairs = [n for n in nodes if isinstance(n, list) and [*map(type, n)] == [str, str]]
                named = [(name, op_type) for name, op_type in pairs]
                yield (None, CPU, named) if ep == CPU_EP else (str(index), on, named)


def placed_session(case: CaseSession, session: SessionModel, result: Observation) -> Observation:
    """Record where the nodes of a session ran, or name the refused ones if it was not created.

    ORT's own message only says that CPU fallback is disabled.
    """
    model, steps = OnnxNodes.of(session.path), result.run.transcript.steps
    on = ON[case.placement.backend]
    refused = refused_nodes(line.text for step in steps for line in step.logs)
    placements = [step.data.get("assigned") for step in steps if step.verb == "ort-placement"]
    assigned = [*_assigned(placements[-1], on)] if placements else []
    figures = session_figures(model, assigned, refused, on)
    if assigned and figures["transfers"] is None:
        with contextlib.suppress(HarnessError):
            figures["transfers"] = _carried(case, session, assigned, model.sizes)
    case.notes.measurements.update(figures)
    error = result.verdict.error
    if error is None or not refused or not _NO_FALLBACK.search(error.message):
        return result
    words = refusal_text(_named(refused, model), model.shapes(), _HINT)
    plain = error.model_copy(
        update={
            "message": words,
            "signature": signature(error.api, error.code, words),
            "chain": tuple(link for link in error.chain if not _NO_FALLBACK.search(link.message)),
            "first_cause": None,
            "diagnosis": None,
        }
    )
    verdict = replace(result.verdict, error=diagnosed("failed", plain, foreseen=case.foreseen))
    case.notes.set_verdict(verdict)
    return replace(result, verdict=verdict)


def refused_compile(
    case: CaseSession, error: CompileError, sources: Iterable[Source]
) -> TargetFailure:
    """Return the failure for a model that the compiler refused; record nodes that caused it."""
    case.notes.makers += filter(None, [case.placement.compiler])
    refused = refused_nodes(messages_of(error.output))
    models = [*{source.path for source in sources if isinstance(source, OnnxModel)}]
    if not refused or not any(_NO_FALLBACK.search(line) for line in error.chain):
        return TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=str(error))))
    model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
    words = refusal_text(_named(refused, model), model.shapes(), _HINT)
    summary = str(error).partition(": ")[0]
    case.notes.measurements.update(refusals(model, refused, NPU))
    plain = ErrorRecord.of(message=f"{words}\n{summary}")
    return TargetFailure(Verdict("failed", "target", plain))


_CASE_TIMEOUT_S = 300.0
_SYSTEM = "libQnnSystem.so"


class Bench:
    """A device with a runtime on it, for one case.

    `placement` says which; `run` runs a plan in a new process there. Figures passed to `measure`
    go into the case's record.
    """

    def __init__(self, case: CaseSession) -> None:
        self._case = case
        self._target = case.target

    @property
    def placement(self) -> Placement:
        """The device, backend, engine and versions of the case."""
        return self._case.placement

    @property
    def device(self) -> AttachedDevice:
        """The device; `device.transport` runs commands there and moves files."""
        return self._case.device

    def qnn_in(self, versions: str) -> bool:
        """Return whether the runtime's QNN is in a range such as ">=2.49,<2.51".

        Raises ConfigError for anything else than a range.
        """
        return QnnVersion.parse(self.placement.qnn_version) in VersionRange.parse(versions)

    def beside(self, qnn: str) -> Bench:
        """Return a bench for this device with another QNN version, for preparatory work."""
        return Bench(self._case.with_qnn(qnn))

    def measure(self, **figures: object) -> None:
        """Add figures to the record's `measurements`; units belong in the names.

        Raises ConfigError for a value that JSON cannot represent.
        """
        for name, figure in figures.items():
            try:
                as_json(figure)
            except ValueError as error:
                raise ConfigError(str(error), field=f"measure({name}=...)") from error
        self._case.notes.measurements.update(figures)

    def conclude(self, text: str) -> None:
        """Set the conclusion of the case, a text that is shown at the end of the run."""
        require(str, text)
        self._case.notes.conclusion = text

    def check(self, *checks: Check) -> None:
        """Record checks without failing; `expect` also fails the case for a broken one."""
        require(Check, *checks)
        self._case.notes.checks += checks

    def expect(self, *checks: Check) -> None:
        """Record checks and make them the conclusion.

        Raises TargetFailure, naming the broken checks, if there are any.
        """
        self.check(*checks)
        self.conclude(conclusion(self._case.notes.checks))
        problem = failure_text(checks)
        if problem:
            error = ErrorRecord.of(message=problem)
            raise TargetFailure(Verdict("failed", "target", error))

    def accept_refusal(self) -> None:
        """Accept the refusal of the last plan as correct. Raises ConfigError without a refusal."""
        self._case.notes.accept_refusal()

    def outputs_compared(self) -> None:
        """Record that the case itself has compared outputs with a reference."""
        self._case.notes.outputs_compared = True

    def grid(self, rows: str, columns: str) -> None:
        """Show the cases of this test as a grid of two axes, such as compiler and qnn."""
        require(str, rows, columns)
        self._case.notes.grid = rows, columns

    def contexts(self, *sources: Source) -> list[DeployedContext]:
        """Deploy the context binaries of these sources; models are compiled first.

        Raises TargetFailure if the compiler, which is under test too, refuses a model. The outcome
        is `unsupported` for contexts of another backend, since models are compiled for HTP only.
        Raises ConfigError for a missing or invalid file, and for an argument of another type.
        """
        for source in sources:
            if not isinstance(source, Source):
                problem = f"expected Model(...) or ContextFile(...), got {source!r}"
                raise ConfigError(problem)
        backend = self.placement.backend
        if backend != "htp" and any(source.compiled for source in sources):
            self._refuse_contexts("contexts are compiled for HTP")
        resolved = [source.seen_from(self._case.folder) for source in sources]
        try:
            deployed = self._target.contexts(resolved)
        except CompileError as error:
            raise refused_compile(self._case, error, resolved) from error
        contexts = [deployed[source].context for source in resolved]
        self._case.notes.makers += [context.made_by for context in contexts if context.made_by]
        if files := [context for context in contexts if not context.source.compiled]:
            earlier: Any = self._case.notes.measurements.get("context_files", {})
            self.measure(context_files=add_context_facts(earlier, files))
        for context in contexts:
            if context.backend not in (None, backend):
                self._refuse_contexts(f"{context.source} is a context for {context.backend}")
        return [deployed[source] for source in resolved]

    def _refuse_contexts(self, reason: str) -> NoReturn:
        """Raise TargetFailure: the case's backend cannot read these contexts."""
        self.libraries()
        reason = f"{reason}, and the {self.placement.backend} backend reads none of them"
        raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=reason)))

    def ort(self) -> OrtOnDevice:
        """Return the placement's ONNX Runtime on the device.

        Raises ConfigError unless the test is marked `device(engine="ort")`, and TargetFailure like
        `libraries`.
        """
        backend = self.placement.backend
        self._require_engine("ort")
        arch = self._target.htp_arch if backend == "htp" else None
        with self._case.require_backend():
            return ort_on_device(self._case.runtime, BACKEND_LIBRARIES[backend], arch)

    def _require_engine(self, name: str) -> None:
        if self.placement.engine != name:
            marker = f'`@pytest.mark.device(engine="{name}")`'
            raise ConfigError(f"a test that uses {ENGINES[name].title} is marked {marker}")

    def session(
        self,
        model: AnyPath,
        *,
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        expected: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        repeat: int | Rounds = 1,
        timeout_s: float = _CASE_TIMEOUT_S,
        fallback: bool = False,
    ) -> Observation:
        """Create an ONNX Runtime session of an .onnx file, with or without EPContext nodes.

        `inputs` and `expected` are as for `executorch`. Without them a plain model with a
        `tolerance` is compared with ORT on the CPU. With `fallback` the CPU runs what QNN refuses.
        The keys of the measurements are listed at `Observation`. Otherwise like `run`.

        Raises ConfigError like `ort`, and for a file that ONNX Runtime cannot load.
        """
        ort = self.ort()
        case, deployer = self._case, self._target.provisioned.deployer
        inputs, expected = resolve_paths(inputs, case.folder), resolve_paths(expected, case.folder)
        session = open_session(case.folder / model, tolerance, inputs, expected, fallback)
        files = session.files(inputs, expected)
        folder = deployer.deploy_files(session.path.name, files) if files else ""
        known = self._target.models(session.models)
        case.notes.makers += self._target.builds(session.sources)
        deployed = session.deployed(known, folder, files, tolerance)
        plan = session.plan(ort, deployed, rounds_of(repeat))
        outputs = session.outputs_to_keep(files, self.reference)
        result = run_and_keep(case, partial(self.run, timeout_s=timeout_s), plan, outputs)
        if names := {each.name: each.file.name for each in result.kept if each.file is not None}:
            self.measure(**{SESSION_OUTPUTS: names})
        self._note_graphs(result, [session.path.name])
        return placed_session(case, session, result)

    def executorch(
        self,
        program: AnyPath,
        *,
        method: str = "forward",
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        expected: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        repeat: int | Rounds = 1,
        timeout_s: float = _CASE_TIMEOUT_S,
    ) -> Observation:
        """Load a .pte with ExecuTorch in a process of its own, execute it and judge the result.

        `inputs` and `expected` are a folder or files, raw or .npy, one for each tensor. Without
        `inputs` they are generated, the same each time. Without `expected` the runs are only
        compared with each other. If it fails, its contexts are run without ExecuTorch, and the
        record names the component at fault. Otherwise like `run`.

        Raises ConfigError unless the test is marked `device(engine="executorch")`, for a file that
        is not a .pte, and for a device for which ExecuTorch's wheel has no libraries.
        """
        self._require_engine("executorch")
        pte = open_program(self._case.folder / program, method)
        runner = self._target.program
        if runner is None:
            raise InternalError("ExecuTorch brings no program")
        is_own, deployer = runner.program == RUNNER, self._target.provisioned.deployer
        inputs, expected = (resolve_paths(paths, self._case.folder) for paths in (inputs, expected))
        input_files = pte.tensor_files("inputs", inputs, generate=is_own)
        expected_files = pte.tensor_files("expected", expected)
        names = {
            **{f"input_{index}.raw": file for index, file in enumerate(input_files)},
            **{f"expected_{index}.raw": file for index, file in enumerate(expected_files)},
        }
        folder = deployer.deploy_files(pte.path.name, {"program.pte": pte.path, **names})
        remote_files = [f"{folder}/{name}" for name in names]
        plan = pte.plan(
            f"{folder}/program.pte",
            remote_files[: len(input_files)],
            remote_files[len(input_files) :],
            tolerance=tolerance,
            repeat=repeat,
        )
        path = f"{deployer.deploy_sets([program_set(deployer, runner)])[0]}/{runner.program}"
        result = run_with(self._case, path, pte, plan, expected_files, timeout_s, is_own=is_own)
        self.measure(executorch=runner.version, **result.measurements, **pte.places())
        self._note_graphs(result, [pte.path.name])
        with contextlib.suppress(ConfigError):  # ExecuTorch has reported unreadable contexts
            contexts = list(require_contexts(self._target.compile_contexts(pte.sources())).values())
            self._case.notes.makers += [context.made_by for context in contexts if context.made_by]
        if can_be_replayed(pte, result.run, result.verdict):
            executions = list(self._case.notes.executions)
            replay = replay_contexts(pte, result.verdict, self.contexts, self._runs_resident)
            self._case.notes.executions = executions  # only those of the program itself
            self.measure(replay=replay.figures())
            self.conclude(str(replay))
        self._case.notes.set_verdict(result.verdict)
        return result

    def litert(
        self,
        model: AnyPath,
        *,
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        rounds: Rounds = ONCE,
    ) -> Observation:
        """Compile a .tflite with LiteRT and run each partition as a context.

        A partition gets the inputs that LiteRT's CPU computed, and its outputs are compared with
        the CPU's. Without a `tolerance` they may differ by 2 % of the largest value. The record has
        the place of each node. `inputs` is as for `executorch`; otherwise like `run_contexts`.

        Raises ConfigError unless the test is marked `device(engine="litert")`; otherwise like
        `compiled_model`.
        """
        self._require_engine("litert")
        files = resolve_paths(inputs, self._case.folder)
        compiled = compiled_model(self._case, self._case.folder / model, files, tolerance)
        self.measure(litert=compiled.figures(), **compiled.places())
        self.conclude(str(compiled))
        sources = compiled.sources
        result = self.run_contexts(sources, None, "resident", keep_outputs=True, rounds=rounds)
        return result.keeping([replace(output, against=ON_LITERT) for output in result.kept])

    def model(self, model: Model) -> DeployedModel:
        """Deploy a model's ONNX file with its inputs and expected outputs."""
        (deployed,) = self._target.models([model])
        return deployed

    def reference(self, model: Model) -> Reference:
        """Return a model's inputs and expected outputs, as files on this computer."""
        return self._target.references([model])[model]

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        """Return the content of a file on the device. Raises DeviceError, also if it is larger."""
        return self._case.fetch(remote, max_bytes=max_bytes)

    def run(self, plan: Plan, *, timeout_s: float = _CASE_TIMEOUT_S) -> Observation:
        """Run a plan in a probe process of its own and judge it.

        The verdict and the figures go into the case's record. Raises DeviceError or NoVerdict if
        the lab failed; a failing target raises nothing here.
        """
        observation = self.attempt(plan, timeout_s=timeout_s)
        self._case.notes.set_verdict(observation.verdict)
        self.measure(**observation.measurements)
        return observation

    def attempt(
        self,
        plan: Plan,
        *,
        timeout_s: float = _CASE_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> Observation:
        """Run a plan like `run`, but leave the case's verdict and figures alone.

        `environment` is added to that of the runtime. Raises NoVerdict if the lab kept the target
        from answering, so that this is not taken for an answer.
        """
        return self._case.run(plan, timeout_s, environment)

    def resident(
        self, contexts: Source | Sequence[Source], number: int | None = None
    ) -> Observation:
        """Load `number` contexts, taken in turn, then execute all of them, then free them.

        Without a number each is loaded once, as in `sequential`, `window` and `run_contexts`.
        """
        return self.run_contexts(contexts, number, "resident")

    def sequential(
        self, contexts: Source | Sequence[Source], number: int | None = None
    ) -> Observation:
        """Load, execute and free `number` contexts one after the other, taken in turn."""
        return self.run_contexts(contexts, number, "sequential")

    def window(
        self, contexts: Source | Sequence[Source], number: int | None = None, *, most: int = 4
    ) -> Observation:
        """Load and execute `number` contexts, keeping the last `most` loaded."""
        return self.run_contexts(contexts, number, "window", window=most)

    def run_contexts(
        self,
        contexts: Source | Sequence[Source],
        number: int | None,
        residency: str,
        *,
        window: int = 4,
        keep_outputs: bool = False,
        rounds: Rounds = ONCE,
    ) -> Observation:
        """Run contexts with a residency: `resident`, `sequential` or `window`.

        With `keep_outputs` the run keeps the outputs of each context, so that its report can
        compare them with those of other versions. Raises ConfigError for another residency.
        """
        if residency not in RESIDENCIES:
            raise ConfigError(f"no residency {residency!r}", field="residency", choices=RESIDENCIES)
        # a string is a mistake: the error quotes all of it instead of its first letter
        is_single = isinstance(contexts, str) or not isinstance(contexts, Sequence)
        sources = cast("Sequence[Source]", [contexts] if is_single else contexts)
        deployed = self.contexts(*sources)
        steps = schedule(len(deployed) if number is None else number, residency, window)
        if not keep_outputs:
            return self.run(session_plan(self.libraries(), deployed, steps, rounds=rounds))
        with self.scratch() as folder:
            plan = session_plan(self.libraries(), deployed, steps, save_below=folder, rounds=rounds)
            result = self.run(plan)
            transcript, run_folder = result.run.transcript, self._case.run_folder
            figures, kept = keep_outputs_of(deployed, transcript, folder, self.fetch, run_folder)
        self.measure(**{KEPT: figures})
        result = result.keeping(kept)
        names = [each.model if isinstance(each, OnnxModel) else str(each) for each in sources]
        self._note_graphs(result, names, deployed)
        error = result.verdict.error
        step = None if error is None or error.step is None else plan.steps[error.step]
        if step is not None and (graph := graph_of(deployed, step)):
            self.conclude(f"graph {graph} failed")
        return result

    def _runs_resident(self, contexts: Sequence[DeployedContext]) -> Verdict:
        plan = self.context_plan(contexts, schedule(len(contexts), "resident"))
        return self.attempt(plan).verdict

    def _note_graphs(
        self, result: Observation, names: Sequence[str], contexts: Sequence[DeployedContext] = ()
    ) -> None:
        graphs = graph_figures(result.run.transcript.steps, names, self._case.executes_on)
        metadata = zip(names, (context.context.metadata for context in contexts), strict=False)
        tokens = token_figures(graphs, named_graphs(metadata))
        self.measure(graphs=graphs, **({"tokens": tokens} if tokens else {}))

    def context_plan(
        self,
        contexts: Sequence[DeployedContext],
        steps: Schedule,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> Plan:
        """Return the plan for a schedule over these contexts, taken in turn."""
        return session_plan(self.libraries(), contexts, steps, settings)

    def libraries(self) -> Libraries:
        """Return the paths of libQnnSystem and the backend's library on the device.

        Raises TargetFailure with the outcome `unsupported` if the runtime lacks them; ONNX Runtime
        on the CPU backend does without libQnnSystem.
        """
        names = {file.path.name for file in self._case.runtime.runtime.files}
        without = self.placement.takes_models and _SYSTEM not in names
        with self._case.require_backend():
            return Libraries(
                backend=self._case.runtime.library(BACKEND_LIBRARIES[self.placement.backend]),
                system=None if without else self._case.runtime.library(_SYSTEM),
            )

    def deploy(self, files: Mapping[str, Path], programs: Collection[str] = ()) -> str:
        """Deploy files by the names they get on the device; return the path of their folder.

        What is there already does not travel again. `programs` are names of executable files.
        """
        return self._target.provisioned.deployer.deploy_files("files", files, programs)

    def shell(self, script: str, *, timeout_s: float = _CASE_TIMEOUT_S) -> Completed:
        """Run a shell script on the device, in an environment with the runtime's libraries.

        Its exit code is no verdict: `expect` makes one. Raises DeviceError, also at the deadline.
        """
        environment = self._case.runtime.environment.items()
        exports = "".join(f"export {name}={shlex.quote(text)};" for name, text in environment)
        script = f"{self._case.device_check}{exports}{script}"
        return self.device.transport.shell(script, timeout_s=timeout_s, doing="run a test's script")

    def scratch(self) -> contextlib.AbstractContextManager[str]:
        """Create a temporary folder on the device for files of a plan. Raises DeviceError."""
        return self._case.scratch()
