"""ONNX Runtime with its QNN execution provider: sessions of models on a device."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from harness.bench.bench import NO_FALLBACK, Bench, refusals, refused_words
from harness.bench.case_session import CaseSession, Observation, TargetFailure
from harness.bench.kept_outputs import ToKeep
from harness.bench.ort_on_device import OrtOnDevice
from harness.containers.artefact import Blob, FileBytes
from harness.containers.extract import piece_file
from harness.containers.graph_partitions import (
    CPU,
    NPU,
    Assigned,
    figures_of,
    is_as_in_file,
    placed_as,
    transfers_in,
)
from harness.containers.open import open_artefact
from harness.core.context_options import CONTEXT_OPTIONS, OptionValue
from harness.core.engine import Engine, FileRun, require_no_graph
from harness.core.errors import ConfigError, HarnessError
from harness.core.files import scratch_folder
from harness.core.state_folders import cache_root
from harness.core.verified_folder import valid_name
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord, signature
from harness.diagnosis.refused_nodes import refused_nodes
from harness.diagnosis.verdict import Verdict
from harness.models.artefact_sources import ModelOptions, WholeFile, own_folder
from harness.models.builtin_models import Model
from harness.models.compiler import CompileJob, run_jobs
from harness.models.context_cache import compile_options
from harness.models.context_file import ContextFile, Files
from harness.models.contexts import Source
from harness.models.onnx_model import OnnxModel, OnnxNodes, OnnxSurface, require_alike
from harness.models.session_plan import GIVEN, ON_CPU, DeployedModel, Reference
from harness.models.tensor_files import TensorFiles
from harness.probe.ort_plan import CPU_EP
from harness.probe.plan import Plan, Rounds, rounds_of
from harness.runtimes.ort import PLUGIN, ort_library_of
from harness.runtimes.runtime import Driver


class OnnxRuntime(Engine):
    """ONNX Runtime, which compiles models on the device, or loads what was compiled."""

    name = "ort"
    title = "ONNX Runtime"
    kinds = ("onnx", "epcontext")
    method = "session"
    option = "ort"
    takes_models = True
    takes_context_options = True
    has_compilers = True
    test = "test_session"

    def driver(self, file_names: Collection[str]) -> Driver:
        return "ort-plugin" if PLUGIN in file_names else "ort-builtin"

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        require_no_graph(self, path, options)
        _provided(options.context_options)
        inputs, expected = (
            own_folder(files, path.name) for files in (options.inputs, options.expected)
        )
        model = open_session(path, options.tolerance, inputs, expected, options.fallback)
        if model.model is None:
            options.require_expected(path)
        else:
            require_alike(path, options.closeness.original)
        files = [path, *model.external_files.values()] if model.model is None else ()
        return [WholeFile.of(path, model.sources, options, files)]

    def run(self, bench: Bench, file: FileRun) -> Observation:
        ort, case = bench.ort(), bench.case
        inputs, expected, tolerance = file.inputs, file.expected, file.tolerance
        session = open_session(file.path, tolerance, inputs, expected, file.fallback)
        files = session.files(inputs, expected)
        deployer = case.prepared.provisioned.deployer
        folder = deployer.deploy_files(session.path.name, files) if files else ""
        known = case.prepared.models([session.model] if session.model else [])
        case.notes.makers += case.prepared.builds(session.sources)
        deployed = session.deployed(next(iter(known), None), folder, files, tolerance)
        provider = provider_options(ort, file.context_options)
        if provider:
            bench.measure(context_options=dict(file.context_options), provider_options=provider)
        plan = session.plan(ort, deployed, rounds_of(file.rounds), provider)
        run = partial(bench.run, timeout_s=file.timeout_s)
        outputs = session.outputs_to_keep(files, bench.reference)
        result = case.run_and_keep(run, plan, [outputs])
        if names := {each.name: each.file.name for each in result.kept if each.file is not None}:
            bench.measure(session_outputs=names)
        bench.note_graphs(result, [session.path.name], _executes_on(case, result))
        return placed_session(case, session, result)


_MODEL: Final = "model.onnx"


@dataclass(frozen=True)
class SessionModel:
    """An .onnx file to create a session from.

    `sources` are its contexts or, for a model without EPContext nodes, what it is compiled from.
    `external_files` are the files that ONNX Runtime opens, by their paths relative to the model.
    `mixed`: some of its nodes may run on the CPU.
    """

    path: Path
    sources: tuple[Source, ...]
    surface: OnnxSurface
    external_files: Mapping[str, Path]
    mixed: bool

    @property
    def model(self) -> OnnxModel | None:
        """The model to compile; None if it has EPContext nodes."""
        return next((source for source in self.sources if isinstance(source, OnnxModel)), None)

    def files(self, inputs: Files, expected: Files) -> dict[str, Path]:
        """Return all files to deploy, by their names there. Raises ConfigError, InfraError.

        The model gets a folder of its own, because files beside it may have any name.
        """
        if self.model is not None:
            expected_files = enumerate(self.model.expected_files)
            return {f"expected.{index}.raw": file for index, file in expected_files}
        tensors = TensorFiles(cache_root())
        files = {f"model/{name}": path for name, path in self.external_files.items()}
        files[f"model/{_MODEL}"] = self.path
        if inputs is None:
            read = tensors.generated(self.surface.inputs, self.path)
        else:
            read = tensors.resolve("inputs", inputs, self.surface.inputs, self.path)
        files |= {f"input.{index}.raw": file for index, file in enumerate(read)}
        if expected is not None:
            outputs = self.surface.require_outputs(self.path)
            read = tensors.resolve("expected", expected, outputs, self.path)
            files |= {f"expected.{index}.raw": file for index, file in enumerate(read)}
        return files

    def deployed(
        self, known: DeployedModel | None, folder: str, files: Iterable[str], tolerance: float
    ) -> DeployedModel:
        """Return the model with the deployed `files` in `folder` (pure).

        `known` is a deployed model without EPContext nodes, which has inputs of its own.
        """
        names = sorted(files, key=lambda name: (len(name), name))
        inputs, expected = (
            tuple(f"{folder}/{name}" for name in names if name.startswith(start))
            for start in ("input.", "expected.")
        )
        if known is None or self.model is None:
            return DeployedModel(f"{folder}/model/{_MODEL}", inputs, expected, tolerance)
        expected = expected or (known.expected if self.model.compared else ())
        return DeployedModel(known.file, known.inputs, expected, tolerance)

    def outputs_to_keep(
        self, files: Mapping[str, Path], reference: Callable[[Model], Reference]
    ) -> ToKeep:
        """Return the outputs with their references.

        These are the expected outputs among `files`, the deployed files, else those of ONNX Runtime
        on the CPU, which `reference` returns.
        """
        expected = [file for name, file in files.items() if name.startswith("expected.")]
        if self.model is None or expected:
            return ToKeep("ort-run", self.surface.results, expected, GIVEN)
        return ToKeep("ort-run", self.surface.results, reference(self.model).expected, ON_CPU)

    def plan(
        self,
        ort: OrtOnDevice,
        deployed: DeployedModel,
        rounds: Rounds,
        options: Mapping[str, str] | None = None,
    ) -> Plan:
        """Return a plan with one session, run twice if the outputs have no other reference."""
        provider = ort.provider(options)
        steps = ort.session(0, deployed.file, provider=provider, fallback=self.mixed)
        parts = (rounds,) if deployed.expected else rounds.halves()
        runs = [ort.run(0, deployed, repeat=part) for part in parts]
        return ort.plan((*steps, *runs), sessions=1)


def provider_options(ort: OrtOnDevice, options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return the options of ONNX Runtime's QNN provider for these options of contexts.

    The provider ignores a name that it does not know. Raises TargetFailure with the outcome
    `unsupported` if this version has no such option, ConfigError if no version has one.
    """
    if not (provided := _provided(options)):
        return {}
    runtime = ort.runtime.runtime
    library = ort_library_of(runtime) if ort.plugin is None else PLUGIN
    (path,) = (file.path for file in runtime.files if posixpath.basename(file.name) == library)
    content = path.read_bytes()
    for name in provided:
        if name.encode() + b"\0" not in content:
            message = f"the QNN provider of ORT with QNN {runtime.qnn_version} has no option {name}"
            raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=message)))
    return provided


