"""LiteRT on a device: the partitions that its compiler made of a .tflite, run as contexts.

No library of LiteRT is on the device. The probe loads each partition and gives it the inputs that
LiteRT's CPU computed; the nodes between the partitions run on that CPU only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import CaseSession, Observation, TargetFailure
from harness.bench.prepared_devices import PreparedPlacement
from harness.containers.artefact import Piece, Tensor
from harness.containers.extract import piece_file
from harness.containers.graph_partitions import CPU, NPU, GraphNode, Placed, figures_of
from harness.containers.manifest import RunPlan
from harness.containers.open import open_artefact
from harness.containers.tflite import TfliteGraph, TfliteNode, assign_partitions, read_tflite_graph
from harness.core.engine import Engine, EngineProgram, FileRun, require_no_graph
from harness.core.errors import ConfigError
from harness.core.files import scratch_folder
from harness.core.outgoing_text import counted
from harness.core.state_folders import cache_root
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.models.artefact_sources import ModelOptions, WholeFile
from harness.models.compiler import CompileError
from harness.models.context_file import ContextFile, Files
from harness.models.litert_compiler import (
    LITERT_VERSION,
    RefusedByCpu,
    compile_litert,
    litert_host,
    run_on_cpu,
    soc_for,
)
from harness.models.session_plan import ANY_DISTANCE
from harness.models.tensor_files import TensorFiles
from harness.probe.plan import rounds_of


class LiteRT(Engine):
    """LiteRT's compiler, whose partitions run as contexts."""

    name = "litert"
    title = "LiteRT"
    kinds = ("tflite",)
    default_for = ("tflite",)
    backends = ("htp",)
    takes_context_options = True
    has_compilers = True
    test = "test_model"

    def program(self, prepared: PreparedPlacement) -> EngineProgram | None:
        """Fetch the compiler; nothing of it is on the device."""
        litert_host(prepared.provisioner.catalog, prepared.compiler)
        return None

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return one case: all partitions that the compiler makes of the model."""
        require_no_graph(self, path, options)
        if options.expected is not None:
            problem = f"is not accepted: {self.title} computes the expected outputs itself"
            raise ConfigError(problem, file=path, field="expected")
        open_model(path)
        options.require_no_original(path)
        if options.closeness and not options.tolerance:
            options = replace(options, tolerance=ANY_DISTANCE)
        return [WholeFile.of(path, (), options, ())]

    def run(self, bench: Bench, file: FileRun) -> Observation:
        """Compile the model and run its partitions as contexts.

        A partition gets the inputs that LiteRT's CPU computed, and its outputs are compared with
        the CPU's. Without a tolerance they may differ by 2 % of the largest value.
        """
        compiled = compiled_model(bench.case, file.path, file.inputs, file.tolerance)
        bench.measure(litert=compiled.figures(), **compiled.places())
        bench.conclude(str(compiled))
        sources, rounds = compiled.sources, rounds_of(file.rounds)
        result = bench.run_contexts(
            sources,
            None,
            "resident",
            keep_outputs=True,
            rounds=rounds,
            options=file.context_options,
        )
        return replace(result, kept=[replace(output, against=ON_LITERT) for output in result.kept])

    def manual(self, model: str, plan: RunPlan) -> str:
        return f"""With LiteRT's compiler alone, on Linux x86-64:

  python -m pip install ai-edge-litert=={LITERT_VERSION}
  cd "$(python -c 'import ai_edge_litert as one; print(one.__path__[0])')"
  tools/apply_plugin_main --cmd=apply --model={model} \\
    --o=compiled.tflite --soc_manufacturer=Qualcomm --soc_model={plan.soc} \\
    --libs=vendors/qualcomm/compiler

with libQnnHtp.so of the SDK in LD_LIBRARY_PATH, and absolute paths."""


USUAL_TOLERANCE: Final = 0.02
"""The default tolerance, as a part of the largest output value of a partition.

