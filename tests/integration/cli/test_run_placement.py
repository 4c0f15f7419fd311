"""`qnn-harness run` of a model of which the NPU refuses nodes, with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cut_models import CUT
from tests.integration.device_runs import DeviceRuns

SHAPE = [1, 4, 8, 8]


def two_refused(path: Path) -> None:
    """A model of six nodes, of which QNN's provider takes no Shrink and no Acosh."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y"))
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu_1"),
        helper.make_node("Shrink", ["a"], ["b"], name="shrink_1", lambd=-0.5),
        helper.make_node("Exp", ["b"], ["c"], name="exp_1"),
        helper.make_node("Acosh", ["c"], ["d"], name="acosh_1"),
        helper.make_node("Add", ["d", "a"], ["e"], name="add_1"),
        helper.make_node("Tanh", ["e"], ["y"], name="tanh_1"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), path)


def places(record: dict[str, Any]) -> dict[str, str]:
    return {row["node"]: row["on"] for row in record["measurements"]["nodes"]}


WHERE = {
    "relu_1": "NPU",
    "shrink_1": "CPU",
    "exp_1": "NPU",
    "acosh_1": "CPU",
    "add_1": "NPU",
    "tanh_1": "NPU",
}
REASON = "Operators of type `Shrink` are not supported by QNN EP."


def test_with_fallback_a_model_passes_and_its_record_tells_what_ran_where(lab: DeviceRuns) -> None:
    two_refused(lab.folder / "two.onnx")
    arguments = ("--fallback=allow", "--qnn=2.47.0,2.51.0", "--ort=1.24.1,1.27.0")
    code, stderr, records = lab.run_files("two.onnx", "--tolerance=0.02", *arguments)
    assert (code, len(records)) == (0, 4), stderr
    for record in records:
        assert (record["outcome"], record["outputs"]) == ("passed", "reference")
        figures = record["measurements"]
        assert places(record) == WHERE
        assert {row["node"]: row["reason"] for row in figures["nodes"]}["shrink_1"] == REASON
        # a goes to both, b, c and d each to the other side
        assert figures["partitions"] == 3
        assert figures["transfers"] == {"tensors": 5, "bytes": 5 * 4 * 4 * 8 * 8}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ort", "qnn"])
def test_without_fallback_it_fails_and_names_what_is_refused(lab: DeviceRuns, engine: str) -> None:
    two_refused(lab.folder / "two.onnx")
    (lab.folder / "in").mkdir()
    np.zeros(SHAPE, np.float32).tofile(lab.folder / "in/x.raw")
    arguments = ("two.onnx", "--inputs=in", f"--engine={engine}")
    code, stderr, (one,) = lab.run_files(*arguments, "--fallback=refuse")
    assert (code, one["outcome"], one["cause"]) == (1, "failed", "target"), stderr
    error = one["error"]
    assert error["diagnosis"]["id"] == "op-unsupported"
    first, second, help_, *_ = error["message"].splitlines()
    assert first == f"op shrink_1 (Shrink, float32 [1, 4, 8, 8]) is not supported here: {REASON}"
    assert second.startswith("op acosh_1 (Acosh, float32 [1, 4, 8, 8]) is not supported here: ")
    assert "--fallback allow" in help_
    assert "by the user" not in error["message"]
    assert places(one) == WHERE


@pytest.mark.slow
def test_what_is_carried_over_is_that_of_the_graph_that_runs(lab: DeviceRuns) -> None:
    """ORT renames what it gives another layout, takes functions apart, and leaves nodes out."""
    for name, (model, *_) in CUT.items():
        onnx.save(model, lab.folder / f"{name}.onnx")
    _, stderr, records = lab.run_files(*(f"{name}.onnx" for name in CUT), "--fallback=allow")
    assert len(records) == len(CUT), stderr
    placements = {}
    for record in records:
        figures = record["measurements"]
        carried = figures["transfers"]
        name = record["case"].partition(".onnx")[0]
        placements[name] = figures["partitions"], carried["tensors"], carried["bytes"]
        added = [row for row in figures["nodes"] if row["added_by"]]
        assert {row["op_type"] for row in added} <= {"Transpose"}
        assert all(row["node"] for row in figures["nodes"])
    assert placements == {name: tuple(told) for name, (_, *told) in CUT.items()}


@pytest.mark.slow
def test_what_nobody_can_cut_again_is_not_known(lab: DeviceRuns) -> None:
    """Mish is taken apart into nodes without a name, once what else there is was cut."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y"))
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Mish", ["a"], ["b"]),
        helper.make_node("Shrink", ["b"], ["c"], lambd=0.1),
        helper.make_node("Tanh", ["c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opset), lab.folder / "mish.onnx")
    _, stderr, (one,) = lab.run_files("mish.onnx", "--fallback=allow")
    figures = one["measurements"]
    assert figures["transfers"] is None
    assert "it is not known what is carried over" in stderr
    assert places(one)["Shrink_2"] == "CPU"


def test_an_engine_that_leaves_nothing_to_the_cpu_says_so(lab: DeviceRuns) -> None:
    two_refused(lab.folder / "two.onnx")
    code, stderr, _ = lab.run_files("two.onnx", "--engine=qnn", "--fallback=allow")
    assert code == 2
    assert "--engine ort" in stderr
