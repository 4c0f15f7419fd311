"""What a test holds in its hand: a device made ready, and a way to say what was found out."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, cast

from harness.bench.case_session import CaseSession, Observation, TargetFailure
from harness.bench.executorch import can_be_replayed, open_program, replay_of, run_with
from harness.bench.kept_outputs import keep_outputs_of
from harness.bench.litert import ON_LITERT, compiled_model
from harness.bench.placement import Placement
from harness.bench.session import (
    OrtOnDevice,
    SessionModel,
    open_session,
    ort_on_device,
    run_session,
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
from harness.core.axes import BACKEND_LIBRARIES, EXECUTORCH, LITERT, ORT, Engine
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
from harness.models.context_file import AnyPath, given_files
from harness.models.contexts import Source, required
from harness.models.models import Model
from harness.models.onnx_model import OnnxModel, OnnxNodes
from harness.models.source import (
    RESIDENCIES,
    DeployedContext,
    DeployedModel,
    Libraries,
    Reference,
    Schedule,
    graph_of,
    schedule,
    session_plan,
    with_files,
)
from harness.probe.ort_plan import CPU_EP
from harness.probe.plan import ONCE, Plan, Rounds, Settings, rounds_of
from harness.results.drift import KEPT
from harness.results.measurements import graph_figures, named_graphs, token_figures
from harness.results.record import Check, as_json, conclusion, failure_text

ON: Final[Mapping[str, str]] = {"htp": NPU, "gpu": "GPU", "cpu": CPU}
"""What a node runs on that QNN's provider took, by backend."""

_WHAT_HELPS: Final = (
    "`--fallback allow` lets such nodes run on the CPU, and the record tells which; without it "
    "none may"
)
_BLAMES: Final = re.compile(r"This session contains graph nodes that are assigned to the default")


def session_figures(
    model: OnnxNodes, assigned: Assigned, refused: list[RefusedNode], on: str
) -> dict[str, object]:
    """The nodes of a session of ORT as figures of a record.

    `transfers` are null where ORT changed nodes, so that the file does not tell them. There are no
    figures where no session was made and no node is known to be refused.
    """
    if not assigned:
        return refusals(model, refused, on)
    reasons = {(one.name, one.op_type): one.reason for one in refused if one.reason is not None}
    placed = placed_as(model.nodes, assigned, reasons)
    figures = figures_of(placed, model.sizes)
    if not is_as_in_file(model.nodes, placed) and len({part for part, _, _ in assigned}) > 1:
        figures["transfers"] = None
    return figures


def refusals(model: OnnxNodes, refused: list[RefusedNode], on: str) -> dict[str, object]:
    """The nodes of a model of which some were refused, and nothing else is known, as figures."""
    no = "the provider names no reason"
    why = {(one.name, one.op_type): one.reason or no for one in refused}
    reasons = [
        (one, f"it lies within {one.within}" if one.within else why.get(one.key))
        for one in model.nodes
    ]
    # how the provider would have cut it is not known
    rows = [
        place_row(Placed(node, CPU if reason else on, None, reason)) for node, reason in reasons
    ]
    return {"nodes": rows} if refused else {}


def _named(refused: Iterable[RefusedNode], model: OnnxNodes) -> Iterator[RefusedNode]:
    """Refused nodes by the names that people see, where it is known which an unnamed one is."""
    for one in refused:
        same = [node.name for node in model.nodes if node.key == (one.name, one.op_type)]
        yield replace(one, name=same[0]) if len(same) == 1 else one


def _carried(
    case: CaseSession, made: SessionModel, assigned: Assigned, sizes: Mapping[str, int]
) -> object:
    """What is carried over in the graph as this computer's ORT cuts it; None if that is another.

    It is the same compiler for the same HTP, and ORT writes the graph with its partitions.
    """
    target = case.target
    if case.placement.backend != "htp" or not made.models:
        return None
    model = target.provisioner.onnx.path(made.models[0])
    host, options = target.provisioner.catalog.compiler_host(target.compiler), target.htp_arch
    with scratch_folder() as folder:
        job = CompileJob(
            "cut", "it is not cut", model, folder, compile_options(options), fallback=True
        )
        if run_jobs(host, [job])[job.job] is not None:
            return None
        cut = OnnxNodes.of(folder / "context.onnx")
    return transfers_in(cut.nodes, {**sizes, **cut.sizes}, assigned)