The HTP computes float32 with 16 bits.
"""

ON_LITERT: Final = "LiteRT's CPU"


@dataclass(frozen=True)
class CompiledModel:
    """A compiled model: its nodes, and `parts`, the partition of each node (None: the CPU).

    `sources` are the partitions as contexts with inputs and outputs of the CPU; `refused` is why
    the CPU does not run the model, None if it does. `soc` is the SoC that it was compiled for.
    """

    graph: TfliteGraph
    parts: Sequence[str | None]
    sources: tuple[ContextFile, ...]
    soc: str
    refused: str | None

    def figures(self) -> dict[str, object]:
        return {
            "version": LITERT_VERSION,
            "soc": self.soc,
            "reference": self.refused or ON_LITERT,
            "tolerance": {source.name: source.tolerance for source in self.sources},
        }

    def places(self) -> dict[str, object]:
        """Return the place of each node, in the form common to all engines."""
        placed = []
        for index, (node, part) in enumerate(zip(self.graph.nodes, self.parts, strict=True)):
            name = self.graph.tensors[node.outputs[0]].name if node.outputs else ""
            reads, writes = (tuple(map(str, side)) for side in (node.inputs, node.outputs))
            graph_node = GraphNode(name or f"{index}", node.op, reads, writes)
            reason = None if part else "LiteRT's QNN plug-in left it to the CPU and gave no reason"
            placed.append(Placed(graph_node, NPU if part else CPU, part, reason))
        tensors = enumerate(self.graph.tensors)
        sizes = {str(index): tensor.size for index, tensor in tensors if tensor.data_type}
        return figures_of(placed, sizes)

    def __str__(self) -> str:
        count, number = len(self.parts), len(self.sources)
        cpu = sum(partition is None for partition in self.parts)
        parts, nodes = counted(number, "partition"), counted(count, "node")
        lines = [f"{count - cpu} of {nodes} on the NPU in {parts}, {cpu} on the CPU"]
        if self.refused is not None:
            lines.append(
                "LiteRT cannot run this model on the CPU: partitions ran on generated inputs, and "
                f"no outputs are compared; {self.refused}"
            )
        elif cpu or number > 1:
            lines.append(
                "each partition ran alone, on inputs that LiteRT computed on the CPU; the nodes "
                "between partitions ran only on this computer's CPU"
            )
        return "\n".join(lines)


def open_model(path: Path) -> TfliteGraph:
    """Read the graph of a .tflite that can be compiled. Raises ConfigError for another file."""
    artefact = open_artefact(path)
    if artefact.kind != "tflite":
        raise ConfigError(f"is of kind {artefact.kind}; LiteRT compiles a .tflite", file=path)
    if artefact.pieces:
        raise ConfigError("is already compiled for QNN; run it without --engine", file=path)
    graph = read_tflite_graph(path)
    for tensor in graph.named(graph.inputs):
        if not tensor.data_type or any(size <= 0 for size in tensor.shape or ()):
            problem = f"input {tensor.name} has no fixed shape, or a type that a file cannot store"
            raise ConfigError(problem, file=path)
    return graph


def compiled_model(case: CaseSession, path: Path, inputs: Files, tolerance: float) -> CompiledModel:
    """Compile a model with LiteRT for the device of a case, and run it on LiteRT's CPU.

    `tolerance` 0 means the usual one. Raises TargetFailure if the compiler or its plug-in refuses
    it or takes no node, InfraError, and ConfigError for a file that LiteRT does not take, or for
    inputs or a tolerance with a model that its CPU does not run.
    """
    graph, tensors = open_model(path), TensorFiles(cache_root())
    surface = graph.named(graph.inputs)
    if inputs is None:
        input_files = tensors.generated(surface, path)
    else:
        input_files = tensors.resolve("inputs", inputs, surface, path)
    prepared = case.prepared
    host = litert_host(prepared.provisioner.catalog, prepared.compiler)
    soc = soc_for(case.device.soc, prepared.htp_arch)
    case.notes.makers.append(host.qnn_version)
    try:
        compiled_path = compile_litert(host, path, soc, cache_root())
        compiled = read_tflite_graph(compiled_path)
        parts = assign_partitions(graph, compiled)
        if not any(parts):
            reason = f"the plug-in accepted none of {counted(len(parts), 'node')} for {soc}"
            raise CompileError(f"LiteRT compiled nothing of {path.name}", chain=[reason])
    except CompileError as error:
        refusal = diagnosed("failed", ErrorRecord.of(message=str(error)), foreseen=case.foreseen)
        raise TargetFailure(Verdict("failed", "target", refusal)) from error
    partitions = [node for node in compiled.nodes if node.partition is not None]
    refused, files = None, dict[str, Path]()
    try:
        ends = [number for node in partitions for number in node.inputs + node.outputs]
        numbers = numbers_of(graph, {tensor.name for tensor in compiled.named(ends)})
        inputs_by_number = dict(zip(graph.inputs, input_files, strict=True))
        with scratch_folder() as folder:
            outputs = run_on_cpu(host, path, inputs_by_number, tuple(numbers.values()), folder)
            files = {name: tensors.store(outputs[i].read_bytes()) for name, i in numbers.items()}
    except RefusedByCpu as error:
        refused = str(error)
        has_tolerance = 0 < tolerance < ANY_DISTANCE
        if has_tolerance or inputs is not None:
            problem = f"has no effect, since LiteRT cannot run this model on the CPU: {refused}"
            field = "tolerance" if has_tolerance else "inputs"
            raise ConfigError(problem, file=path, field=field) from error
    pieces = open_artefact(compiled_path).pieces
    piece_of = {name: piece for piece in pieces for name in piece.facts["partitions"]}
    sources = [
        _source(path, node, piece_of[str(node.partition)], compiled, files, tolerance)
        for node in partitions
    ]
    return CompiledModel(graph, parts, tuple(sources), soc, refused)


def numbers_of(graph: TfliteGraph, names: Collection[str]) -> dict[str, int]:
    """Return numbers of tensors by name (pure). Raises RefusedByCpu if none or several have it."""
    numbers = {tensor.name: i for i, tensor in enumerate(graph.tensors) if tensor.name in names}
    is_ambiguous = sum(tensor.name in names for tensor in graph.tensors) > len(numbers)
    if is_ambiguous or (missing := sorted(set(names) - numbers.keys())):
        reason = "two tensors have one name" if is_ambiguous else f"it has no tensor {missing[0]!r}"
        raise RefusedByCpu(f"the model does not match the compiler's output: {reason}")
    return numbers


def _source(
    path: Path,
    node: TfliteNode,
    piece: Piece,
    compiled: TfliteGraph,
    files: Mapping[str, Path],
    tolerance: float,
) -> ContextFile:
    inputs, outputs = compiled.named(node.inputs), compiled.named(node.outputs)
    file = piece_file(piece, cache_root()).absolute()
    graph = node.partition if len(piece.facts["partitions"]) > 1 else None
    name = f"{path.name}#{node.partition}"
    if not files:
        return ContextFile(file, graph=graph, name=name)
    return ContextFile(
        file,
        inputs=[files[tensor.name] for tensor in inputs],
        expected=[files[tensor.name] for tensor in outputs],
        tolerance=tolerance or USUAL_TOLERANCE * _largest(outputs, files),
        graph=graph,
        name=name,
    )


def _largest(tensors: Iterable[Tensor], files: Mapping[str, Path]) -> float:
    import numpy as np

    largest = 0.0
    for tensor in tensors:
        if tensor.data_type not in ("", "bool8"):
            values = np.abs(np.fromfile(files[tensor.name], tensor.data_type).astype(np.float64))
            largest = max(largest, float(np.max(values[np.isfinite(values)], initial=0.0)))
    return largest
