"""LiteRT models (.tflite): their graphs, and the places of their code for an NPU.

The layout is that of google-ai-edge/LiteRT: tflite/schema.fbs, and
litert/core/dispatch_op_schema.cc: each operator DISPATCH_OP names an offset and a size in the file.

A compiled model names its tensors like its source. So each node of the source can be assigned to a
partition of the compiled model, or to none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from harness.containers.artefact import Artefact, ArtefactError, FileBytes, Tensor, blob
from harness.containers.pte import FlatTable
from harness.core.outgoing_text import counted

TFLITE_IDENTIFIER: Final = b"TFL3"
"""At byte 4."""

DISPATCH: Final = "DISPATCH_OP"

# numbers of fields in schema.fbs
_CODES, _SUBGRAPHS = 1, 2
_OLD_CODE, _CUSTOM_CODE, _CODE = 0, 1, 3
_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS, _OPERATORS = 0, 1, 2, 3
_SHAPE, _TYPE, _TENSOR_NAME = 0, 1, 3
_OPCODE_INDEX, _INPUTS, _OUTPUTS, _CUSTOM_OPTIONS = 0, 1, 2, 5


def read_tflite(data: FileBytes) -> Artefact:
    """Return one piece for each byte code, none if nothing is compiled. Raises ArtefactError."""
    model = FlatTable.root(data, "the model")
    codes = [_op(code) for code in model.tables(_CODES, "operator code")]
    graphs: dict[tuple[int, int], list[str]] = {}
    others = 0
    for subgraph in model.tables(_SUBGRAPHS, "subgraph"):
        for operator, op in _operators(data, subgraph, codes):
            if op == DISPATCH:
                offset, size, name = _dispatched(data, operator)
                graphs.setdefault((offset, size), []).append(name)
            else:
                others += 1
    facts = {"other_nodes": others}
    pieces = tuple(
        blob(data, *place, names[0], {"partitions": names}) for place, names in graphs.items()
    )
    return Artefact(data.path, "tflite", pieces, facts)


def _operators(
    data: FileBytes, graph: FlatTable, codes: Sequence[str]
) -> Iterator[tuple[FlatTable, str]]:
    for operator in graph.tables(_OPERATORS, f"{graph.label}: operator"):
        index = operator.number(_OPCODE_INDEX, "<I")
        if index >= len(codes):
            raise data.error(f"{operator.label} has code {index}, but there are {len(codes)}", 0)
        yield operator, codes[index]


def _dispatched(data: FileBytes, operator: FlatTable) -> tuple[int, int, str]:
    from flatbuffers import flexbuffers  # with numpy, for which no other suite should wait

    place, length = operator.vector(_CUSTOM_OPTIONS, 1)
    content = data.read(place, length, f"the options of {operator.label}")
    try:
        fields = flexbuffers.GetRoot(content).AsMap
        offset, size = fields["bytecode_offset"].AsInt, fields["bytecode_size"].AsInt
        name = fields["name"].AsString
    except Exception as error:  # the library trusts its input, and may raise anything
        problem = f"the options of {operator.label} are damaged: {error or type(error).__name__}"
        raise data.error(problem, place) from error
    if not offset or not size:
        problem = f"{operator.label} has no byte code in this file (byte {offset}, {size} bytes)"
        raise data.error(problem, place)
    return offset, size, name


# TensorType of schema.fbs, by number; "" for types that no raw file can have
_TYPES: Final = (
    *("float32", "float16", "int32", "uint8", "int64", "", "bool8", "int16", "", "int8"),
    *("float64", "", "uint64", "", "", "uint32", "uint16"),
)


@dataclass(frozen=True)
class TfliteNode:
    """One operator; tensors by number. `partition` is its graph in the code for an NPU."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    partition: str | None = None


