"""`qnn-harness run --profile`: which op is slow, told by the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness

NODES = ("conv1", "relu1", "conv2", "relu2", "pool")


@pytest.fixture
def cnn(lab: DeviceRuns) -> Path:
    """Two convolutions with what belongs to them, and a mean over all places."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((random.standard_normal(shape) / 9).astype(np.float32), name)
        for name, shape in (("w1", (16, 3, 3, 3)), ("w2", (32, 16, 3, 3)))
    ]
    kinds = ("Conv", "Relu", "Conv", "Relu", "GlobalAveragePool")
    inputs = (["x", "w1"], ["conv1"], ["relu1", "w2"], ["conv2"], ["relu2"])
    nodes = [
        helper.make_node(
            kind, tensor, [name], name, **({"pads": [1] * 4} if kind == "Conv" else {})
        )
        for kind, tensor, name in zip(kinds, inputs, NODES, strict=True)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
    y = helper.make_tensor_value_info("pool", TensorProto.FLOAT, [1, 32, 1, 1])
    graph = helper.make_graph(nodes, "cnn", [x], [y], weights)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, lab.folder / "cnn.onnx")
    return lab.folder / "cnn.onnx"


def profile_in(record: dict[str, Any]) -> dict[str, Any]:
    assert record["outcome"] == "passed", record["error"]
    profile: dict[str, Any] = record["measurements"]["profile"]
    return profile


def require_whole(profile: dict[str, Any]) -> None:
    """The ops of each run are within 5 % of what the accelerator says itself."""
    totals = profile["total"]["runs"]
    assert len(totals) == 5
    for number, total in enumerate(totals):
        assert sum(op["runs"][number] for op in profile["ops"]) == pytest.approx(total, rel=0.05)
    assert profile["total"]["event"] == "Accelerator (execute) time (cycles)"
    assert {op["source"] for op in profile["ops"]} > {*NODES}
    assert profile["notes"] == []
    assert isinstance(profile["added_us"], int)


@pytest.mark.parametrize("qnn", [pytest.param("2.47.0", marks=pytest.mark.slow), "2.51.0"])
def test_the_ops_of_a_model_add_up_to_the_accelerators_total(
    lab: DeviceRuns, cnn: Path, qnn: str
) -> None:
    code, stderr, (record,) = lab.run_files(cnn.name, "--profile=ops", f"--qnn={qnn}")
    assert code == 0, stderr
    profile = profile_in(record)
    require_whole(profile)
    assert [phase["phase"] for phase in profile["phases"]] == ["QNN (load binary) time"]
    assert "most expensive of" in stderr
    page = (lab.reports / "latest/report.html").read_text()
    assert "<h2>Which op is slow</h2>" in page
    assert 'class="measured sortable"' in page
    # what the case itself ran is what runs without a profile
    folder = lab.reports / "latest" / Path(record["logs"][0]).parent
    assert "profile" not in (folder / "probe.plan").read_text()


def test_onnx_runtime_tells_what_preparing_took_too(lab: DeviceRuns, cnn: Path) -> None:
    code, stderr, (record,) = lab.run_files(cnn.name, "--profile=ops", "--engine=ort")
    assert code == 0, stderr
    profile = profile_in(record)
    require_whole(profile)
    phases = [phase["phase"] for phase in profile["phases"]]
    assert phases[:3] == [
        "QNN (finalize) time",
        "Graph Preparation Initializing",
        "Graph Optimizations",
    ]


@pytest.mark.slow
def test_the_basic_profile_has_a_total_and_no_ops(lab: DeviceRuns, cnn: Path) -> None:
    code, stderr, (record,) = lab.run_files(cnn.name, "--profile=basic")
    assert code == 0, stderr
    profile = profile_in(record)
    assert (profile["ops"], profile["total"]["event"]) == ([], "Accelerator (execute) time")


def test_another_level_is_refused_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    completed = qnn_harness("run", tmp_path / "m.onnx", "--profile=deep")
    assert completed.returncode == 2
    assert "'deep' is not one of 'basic', 'ops'" in completed.stderr
