"""Nodes by where they ran: partitions, and what crosses between them."""

from __future__ import annotations

from pathlib import Path

from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.graph_nodes import (
    CPU,
    NPU,
    GraphNode,
    Placed,
    figures_of,
    placed_as,
)
from harness.libraries.containers.pte import method_nodes

FIELD = Path(__file__).parents[3] / "field/executorch-3-contexts.pte"
A, B, C, D = (
    GraphNode("a", "Relu", ("x",), ("t",)),
    GraphNode("b", "Shrink", ("t",), ("u",)),
    GraphNode("c", "Add", ("t", "u"), ("v",)),
    GraphNode("d", "Tanh", ("v", "t"), ("y",)),
)


def test_a_tensor_crosses_once_to_each_part_that_reads_it() -> None:
    placed = [Placed(A, NPU, "1"), Placed(B, CPU, None, "no"), Placed(C, NPU, "2")]
    told = figures_of([*placed, Placed(D, NPU, "2")], {"t": 4, "u": 8})
    # t to the CPU, t and u to the second part, which has t already when d reads it
    assert told["transfers"] == {"tensors": 3, "bytes": 16}
    assert told["partitions"] == 2
    row = {"node": "b", "op_type": "Shrink", "on": "CPU", "reason": "no"}
    assert told["nodes"][1] == row  # type: ignore[index]


def test_where_a_size_is_not_known_no_sum_is_told() -> None:
    told = figures_of([Placed(A, NPU, "1"), Placed(B, CPU)], {"u": 8})
    assert told["transfers"] == {"tensors": 1, "bytes": None}
    assert figures_of([], {})["transfers"] == {"tensors": 0, "bytes": 0}


def test_nodes_stand_in_the_models_order_and_what_was_folded_in_does_not() -> None:
    assigned = [
        ("0", NPU, [("d", "Tanh"), ("", "Add"), ("copied", "Cast")]),
        (None, CPU, [("b", "Shrink")]),
    ]
    unnamed = GraphNode("", "Add", ("t",), ("v",))
    found = placed_as([A, B, unnamed, D], assigned, {"b": "no kernel", "d": "unused"})
    assert [(one.node.name, one.on, one.reason) for one in found] == [
        ("b", CPU, "no kernel"),
        ("", NPU, None),
        ("d", NPU, None),
        ("copied", NPU, None),
    ]
    assert found[1].node is unnamed
    (silent,) = placed_as([A], [(None, CPU, [("a", "Relu")])], {})
    assert silent.reason is not None
    assert "no reason" in silent.reason


def test_a_program_of_executorch_tells_delegates_and_portable_kernels() -> None:
    with FileBytes(FIELD) as data:
        told = figures_of(*method_nodes(data, "forward"))
    rows: list[dict[str, str]] = told["nodes"]  # type: ignore[assignment]
    assert [(one["op_type"], one["on"]) for one in rows] == [
        ("QnnBackend", NPU),
        ("aten::sigmoid.out", CPU),
    ] * 3
    assert "the export left it to the CPU" in rows[1]["reason"]
    # [1, 16, 4, 4] of float32, five times: there and back
    assert (told["partitions"], told["transfers"]) == (3, {"tensors": 5, "bytes": 5120})
