"""A profile on an emulated DSP: what the arm64 library refuses is told, and fails no case."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.integration.device_runs import DeviceRuns
from tests.needed import DSP, need


@pytest.mark.slow
def test_a_detailed_profile_that_is_refused_becomes_a_basic_one(tmp_path: Path) -> None:
    need(DSP)
    lab = DeviceRuns(tmp_path)
    lab.file.write_text(
        "schema: 1\n"
        "devices:\n"
        "  - {name: dsp, simulated: true, soc: QCS8550, target: linux-arm64, dsp: true}\n"
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opsets), tmp_path / "m.onnx")
    code, output, (record,) = lab.run_files("m.onnx", "--profile=ops")
    assert (code, record["outcome"]) == (0, "passed"), output
    profile = record["measurements"]["profile"]
    assert (profile["level"], profile["ops"]) == ("basic", [])
    (note,) = profile["notes"]
    assert "(6006, QNN_GRAPH_ERROR_SET_PROFILE)" in note
    assert "refuses a detailed profile" in output
