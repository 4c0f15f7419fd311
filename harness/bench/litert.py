"""LiteRT on a device: what its compiler took of a .tflite, run as the contexts that came of it.

No library of LiteRT is on the device. Each partition is loaded by the probe, and given what
LiteRT's own CPU computed for it: what a model has between its partitions stays on that CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.bench.case_session import CaseSession, TargetFailure
from harness.containers.artefact import Piece
from harness.containers.extract import piece_file
from harness.containers.graph_nodes import CPU, NPU, GraphNode, Placed, figures_of
from harness.containers.open import open_artefact
from harness.containers.tflite_graph import (
    TfliteGraph,
    TfliteNode,
    TfliteTensor,
    read_tflite_graph,
    taken_by,
)
from harness.core.cache import cache_root
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.core.whole_file import scratch_folder
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.models.compiler import CompileError
from harness.models.context_file import ContextFile, Files
from harness.models.litert import (
    LITERT_VERSION,
    RefusedByCpu,
    compile_litert,
    litert_host,
    run_on_cpu,
    soc_for,
)
from harness.models.metadata import Tensor
from harness.models.source import ANY_DISTANCE
from harness.models.tensor_files import TensorFiles

USUAL_TOLERANCE: Final = 0.02
"""By how much outputs may differ where nobody says: this part of the largest of a partition.