def _assigned(told: object, on: str) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
    for at, one in enumerate(told if isinstance(told, list) else []):
        match one:
            case {"ep": str(ep), "nodes": list(nodes)}:
                named = [(n[0], n[1]) for n in nodes if _is_named(n)]
                own = ep != CPU_EP
                yield (str(at), on, named) if own else (None, CPU, named)


def _is_named(node: Any) -> bool:
    return isinstance(node, list) and len(node) == 2 and all(isinstance(n, str) for n in node)


def placed_session(case: CaseSession, made: SessionModel, seen: Observation) -> Observation:
    """Notes where the nodes of a session ran; where it was not made, says which were refused.

    ORT's own words blame whoever asked for no fallback.
    """
    model, steps = OnnxNodes.of(made.path), seen.run.transcript.steps
    on = ON[case.placement.backend]
    refused = refused_nodes(line.text for step in steps for line in step.logs)
    told = [step.data.get("assigned") for step in steps if step.verb == "ort-placement"]
    assigned = [*_assigned(told[-1], on)] if told else []
    figures = session_figures(model, assigned, refused, on)
    if assigned and figures["transfers"] is None:
        with contextlib.suppress(HarnessError):
            figures["transfers"] = _carried(case, made, assigned, model.sizes)
    case.notes.measurements.update(figures)
    error = seen.verdict.error
    if error is None or not refused or not _BLAMES.search(error.message):
        return seen
    words = refusal_text(_named(refused, model), model.shapes(), _WHAT_HELPS)
    plain = error.model_copy(
        update={
            "message": words,
            "signature": signature(error.api, error.code, words),
            "chain": tuple(link for link in error.chain if not _BLAMES.search(link.message)),
            "first_cause": None,
            "diagnosis": None,
        }
    )
    verdict = replace(seen.verdict, error=diagnosed("failed", plain, foreseen=case.foreseen))
    case.notes.came_to(verdict)
    return replace(seen, verdict=verdict)


def refused_compile(
    case: CaseSession, error: CompileError, sources: Iterable[Source]
) -> TargetFailure:
    """The failure of a model that a compiler refused; notes its nodes where some are the cause."""
    case.notes.makers += filter(None, [case.placement.compiler])
    refused = refused_nodes(messages_of(error.output))
    models = [*{one.path for one in sources if isinstance(one, OnnxModel)}]
    if not refused or not any(_BLAMES.search(one) for one in error.chain):
        return TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=str(error))))
    model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
    words = refusal_text(_named(refused, model), model.shapes(), _WHAT_HELPS)
    what = str(error).partition(": ")[0]
    case.notes.measurements.update(refusals(model, refused, NPU))
    plain = ErrorRecord.of(message=f"{words}\n{what}")
    return TargetFailure(Verdict("failed", "target", plain))


_CASE_TIMEOUT_S = 300.0
_SYSTEM = "libQnnSystem.so"


