"""The nodes of a LiteRT model (.tflite), and which of them a compiler for an NPU took.

A compiled model names its tensors like the model that it was made of. So each node of that is found
in a partition of the compiled one, or beside them. The layout is that of tflite/schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from harness.containers.artefact import ArtefactError, FileBytes
from harness.containers.pte import FlatTable
from harness.containers.tflite import DISPATCH, TFLITE_IDENTIFIER, dispatched
from harness.core.outgoing_text import counted

# TensorType of schema.fbs, by number, as far as files can hold them
_TYPES: Final = (
    *("float32", "float16", "int32", "uint8", "int64", None, "bool8", "int16", None, "int8"),
    *("float64", None, "uint64", None, None, "uint32", "uint16"),
)

# numbers of fields in schema.fbs
_CODES, _SUBGRAPHS = 1, 2
_OLD_CODE, _CUSTOM_CODE, _CODE = 0, 1, 3
_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS, _OPERATORS = 0, 1, 2, 3
_SHAPE, _TYPE, _TENSOR_NAME = 0, 1, 3
_OPCODE_INDEX, _INPUTS, _OUTPUTS = 0, 1, 2


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor; `data_type` is None for one that no file can hold."""

    name: str
    data_type: str | None
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        bits = (self.data_type or "0").lstrip("abcdefghijklmnopqrstuvwxyz")
        return int(bits) // 8 * math.prod(self.shape)


@dataclass(frozen=True)
class TfliteNode:
    """One operator; tensors by their number. `partition`: its graph in the code for an NPU."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    partition: str | None = None


@dataclass(frozen=True)
class TfliteGraph:
    """The graph of a model: tensors by their number, nodes in the order of their execution."""

    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[TfliteNode, ...]

    def named(self, numbers: Sequence[int]) -> tuple[TfliteTensor, ...]:
        """The tensors of these numbers."""
        return tuple(self.tensors[number] for number in numbers)


@cache
def _op_names() -> Sequence[str]:
    """The names of operators by their number: BuiltinOperator of schema.fbs."""
    return files("harness.containers").joinpath("tflite-operators.tsv").read_text("ascii").split()


def read_tflite_graph(path: Path) -> TfliteGraph:
    """The graph of a model. Raises ArtefactError, also for a model of several graphs."""
    with FileBytes(path) as data:
        if data.size < 8 or data.at(4, 4, "the file's kind") != TFLITE_IDENTIFIER:
            raise ArtefactError("is no .tflite", file=path)
        model = FlatTable.root(data, "the model")
        codes = [_op(code) for code in model.tables(_CODES, "operator code")]
        subgraphs = list(model.tables(_SUBGRAPHS, "subgraph"))
        if len(subgraphs) != 1:
            problem = (
                f"has {counted(len(subgraphs), 'graph')}; only a model of one is taken apart here"
            )
            raise ArtefactError(problem, file=path)
        return _graph(data, subgraphs[0], codes)


def _type(number: int) -> str | None:
    return _TYPES[number] if 0 <= number < len(_TYPES) else None


def _op(code: FlatTable) -> str:
    # numbers above 127 do not fit into the older field
    number = max(code.number(_OLD_CODE, "<b"), code.number(_CODE, "<i"))
    names = _op_names()
    name = names[number] if 0 <= number < len(names) else f"operator {number}"
    return code.text(_CUSTOM_CODE) or name


def _graph(data: FileBytes, table: FlatTable, codes: Sequence[str]) -> TfliteGraph:
    tensors = tuple(
        TfliteTensor(
            one.text(_TENSOR_NAME),
            _type(one.number(_TYPE, "<b")),
            one.integers(_SHAPE),
        )
        for one in table.tables(_TENSORS, "tensor")
    )
    nodes = []
    for operator in table.tables(_OPERATORS, "operator"):
        index = operator.number(_OPCODE_INDEX, "<I")
        if index >= len(codes):
            raise data.error(f"{operator.what} has code {index} of {len(codes)}", 0)
        name = dispatched(data, operator)[2] if codes[index] == DISPATCH else None
        inputs, outputs = (operator.integers(field) for field in (_INPUTS, _OUTPUTS))
        given = tuple(one for one in inputs if one >= 0)  # -1: an input that is left out
        nodes.append(TfliteNode(codes[index], given, outputs, name))
    first, last = (table.integers(field) for field in (_GRAPH_INPUTS, _GRAPH_OUTPUTS))
    for used in (first, last, *(node.inputs + node.outputs for node in nodes)):
        if any(not 0 <= number < len(tensors) for number in used):
            raise data.error(f"a tensor is named, and there are {len(tensors)}: {used[:8]}", 0)
    return TfliteGraph(tensors, first, last, tuple(nodes))


def taken_by(model: TfliteGraph, compiled: TfliteGraph) -> list[str | None]:
    """For each node of a model the partition of the compiled one that has it; None: the CPU (pure).

    It is the partition whose outputs need the node, up to what the partition is given. A node that
    nothing needs is in none.
    """
    producer = {
        model.tensors[output].name: at
        for at, node in enumerate(model.nodes)
        for output in node.outputs
    }
    found: list[str | None] = [None] * len(model.nodes)
    for partition in compiled.nodes:
        if partition.partition is None:
            continue
        given = {one.name for one in compiled.named(partition.inputs)}
        todo = [one.name for one in compiled.named(partition.outputs)]
        seen = set(todo)
        while todo:
            at = producer.get(todo.pop())
            if at is None:
                continue
            found[at] = found[at] or partition.partition
            new = {one.name for one in model.named(model.nodes[at].inputs)} - given - seen
            seen |= new
            todo += new
    return found