def _provided(options: Mapping[str, OptionValue]) -> dict[str, str]:
    implied = {CONTEXT_OPTIONS[name].needs for name in options}  # the provider sets these itself
    provided = {}
    for name, value in options.items():
        option = CONTEXT_OPTIONS[name]
        if not option.ort and name not in implied:
            able = [each.name for each in CONTEXT_OPTIONS.values() if each.ort]
            problem = f"ONNX Runtime has no option for {name}"
            raise ConfigError(problem, field="--context-option", choices=able)
        if name not in implied:
            provided[option.ort] = str(value if option.value == "MB" else int(bool(value)))
    return provided


def open_session(
    path: Path,
    tolerance: float = 0.0,
    inputs: Files = None,
    expected: Files = None,
    fallback: bool = False,
) -> SessionModel:
    """Open a model for ONNX Runtime. Raises ConfigError for a file that it cannot load.

    `inputs` and `expected` are the tensor files of a plain model. With `fallback` nodes may run on
    the CPU.
    """
    artefact = open_artefact(path)
    if artefact.kind == "onnx":
        model = OnnxModel.of(path.absolute(), tolerance, inputs=inputs, expected=expected)
        surface = OnnxSurface.of(path)
        if fallback:  # else QNN refuses, with the op, whatever has no fixed shape
            surface.require_outputs(path, field="--fallback")
        return SessionModel(path, (model,), surface, {}, mixed=fallback)
    if artefact.kind != "epcontext":
        problem = f"is of kind {artefact.kind}; ONNX Runtime loads an .onnx"
        raise ConfigError(problem, file=path, choices=[".onnx with EPContext nodes", "plain .onnx"])
    surface = OnnxSurface.of(path)
    folder = path.parent
    sides = [piece.path for piece in artefact.pieces if piece.path != artefact.path]
    external_files = {side.relative_to(folder).as_posix(): side for side in sides}
    external_files |= {name: folder / name for name in surface.weight_files}
    for name in external_files:
        if not valid_name(name) or name == _MODEL:
            problem = f"the name of the external file {name!r} is not valid on a device"
            raise ConfigError(problem, file=path)
        with FileBytes(folder / name, folder) as data:
            side = Blob(data.path, 0, data.size, name, root=folder)
        external_files[name] = piece_file(side, cache_root())
    pieces = [piece for piece in artefact.pieces if piece.kind == "context"]
    contexts = [piece_file(piece, cache_root()).absolute() for piece in pieces]
    names = [f"{path.name}#{i}" for i in range(len(pieces))] if len(pieces) > 1 else [path.name]
    return SessionModel(
        path,
        tuple(ContextFile(file, name=name) for file, name in zip(contexts, names, strict=False)),
        surface,
        external_files,
        mixed=fallback or bool(artefact.facts["other_nodes"]),
    )