class Bench:
    """A device with a runtime on it, for one case.

    Placement tells which; `run` runs a plan in a fresh process there. Whatever is passed to
    `measure` ends in the case's record.
    """

    def __init__(self, case: CaseSession) -> None:
        self._case = case
        self._target = case.target

    @property
    def placement(self) -> Placement:
        """Where and with what the case runs."""
        return self._case.placement

    @property
    def device(self) -> AttachedDevice:
        """The device; `device.transport` runs commands there and moves files."""
        return self._case.device

    def qnn_in(self, versions: str) -> bool:
        """Whether the runtime's QNN is one of ">=2.49,<2.51". Raises ConfigError."""
        return QnnVersion.parse(self.placement.qnn_version) in VersionRange.parse(versions)

    def beside(self, qnn: str) -> Bench:
        """This device with another QNN on it, for what that is to make first."""
        return Bench(self._case.beside(qnn))

    def measure(self, **figures: object) -> None:
        """Adds figures to the record's `measurements`; units belong in the names.

        Raises ConfigError for what JSON cannot hold.
        """
        for name, figure in figures.items():
            try:
                as_json(figure)
            except ValueError as error:
                raise ConfigError(str(error), field=f"measure({name}=...)") from error
        self._case.notes.measurements.update(figures)

    def conclude(self, text: str) -> None:
        """Says in words what the case found out; shown at the end of the run."""
        require(str, text)
        self._case.notes.conclusion = text

    def check(self, *checks: Check) -> None:
        """Records checks; `expect` also fails for one that is broken."""
        require(Check, *checks)
        self._case.notes.checks += checks

    def expect(self, *checks: Check) -> None:
        """Records checks, which become the conclusion.

        Raises TargetFailure, whose text names those that broke, if any did.
        """
        self.check(*checks)
        self.conclude(conclusion(self._case.notes.checks))
        problem = failure_text(checks)
        if problem:
            error = ErrorRecord.of(message=problem)
            raise TargetFailure(Verdict("failed", "target", error))

    def accept_refusal(self) -> None:
        """Says that the target had to refuse what ran last. ConfigError: it refused nothing."""
        self._case.notes.accept_refusal()

    def outputs_compared(self) -> None:
        """Says that the case itself compared outputs with a reference; the record tells so."""
        self._case.notes.outputs_compared = True

    def grid(self, rows: str, columns: str) -> None:
        """Has the cases of this test shown as a grid of two axes, such as compiler and qnn."""
        require(str, rows, columns)
        self._case.notes.grid = rows, columns

    def contexts(self, *sources: Source) -> list[DeployedContext]:
        """The context binaries of these sources on the device; those of models are compiled.

        Raises TargetFailure if the compiler, which is software under test, too, does not make one.
        Its outcome is `unsupported` for contexts of another backend: models are compiled for HTP.
        Raises ConfigError for a file that is missing or wrong, and for what is no source.
        """
        for source in sources:
            if not isinstance(source, Source):
                problem = (
                    f"{source!r} is no source of contexts: Model(...) and ContextFile(...) are"
                )
                raise ConfigError(problem)
        backend = self.placement.backend
        if backend != "htp" and any(source.compiled for source in sources):
            self._refuse_contexts("contexts are compiled for HTP")
        wanted = [source.seen_from(self._case.folder) for source in sources]
        try:
            deployed = self._target.contexts(wanted)
        except CompileError as error:
            raise refused_compile(self._case, error, wanted) from error
        taken = [deployed[source].context for source in wanted]
        self._case.notes.makers += [context.made_by for context in taken if context.made_by]
        if files := [one for one in taken if not one.source.compiled]:
            earlier: Any = self._case.notes.measurements.get("context_files", {})
            self.measure(context_files=with_files(earlier, files))
        for one in taken:
            if one.backend not in (None, backend):
                self._refuse_contexts(f"{one.source} is a context for {one.backend}")
        return [deployed[source] for source in wanted]

    def _refuse_contexts(self, why: str) -> NoReturn:
        """The backend that the case is about cannot read what it would be given."""
        self.libraries()
        why = f"{why}, and the {self.placement.backend} backend reads none of them"
        raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=why)))

    def ort(self) -> OrtOnDevice:
        """The ONNX Runtime of the placement, on the device.

        Raises ConfigError unless the test is marked `device(engine="ort")`, and TargetFailure as
        `libraries`.
        """
        backend = self.placement.backend
        self._require_engine(ORT)
        arch = self._target.htp_arch if backend == "htp" else None
        with self._case.has_backend():
            return ort_on_device(self._case.runtime, BACKEND_LIBRARIES[backend], arch)

    def _require_engine(self, engine: Engine) -> None:
        if self.placement.engine != engine.name:
            marker = f'`@pytest.mark.device(engine="{engine.name}")`'
            raise ConfigError(f"a test that uses {engine.title} is marked {marker}")

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
        """Has ONNX Runtime make a session of an .onnx, with EPContext nodes or to be compiled.

        `inputs` and `expected` as for `executorch`. A plain model with a `tolerance` and without
        either is compared with ORT on the CPU. `fallback`: that takes what QNN refuses.
        `Observation` has the keys of its `measurements`. Otherwise as `run`.

        Raises ConfigError as `ort`, and for a file that ONNX Runtime does not take.
        """
        ort = self.ort()
        read, wanted = (given_files(one, self._case.folder) for one in (inputs, expected))
        made = open_session(self._case.folder / model, tolerance, read, wanted, fallback)
        files = made.files(read, wanted)
        folder = self._target.held.deployer.deploy_files(made.path.name, files) if files else ""
        known = self._target.models(made.models)
        self._case.notes.makers += self._target.builds(made.sources)
        deployed = made.deployed(known, folder, files, tolerance)
        plan = made.plan(ort, deployed, rounds_of(repeat))
        seen = run_session(self._case, self.run, self.reference, made, plan, files, timeout_s)
        self._note_graphs(seen, [made.path.name])
        return placed_session(self._case, made, seen)

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
        """Loads a .pte with ExecuTorch in a process of its own, executes it, and judges that.

        `inputs` and `expected` are a folder or files, raw or .npy, one for each tensor. Without
        inputs some are made up, the same each time. Without `expected` the runs are only compared
        with each other. Where it fails, its contexts are run without ExecuTorch, and the record
        says what the failure is of. Otherwise as `run`.

        Raises ConfigError unless the test is marked `device(engine="executorch")`, for a file that
        is no .pte, and for a device that ExecuTorch's wheel has no libraries for.
        """
        self._require_engine(EXECUTORCH)
        made = open_program(self._case.folder / program, method)
        runner = self._target.program
        if runner is None:
            raise InternalError(f"{EXECUTORCH.title} brings no program")
        own, deployer = runner.is_own, self._target.held.deployer
        read = made.given("inputs", given_files(inputs, self._case.folder), make=own)
        wanted = made.given("expected", given_files(expected, self._case.folder))
        names = {
            **{f"input_{at}.raw": file for at, file in enumerate(read)},
            **{f"expected_{at}.raw": file for at, file in enumerate(wanted)},
        }
        folder = deployer.deploy_files(made.path.name, {"program.pte": made.path, **names})
        beside = [f"{folder}/{name}" for name in names]
        plan = made.plan(
            f"{folder}/program.pte",
            beside[: len(read)],
            beside[len(read) :],
            tolerance=tolerance,
            repeat=repeat,
        )
        runs = f"{deployer.deploy_sets([runner.files_on(deployer)])[0]}/{runner.program}"
        observation = run_with(self._case, runs, made, plan, wanted, timeout_s, own=own)
        self.measure(executorch=runner.version, **observation.measurements, **made.places())
        self._note_graphs(observation, [made.path.name])
        with contextlib.suppress(ConfigError):  # what cannot be read, ExecuTorch has told
            known = list(required(self._target.made(made.sources())).values())
            self._case.notes.makers += [one.made_by for one in known if one.made_by]
        if can_be_replayed(made, observation.run, observation.verdict):
            executions = list(self._case.notes.executions)
            replay = replay_of(made, observation.verdict, self.contexts, self._runs_resident)
            self._case.notes.executions = executions  # those of the program itself
            self.measure(replay=replay.figures())
            self.conclude(str(replay))
        self._case.notes.came_to(observation.verdict)
        return observation

    def litert(
        self,
        model: AnyPath,
        *,
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        rounds: Rounds = ONCE,
    ) -> Observation:
        """Has LiteRT compile a .tflite, and runs what came of it: every partition, as a context.

        Each gets what LiteRT's CPU computed for it, and its outputs are compared with that CPU's.
        Without a `tolerance` they may differ by 2 % of the largest value. The record says of each
        node where it is. `inputs` as for `executorch`; otherwise as `run_contexts`.

        Raises ConfigError unless the test is marked `device(engine="litert")`; else as
        `compiled_model`.
        """
        self._require_engine(LITERT)
        read = given_files(inputs, self._case.folder)
        made = compiled_model(self._case, self._case.folder / model, read, tolerance)
        self.measure(litert=made.figures(), **made.places())
        self.conclude(str(made))
        seen = self.run_contexts(made.sources, None, "resident", keep_outputs=True, rounds=rounds)
        return seen.keeping([replace(one, against=ON_LITERT) for one in seen.kept])

    def model(self, model: Model) -> DeployedModel:
        """A model's ONNX file on the device, with inputs and expected outputs."""
        (deployed,) = self._target.models([model])
        return deployed

    def reference(self, model: Model) -> Reference:
        """A model's inputs and expected outputs on this host."""
        return self._target.references([model])[model]

    def fetch(self, remote: str, *, max_bytes: int) -> bytes:
        """What a plan wrote into a file on the device. Raises DeviceError, also if it is larger."""
        return self._case.fetch(remote, max_bytes=max_bytes)

    def run(self, plan: Plan, *, timeout_s: float = _CASE_TIMEOUT_S) -> Observation:
        """Runs a plan in a probe process of its own and judges it.

        The observation becomes the case's own: its verdict and figures go into the record.
        Raises DeviceError or NoVerdict if the lab failed on the way; a failing target raises
        nothing here.
        """
        observation = self.attempt(plan, timeout_s=timeout_s)
        self._case.notes.came_to(observation.verdict)
        self.measure(**observation.measurements)
        return observation

    def attempt(
        self,
        plan: Plan,
        *,
        timeout_s: float = _CASE_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> Observation:
        """Like `run`, for a process whose failure is an answer and not yet the case's verdict.

        `environment` is added to what the runtime needs. Raises NoVerdict if the lab kept the
        target from an answer, so that nobody takes that for an answer.
        """
        return self._case.run(plan, timeout_s, environment)

    def resident(
        self, contexts: Source | Sequence[Source], number: int | None = None
    ) -> Observation:
        """Loads `number` contexts, taken in turn, then executes all of them, then frees them.

        Without a number each of them once, here as in `sequential`, `window`, `run_contexts`.
        """
        return self.run_contexts(contexts, number, "resident")

    def sequential(
        self, contexts: Source | Sequence[Source], number: int | None = None
    ) -> Observation:
        """Loads, executes and frees `number` contexts one after the other, taken in turn."""
        return self.run_contexts(contexts, number, "sequential")

    def window(
        self, contexts: Source | Sequence[Source], number: int | None = None, *, most: int = 4
    ) -> Observation:
        """Loads and executes `number` contexts, keeping the last `most` loaded."""
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
        """`resident`, `sequential` or `window`, by its name. Raises ConfigError for another.

        `keep_outputs`: the outputs of each context stay with the run, for its report to compare
        with those of other versions.
        """
        if residency not in RESIDENCIES:
            raise ConfigError(f"no residency {residency!r}", field="residency", choices=RESIDENCIES)
        # a text is a slip, and is told whole instead of letter by letter
        alone = isinstance(contexts, str) or not isinstance(contexts, Sequence)
        sources = cast("Sequence[Source]", [contexts] if alone else contexts)
        deployed = self.contexts(*sources)
        steps = schedule(len(deployed) if number is None else number, residency, window)
        if not keep_outputs:
            return self.run(session_plan(self.libraries(), deployed, steps, rounds=rounds))
        with self.scratch() as folder:
            plan = session_plan(self.libraries(), deployed, steps, save_below=folder, rounds=rounds)
            seen = self.run(plan)
            ran = seen.run.transcript
            found, kept = keep_outputs_of(deployed, ran, folder, self.fetch, self._case.run_folder)
        self.measure(**{KEPT: found})
        seen = seen.keeping(kept)
        names = [one.model if isinstance(one, OnnxModel) else str(one) for one in sources]
        self._note_graphs(seen, names, deployed)
        error = seen.verdict.error
        step = None if error is None or error.step is None else seen.run.plan.steps[error.step]
        if step is not None and (graph := graph_of(deployed, step)):
            self.conclude(f"graph {graph} failed")
        return seen

    def _runs_resident(self, contexts: Sequence[DeployedContext]) -> Verdict:
        plan = self.context_plan(contexts, schedule(len(contexts), "resident"))
        return self.attempt(plan).verdict

    def _note_graphs(
        self, seen: Observation, names: Sequence[str], contexts: Sequence[DeployedContext] = ()
    ) -> None:
        graphs = graph_figures(seen.run.transcript.steps, names, self._case.executes_on)
        known = zip(names, (one.context.metadata for one in contexts), strict=False)
        tokens = token_figures(graphs, named_graphs(known))
        self.measure(graphs=graphs, **({"tokens": tokens} if tokens else {}))

    def context_plan(
        self,
        contexts: Sequence[DeployedContext],
        steps: Schedule,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> Plan:
        """The plan for a schedule over these contexts, taken in turn."""
        return session_plan(self.libraries(), contexts, steps, settings)

    def libraries(self) -> Libraries:
        """Where libQnnSystem and the backend's library lie on the device.

        Raises TargetFailure with the outcome `unsupported` if the runtime does not have them; ONNX
        Runtime on the CPU backend does without libQnnSystem.
        """
        names = {file.path.name for file in self._case.runtime.runtime.files}
        without = self.placement.takes_models and _SYSTEM not in names
        with self._case.has_backend():
            return Libraries(
                backend=self._case.runtime.library(BACKEND_LIBRARIES[self.placement.backend]),
                system=None if without else self._case.runtime.library(_SYSTEM),
            )

    def scratch(self) -> contextlib.AbstractContextManager[str]:
        """A folder on the device for what a plan writes; gone afterwards. Raises DeviceError."""
        return self._case.scratch()
