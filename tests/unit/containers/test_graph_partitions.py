"""Nodes by where they ran: partitions, and what crosses between them."""

from pathlib import Path

from harness.containers.artefact import FileBytes
from harness.containers.graph_partitions import (
    ADDED_BY_ORT,
    CPU,
    NPU,
    GraphNode,
    Placed,
    figures_of,
    is_as_in_file,
    placed_as,
    transfers_in,
)
from harness.containers.pte import method_nodes

FIELD = Path(__file__).parents[2] / "field/executorch-3-contexts.pte"
A, B, C, D = (
    GraphNode("a", "Relu", ("x",), ("t",)),
    GraphNode("b", "Shrink", ("t",), ("u",)),
    GraphNode("c", "Add", ("t", "u"), ("v",)),
    GraphNode("d", "Tanh", ("v", "t"), ("y",)),
)


def test_a_tensor_crosses_once_to_each_part_that_reads_it() -> None:
    placed = [Placed(A, NPU, "1"), Placed(B, CPU, None, "no"), Placed(C, NPU, "2")]
    figures = figures_of([*placed, Placed(D, NPU, "2")], {"t": 4, "u": 8})
    # t to the CPU, t and u to the second part, which has t already when d reads it
    assert figures["transfers"] == {"tensors": 3, "bytes": 16}
    assert figures["partitions"] == 2
    row = {"node": "b", "op_type": "Shrink", "on": "CPU", "reason": "no", "added_by": None}
    assert figures["nodes"][1] == row  # type: ignore[index]


def test_where_a_size_is_not_known_no_sum_is_told() -> None:
    figures = figures_of([Placed(A, NPU, "1"), Placed(B, CPU)], {"u": 8})
    assert figures["transfers"] == {"tensors": 1, "bytes": None}
    assert figures_of([], {})["transfers"] == {"tensors": 0, "bytes": 0}


def test_nodes_stand_in_the_models_order_and_what_was_folded_in_does_not() -> None:
    assigned = [
        ("0", NPU, [("d", "Tanh"), ("", "Add"), ("copied", "Cast")]),
        (None, CPU, [("b", "Shrink")]),
    ]
    unnamed = GraphNode("Add_2", "Add", ("t",), ("v",), unnamed=True)
    reasons = {("b", "Shrink"): "no kernel", ("d", "Tanh"): "unused"}
    placed = placed_as([A, B, unnamed, D], assigned, reasons)
    assert [(each.node.name, each.on, each.reason, each.added_by) for each in placed] == [
        ("b", CPU, "no kernel", None),
        ("Add_2", NPU, None, None),
        ("d", NPU, None, None),
        ("copied", NPU, None, ADDED_BY_ORT),
    ]
    assert placed[1].node is unnamed
    (silent,) = placed_as([A], [(None, CPU, [("a", "Relu")])], {})
    assert "no reason" in silent.reason


def test_a_node_in_another_layout_is_the_models_and_what_turns_it_is_not() -> None:
    conv = GraphNode("conv", "Conv", ("x",), ("t",))
    named = [("Transpose", "Transpose"), ("conv_token_1", "Conv"), ("_inlfunc_f_in", "Cast")]
    placed = placed_as([conv], [("0", NPU, named)], {})
    names = {each.node.name: each.added_by for each in placed}
    assert names == {"conv": None, "Transpose": ADDED_BY_ORT, "_inlfunc_f_in": None}
    assert not is_as_in_file([conv], placed)
    assert is_as_in_file([conv], placed_as([conv], [("0", NPU, [("conv", "Conv")])], {}))
    assert not is_as_in_file([conv, A], placed_as([conv], [("0", NPU, [("conv", "Conv")])], {}))


def test_what_a_graph_with_its_partitions_carries_over() -> None:
    """Another graph than that which ran tells nothing."""
    first = GraphNode("p0", "EPContext", ("x",), ("t",))
    refused = GraphNode("Shrink_1", "Shrink", ("t",), ("u",), unnamed=True)
    last = GraphNode("p1", "EPContext", ("u", "t"), ("y",))
    assigned = [("0", NPU, [("a", "Relu")]), ("1", NPU, [("b", "Relu")])]
    cut, sizes = [first, refused, last], {"t": 4, "u": 8}
    on_cpu = (None, CPU, [("", "Shrink")])
    assert transfers_in(cut, sizes, [*assigned, on_cpu]) == {"tensors": 3, "bytes": 16}
    assert transfers_in(cut, sizes, [*assigned, (None, CPU, [("", "Acosh")])]) is None
    assert transfers_in(cut, sizes, [assigned[0], on_cpu]) is None


def test_a_program_of_executorch_tells_delegates_and_portable_kernels() -> None:
    with FileBytes(FIELD) as data:
        figures = figures_of(*method_nodes(data, "forward"))
    rows: list[dict[str, str]] = figures["nodes"]  # type: ignore[assignment]
    places = [("QnnBackend", NPU), ("aten::sigmoid.out", CPU)]
    assert [(row["op_type"], row["on"]) for row in rows] == places * 3
    assert rows[1]["reason"]
    # [1, 16, 4, 4] of float32, five times: there and back
    assert (figures["partitions"], figures["transfers"]) == (3, {"tensors": 5, "bytes": 5120})
