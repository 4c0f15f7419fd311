"""The nodes of a .tflite, and which of them a partition of the compiled model has."""

import contextlib
from pathlib import Path

import pytest

from harness.containers.artefact import ArtefactError, Tensor
from harness.containers.tflite import (
    _TYPES,
    TfliteGraph,
    TfliteNode,
    _tensor,
    assign_partitions,
    read_tflite_graph,
)
from tests.snapshots import Snapshot
from tests.unit.containers.made import dispatch, tflite

COMPILED = Path(__file__).parents[2] / "field/simple_model_qualcomm_sm8650_precompiled.tflite"


def graph(tensors: str, *nodes: str) -> TfliteGraph:
    """Nodes as "OP a b -> c"; one whose op begins with @ is a partition of that name."""
    names = tensors.split()
    tables = []
    for node in nodes:
        before, _, after = node.partition(" -> ")
        op, *inputs = before.split()
        ends = [tuple(map(names.index, side)) for side in (inputs, after.split())]
        name = op[1:] if op.startswith("@") else None
        tables.append(TfliteNode("DISPATCH_OP" if name else op, ends[0], ends[1], name))
    numbered = tuple(Tensor(name, 8, "float32", (1, 2)) for name in names)
    return TfliteGraph(numbered, (0,), (len(names) - 1,), tuple(tables))


MODEL = graph("x w a b c y", "DEQUANTIZE -> w", "CONV x w -> a", "MY a -> b", "RELU a -> c")


@pytest.mark.parametrize(
    ("compiled", "partitions"),
    [
        (graph("x b c", "@p x -> b c"), ["p", "p", "p", "p"]),
        (graph("x a b c", "@p x -> a", "MY a -> b", "@q a -> c"), ["p", "p", None, "q"]),
        (graph("x a b c", "@p x -> c a", "MY a -> b"), ["p", "p", None, "p"]),
        # a weight that the CPU makes is given to the partition
        (graph("x w c", "DEQUANTIZE -> w", "@p x w -> c"), [None, "p", None, "p"]),
        (graph("x a b c", "CONV x -> a", "MY a -> b", "RELU a -> c"), [None] * 4),
        # what no model has is in none
        (graph("x z", "@p x -> z"), [None] * 4),
    ],
)
def test_which_partition_has_a_node(compiled: TfliteGraph, partitions: list[str | None]) -> None:
    assert assign_partitions(MODEL, compiled) == partitions


def test_the_nodes_of_a_compiled_model() -> None:
    compiled = read_tflite_graph(COMPILED)
    (node,) = compiled.nodes
    assert (node.op, node.partition) == ("DISPATCH_OP", "qnn_partition_0")
    assert (compiled.inputs, compiled.outputs) == (node.inputs, node.outputs)
    tensors = compiled.named(compiled.inputs)
    assert [(tensor.name, tensor.size) for tensor in tensors] == [("arg0", 8), ("arg1", 8)]


def test_the_bytes_of_a_tensor() -> None:
    sizes = {"int8": 6, "float16": 12, "float32": 24, "int64": 48, "": 0}
    for data_type, size in sizes.items():
        assert _tensor("t", _TYPES.index(data_type), (1, 2, 3)) == Tensor("t", size, data_type)


def test_what_is_no_graph(tmp_path: Path, snapshot: Snapshot) -> None:
    for content in (
        b"short",
        COMPILED.read_bytes().replace(b"TFL3", b"TFL4", 1),
        tflite([("Other", None)], graphs=2),
        tflite([("DISPATCH_OP", dispatch(0, 0, "p"))]),
    ):
        (tmp_path / "m.tflite").write_bytes(content)
        with snapshot.raises(ArtefactError):
            read_tflite_graph(tmp_path / "m.tflite")


def test_a_damaged_graph_is_an_error_of_the_file(tmp_path: Path) -> None:
    for field in range(40, 1200, 4):
        content = bytearray(COMPILED.read_bytes()[:4096])
        content[field : field + 4] = b"\xff\xff\xff\x7f"
        (tmp_path / "m.tflite").write_bytes(content)
        # whatever else would be raised is a crash
        with contextlib.suppress(ArtefactError):
            assert read_tflite_graph(tmp_path / "m.tflite").tensors
