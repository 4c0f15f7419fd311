"""Tables of the places of nodes: counted on the NPU, named elsewhere, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report.document import Table, markdown
from harness.report.model_figures import nodes_tables
from tests.unit.results.records import record


def node(name: str, op: str, on: str = "NPU", reason: str | None = None) -> dict[str, Any]:
    return {"node": name, "op_type": op, "on": on, "reason": reason}


def test_nodes_on_the_npu_are_counted_and_the_others_named() -> None:
    nodes = [node("r1", "Relu"), node("r2", "Relu"), node("s", "Shrink", "CPU", "no | kernel")]
    carried = {"tensors": 2, "bytes": 2048}
    figures = {"nodes": nodes, "partitions": 2, "transfers": carried}
    blocks = nodes_tables([record(case="../m.onnx::test_session[a]", measurements=figures)])
    text = markdown(blocks)
    assert (
        "`m.onnx::test_session[a]`: of 3 nodes 2 on the NPU, 1 on the CPU; "
        "2 partitions; 2 tensors of 2,048 bytes carried over"
    ) in text
    assert "| 2 nodes |" in text
    assert "Shrink" in text
    assert "no \\| kernel" in text


def test_what_the_runtime_added_is_no_node_of_the_model() -> None:
    added = {**node("Transpose_token_1", "Transpose"), "added_by": "ONNX Runtime"}
    figures = {"nodes": [node("c", "Conv"), added, added], "partitions": 1, "transfers": None}
    text = markdown(nodes_tables([record(measurements=figures)]))
    assert "of 1 node 1 on the NPU; ONNX Runtime added 2 nodes: 2 Transpose; 1 partition; " in text
    assert "it is not known what is carried over" in text
    assert "nodes | Transpose" not in text


@pytest.mark.parametrize(
    ("executed", "figures"),
    [
        (False, {}),
        (False, {"executed": 0}),
        (True, {"executed": 2}),
        (False, {"runs": 0}),
        (True, {"runs": 2}),
        (True, {"runs": 0, "session_outputs": {"y": "wrong.raw"}}),
        (True, {"executed": 0, "outputs": "reference"}),
    ],
)
def test_where_nothing_ran_it_is_told_as_planned(
    executed: bool, figures: dict[str, object]
) -> None:
    figures = {"nodes": [node("1", "Sigmoid", "CPU", "x")], **figures}
    compared = figures.pop("outputs", None)
    failed = record(outcome="failed", measurements=figures, outputs=compared)
    line, table = nodes_tables([failed])
    assert isinstance(table, Table)
    assert ("no run came to its end; if one did, of 1 node 1 on the CPU" in markdown([line])) is (
        not executed
    )
    assert table.title == ("What ran where" if executed else "What would run where")
    assert "| node 1 | Sigmoid |" in markdown([table])


def test_nodes_on_a_gpu_are_counted_too() -> None:
    nodes = [node(f"r{index}", "Relu", "GPU") for index in range(3)] + [
        node("s", "Shrink", "CPU", "no")
    ]
    text = markdown(nodes_tables([record(measurements={"nodes": nodes})]))
    assert "| 3 nodes | Relu | GPU |   |" in text
    assert "| s | Shrink | CPU | no |" in text


def test_long_tables_are_cut_and_say_so() -> None:
    nodes = [node(f"n{index}", f"Op{index}") for index in range(12)]
    nodes += [node(f"c{index}", "Cos", "CPU", "x" * 999) for index in range(25)]
    table = nodes_tables([record(measurements={"nodes": nodes})])[1]
    assert isinstance(table, Table)
    assert len(table.rows) == 8 + 1 + 20 + 1
    assert table.rows[8][:2] == ("4 nodes", "4 other ops")
    assert table.rows[-1][0] == "... and 5 more"
    nine = [node(f"n{index}", f"Op{index}") for index in range(9)]
    (table,) = nodes_tables([record(measurements={"nodes": nine})])[1:]
    assert isinstance(table, Table)
    assert all("other ops" not in str(row) for row in table.rows)
    assert len(nodes_tables([record(measurements={"nodes": nodes})] * 30)) == 41


def test_what_is_no_list_of_nodes_makes_no_table() -> None:
    for odd in (None, 3, [], [3, {"node": 1, "op_type": "x", "on": "NPU"}], {"node": "a"}):
        assert nodes_tables([record(measurements={"nodes": odd})]) == []
    assert nodes_tables([record()]) == []