ON: Final[Mapping[str, str]] = {"htp": NPU, "gpu": "GPU", "cpu": CPU}
"""The processor of the nodes that QNN's provider took, by backend."""


def _carried(
    case: CaseSession, session: SessionModel, assigned: Assigned, sizes: Mapping[str, int]
) -> object:
    """Return the transfers in the graph as ORT on this computer partitions it, None if it differs.

    The compiler and the HTP are the same, and ORT writes the graph with its partitions.
    """
    prepared = case.prepared
    if case.placement.backend != "htp" or session.model is None:
        return None
    model = prepared.provisioner.onnx.path(session.model)
    host, options = prepared.provisioner.catalog.compiler_host(prepared.compiler), prepared.htp_arch
    with scratch_folder() as folder:
        job = CompileJob(
            "cut", "it is not cut", model, folder, compile_options(options), fallback=True
        )
        if run_jobs(host, [job])[job.job] is not None:
            return None
        cut = OnnxNodes.of(folder / "context.onnx")
    return transfers_in(cut.nodes, {**sizes, **cut.sizes}, assigned)


def _assigned(
    result: Observation, on: str
) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
    """Yield part, processor and nodes (name, type) of a device's report, which may be anything."""
    steps = result.run.transcript.steps
    placements = [step.data.get("assigned") for step in steps if step.verb == "ort-placement"]
    parts = placements[-1] if placements else None
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        match part:
            case {"ep": str(ep), "nodes": list(nodes)}:
                pairs = [n for n in nodes if isinstance(n, list) and [*map(type, n)] == [str, str]]
                named = [(name, op_type) for name, op_type in pairs]
                yield (None, CPU, named) if ep == CPU_EP else (str(index), on, named)


def _executes_on(case: CaseSession, result: Observation) -> str:
    on = ON[case.placement.backend]
    processors = {processor for _, processor, _ in _assigned(result, on)}
    is_cpu_alone = processors == {CPU} != {on}
    return f"the CPU alone: no node ran on the {on}" if is_cpu_alone else case.executes_on


def placed_session(case: CaseSession, session: SessionModel, result: Observation) -> Observation:
    """Record where the nodes of a session ran, or name the refused ones if it was not created.

    ORT's own message only says that CPU fallback is disabled.
    """
    model, steps = OnnxNodes.of(session.path), result.run.transcript.steps
    on = ON[case.placement.backend]
    refused = refused_nodes(line.text for step in steps for line in step.logs)
    assigned = [*_assigned(result, on)]
    figures = refusals(model, refused, on)
    if assigned:
        reasons = {(n.name, n.op_type): n.reason for n in refused if n.reason is not None}
        placed = placed_as(model.nodes, assigned, reasons)
        figures = figures_of(placed, model.sizes)
        # the file no longer shows the transfers where ORT rewrote the graph
        if not is_as_in_file(model.nodes, placed) and len({part for part, _, _ in assigned}) > 1:
            figures["transfers"] = None
    if assigned and figures["transfers"] is None:
        with contextlib.suppress(HarnessError):
            figures["transfers"] = _carried(case, session, assigned, model.sizes)
    case.notes.measurements.update(figures)
    error = result.verdict.error
    if error is None or not refused or not NO_FALLBACK.search(error.message):
        return result
    words = refused_words(refused, model)
    plain = error.model_copy(
        update={
            "message": words,
            "signature": signature(error.api, error.code, words),
            "chain": tuple(link for link in error.chain if not NO_FALLBACK.search(link.message)),
            "first_cause": None,
            "diagnosis": None,
        }
    )
    verdict = replace(result.verdict, error=diagnosed("failed", plain, foreseen=case.foreseen))
    case.notes.set_verdict(verdict)
    return replace(result, verdict=verdict)