The HTP computes with 16 bits what is float32.
"""

ON_LITERT: Final = "LiteRT's CPU"


@dataclass(frozen=True)
class CompiledModel:
    """What came of a model: its nodes, and by node the partition that has it (None: the CPU).

    `sources` are the partitions as contexts with their inputs and what the CPU says is expected;
    `refused` is why the CPU says nothing, None if it does. `soc` is what it was compiled for.
    """

    graph: TfliteGraph
    taken: Sequence[str | None]
    sources: tuple[ContextFile, ...]
    soc: str
    refused: str | None

    def figures(self) -> dict[str, object]:
        """As it stands in the measurements of a record."""
        return {
            "version": LITERT_VERSION,
            "soc": self.soc,
            "reference": self.refused or ON_LITERT,
            "tolerance": {one.name: one.tolerance for one in self.sources},
        }

    def places(self) -> dict[str, object]:
        """Where each node is, in the words that all engines have."""
        why = "LiteRT's plug-in for QNN did not take it"
        placed = [
            Placed(
                GraphNode(
                    self._name(node) or f"{at}",
                    node.op,
                    tuple(map(str, node.inputs)),
                    tuple(map(str, node.outputs)),
                ),
                NPU if part else CPU,
                part,
                None if part else why,
            )
            for at, (node, part) in enumerate(zip(self.graph.nodes, self.taken, strict=True))
        ]
        sizes = {str(at): one.size for at, one in enumerate(self.graph.tensors) if one.data_type}
        return figures_of(placed, sizes)

    def _name(self, node: TfliteNode) -> str:
        return self.graph.tensors[node.outputs[0]].name if node.outputs else ""

    def __str__(self) -> str:
        count, number = len(self.taken), len(self.sources)
        cpu = sum(one is None for one in self.taken)
        parts, nodes = counted(number, "partition"), counted(count, "node")
        lines = [f"of {nodes} {count - cpu} on the NPU, in {parts}, and {cpu} on the CPU"]
        if cpu or number > 1:
            lines.append(
                "each partition ran by itself, on what LiteRT's CPU computed before it; the nodes "
                "between them ran on this computer's CPU only"
            )
        if self.refused is not None:
            lines[1:] = [
                "LiteRT's CPU does not run this model: partitions ran on inputs that are made up, "
                f"and nothing is compared; {self.refused}"
            ]
        return "\n".join(lines)


def open_model(path: Path) -> TfliteGraph:
    """The graph of a .tflite that can be compiled. Raises ConfigError for any other file."""
    artefact = open_artefact(path)
    if artefact.kind != "tflite":
        raise ConfigError(f"LiteRT compiles a .tflite, and this is: {artefact.kind}", file=path)
    if artefact.pieces:
        problem = "is compiled for QNN already: run it without --engine"
        raise ConfigError(problem, file=path)
    graph = read_tflite_graph(path)
    for tensor in graph.named(graph.inputs):
        if tensor.data_type is None or any(size <= 0 for size in tensor.shape):
            problem = f"the input {tensor.name} has no fixed shape, or a type that no file can hold"
            raise ConfigError(problem, file=path)
    return graph


def compiled_model(case: CaseSession, path: Path, inputs: Files, tolerance: float) -> CompiledModel:
    """A model as LiteRT compiles it for the device of a case, and what its CPU makes of it.

    `tolerance` 0 means the usual one. Raises TargetFailure if the compiler or its plug-in refuses
    it, or takes no node. Raises InfraError, and ConfigError for a file that LiteRT does not take,
    or inputs or a tolerance for a model that its CPU does not run.
    """
    graph, tensors = open_model(path), TensorFiles(cache_root())
    surface = [
        Tensor(one.name, one.size, str(one.data_type), one.shape)
        for one in graph.named(graph.inputs)
    ]
    if inputs is None:
        read = tensors.generated(surface, path)
    else:
        read = tensors.given("inputs", inputs, surface, path)
    target = case.target
    host = litert_host(target.provisioner.catalog, target.compiler)
    soc = soc_for(case.device.soc, target.htp_arch)
    case.notes.makers.append(host.qnn_version)
    try:
        made = compile_litert(host, path, soc, cache_root())
        compiled = read_tflite_graph(made)
        taken = taken_by(graph, compiled)
        if not any(taken):
            why = f"its plug-in took none of {counted(len(taken), 'node')} for {soc}"
            raise CompileError(f"LiteRT compiled nothing of {path.name}", chain=[why])
    except CompileError as error:
        refusal = diagnosed("failed", ErrorRecord.of(message=str(error)), foreseen=case.foreseen)
        raise TargetFailure(Verdict("failed", "target", refusal)) from error
    partitions = [node for node in compiled.nodes if node.partition is not None]
    refused, found = None, dict[str, Path]()
    try:
        ends = [one for node in partitions for one in node.inputs + node.outputs]
        wanted = numbers_of(graph, {one.name for one in compiled.named(ends)})
        given = dict(zip(graph.inputs, read, strict=True))
        with scratch_folder() as folder:
            ran = run_on_cpu(host, path, given, tuple(wanted.values()), folder)
            found = {name: tensors.keep(ran[at].read_bytes()) for name, at in wanted.items()}
    except RefusedByCpu as error:
        refused = str(error)
        asked = 0 < tolerance < ANY_DISTANCE
        if asked or inputs is not None:
            problem = f"of no use: LiteRT's CPU does not run this model, {refused}"
            raise ConfigError(
                problem, file=path, field="tolerance" if asked else "inputs"
            ) from error
    pieces = {name: one for one in open_artefact(made).pieces for name in one.facts["partitions"]}
    sources = [
        _source(path, node, pieces[str(node.partition)], compiled, found, tolerance)
        for node in partitions
    ]
    return CompiledModel(graph, taken, tuple(sources), soc, refused)


def numbers_of(graph: TfliteGraph, names: Collection[str]) -> dict[str, int]:
    """The numbers of tensors by their names (pure).

    Raises RefusedByCpu for a name that no tensor has, or several have.
    """
    found = {one.name: at for at, one in enumerate(graph.tensors) if one.name in names}
    several = sum(one.name in names for one in graph.tensors) > len(found)
    if several or (missing := sorted(set(names) - found.keys())):
        why = "two tensors have one name" if several else f"it has no tensor {missing[0]!r}"
        raise RefusedByCpu(f"what the compiler names cannot be found in the model: {why}")
    return found


def _source(
    path: Path,
    node: TfliteNode,
    piece: Piece,
    compiled: TfliteGraph,
    found: Mapping[str, Path],
    tolerance: float,
) -> ContextFile:
    """A partition as a context, with the files of its tensors where there are any."""
    inputs, outputs = compiled.named(node.inputs), compiled.named(node.outputs)
    file = piece_file(piece, cache_root()).absolute()
    graph = node.partition if len(piece.facts["partitions"]) > 1 else None
    name = f"{path.name}#{node.partition}"
    if not found:
        return ContextFile(file, graph=graph, name=name)
    return ContextFile(
        file,
        inputs=[found[one.name] for one in inputs],
        expected=[found[one.name] for one in outputs],
        tolerance=tolerance or USUAL_TOLERANCE * _largest(outputs, found),
        graph=graph,
        name=name,
    )


def _largest(tensors: Iterable[TfliteTensor], found: Mapping[str, Path]) -> float:
    """The largest magnitude of all values of tensors."""
    import numpy as np

    largest = 0.0
    for one in tensors:
        if one.data_type not in (None, "bool8"):
            values = np.abs(np.fromfile(found[one.name], one.data_type).astype(np.float64))
            largest = max(largest, float(np.max(values[np.isfinite(values)], initial=0.0)))
    return largest