@dataclass(frozen=True)
class TfliteGraph:
    """The graph of a model: tensors by number, nodes in the order of execution."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[TfliteNode, ...]

    def named(self, numbers: Sequence[int]) -> tuple[Tensor, ...]:
        return tuple(self.tensors[number] for number in numbers)


@cache
def _op_names() -> Sequence[str]:
    """Return the names of operators by number: BuiltinOperator of schema.fbs."""
    return files("harness.containers").joinpath("tflite-operators.tsv").read_text("ascii").split()


def read_tflite_graph(path: Path) -> TfliteGraph:
    """Return the graph of a model. Raises ArtefactError, also for a model of several graphs."""
    with FileBytes(path) as data:
        if data.size < 8 or data.read(4, 4, "the file's kind") != TFLITE_IDENTIFIER:
            raise ArtefactError("is not a .tflite", file=path)
        model = FlatTable.root(data, "the model")
        codes = [_op(code) for code in model.tables(_CODES, "operator code")]
        subgraphs = list(model.tables(_SUBGRAPHS, "subgraph"))
        if len(subgraphs) != 1:
            problem = f"has {counted(len(subgraphs), 'graph')}; only models with one are supported"
            raise ArtefactError(problem, file=path)
        return _graph(data, subgraphs[0], codes)


def _op(code: FlatTable) -> str:
    # numbers above 127 do not fit into the older field
    number = max(code.number(_OLD_CODE, "<b"), code.number(_CODE, "<i"))
    names = _op_names()
    name = names[number] if 0 <= number < len(names) else f"operator {number}"
    return code.text(_CUSTOM_CODE) or name


def _tensor(name: str, number: int, shape: tuple[int, ...]) -> Tensor:
    data_type = _TYPES[number] if 0 <= number < len(_TYPES) else ""
    bits = int(data_type.lstrip("abcdefghijklmnopqrstuvwxyz") or 0)
    return Tensor(name, bits // 8 * math.prod(shape), data_type, shape)


def _graph(data: FileBytes, table: FlatTable, codes: Sequence[str]) -> TfliteGraph:
    tensors = tuple(
        _tensor(tensor.text(_TENSOR_NAME), tensor.number(_TYPE, "<b"), tensor.integers(_SHAPE))
        for tensor in table.tables(_TENSORS, "tensor")
    )
    nodes = []
    for operator, op in _operators(data, table, codes):
        name = _dispatched(data, operator)[2] if op == DISPATCH else None
        inputs, outputs = (operator.integers(field) for field in (_INPUTS, _OUTPUTS))
        present = tuple(number for number in inputs if number >= 0)  # -1: an input that is left out
        nodes.append(TfliteNode(op, present, outputs, name))
    first, last = (table.integers(field) for field in (_GRAPH_INPUTS, _GRAPH_OUTPUTS))
    for used in (first, last, *(node.inputs + node.outputs for node in nodes)):
        if any(not 0 <= number < len(tensors) for number in used):
            raise data.error(f"a tensor in {used[:8]} does not exist: there are {len(tensors)}", 0)
    return TfliteGraph(tensors, first, last, tuple(nodes))


def assign_partitions(model: TfliteGraph, compiled: TfliteGraph) -> list[str | None]:
    """Return the partition of the compiled model for each node of a model; None: the CPU (pure).

    It is the partition whose outputs depend on the node, from its inputs on. A node that no output
    depends on is in none.
    """
    producer = {
        model.tensors[output].name: index
        for index, node in enumerate(model.nodes)
        for output in node.outputs
    }
    partitions: list[str | None] = [None] * len(model.nodes)
    for partition in compiled.nodes:
        if partition.partition is None:
            continue
        inputs = {tensor.name for tensor in compiled.named(partition.inputs)}
        pending = [tensor.name for tensor in compiled.named(partition.outputs)]
        visited = set(pending)
        while pending:
            index = producer.get(pending.pop())
            if index is None:
                continue
            partitions[index] = partitions[index] or partition.partition
            names = {tensor.name for tensor in model.named(model.nodes[index].inputs)}
            new = names - inputs - visited
            visited |= new
            pending += new
    return partitions
