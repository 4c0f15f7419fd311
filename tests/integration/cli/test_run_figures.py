"""Accuracy of a model: figures beside those of plain numpy, of the stored outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.integration.device_runs import DeviceRuns
from tests.planted import Graph

SHAPE = [1, 4, 8, 8]


def _model(path: Path, *, scale: float | None = None) -> onnx.ModelProto:
    """Two outputs; with a `scale`, what goes in is quantised to 8 bits, from -128 to 127 of it."""
    random = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array((0.2 * random.standard_normal((4, 4, 3, 3))).astype("f4"), "w")
    ]
    nodes, x = [], "x"
    if scale is not None:
        by = {"scale": np.float32(scale), "zero": np.uint8(128)}
        weights += [numpy_helper.from_array(np.asarray(value), name) for name, value in by.items()]
        nodes = [
            helper.make_node("QuantizeLinear", ["x", *by], ["q"], "quantise"),
            helper.make_node("DequantizeLinear", ["q", *by], ["d"], "dequantise"),
        ]
        x = "d"
    nodes += [
        helper.make_node("Conv", [x, "w"], ["y"], "conv", pads=[1] * 4),
        helper.make_node("Tanh", ["y"], ["z"], "tanh"),
    ]
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xyz"
    }
    graph = helper.make_graph(nodes, "g", [tensors["x"]], [tensors["y"], tensors["z"]], weights)
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)])
    onnx.save(model, path)
    return model


def _figures(got: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> dict[str, float]:
    """The same as the product, in another way: all at once, and in double precision."""
    x, y = got.astype("f8").ravel(), right.astype("f8").ravel()
    off = x - y
    return {
        "max_abs": float(np.abs(off).max()),
        "relative_max_abs": float(np.abs(off).max() / np.abs(y).max()),
        "cosine": float(x @ y / np.linalg.norm(x) / np.linalg.norm(y)),
        "sqnr_db": float(10 * np.log10((y @ y) / (off @ off))),
    }


def _kept(lab: DeviceRuns, record: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a case, from the folder of its run."""
    measured = record["measurements"]
    if "kept_outputs" in measured:
        (context,) = measured["kept_outputs"].values()
        names = {each["name"]: f"{each['digest']}.raw" for each in context["outputs"]}
    else:
        names = measured["session_outputs"]
    folder = lab.reports / record["run"] / "outputs"
    return {name: np.fromfile(folder / file, "<f4") for name, file in names.items()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["qnn", "ort"])
def test_figures_are_those_of_plain_arithmetic(lab: DeviceRuns, engine: str) -> None:
    model = _model(lab.folder / "two.onnx")
    x = np.random.default_rng(9).uniform(-1, 1, SHAPE).astype("f4")
    right: Any = ReferenceEvaluator(model).run(None, {"x": x})
    for folder, values in (("in", {"x": x}), ("out", dict(zip("yz", right, strict=True)))):
        (lab.folder / folder).mkdir()
        for name, value in values.items():
            np.save(lab.folder / folder / f"{name}.npy", value)
    arguments = ("--inputs=in", "--expected=out", "--limit=tolerance=0.1", f"--engine={engine}")
    code, stderr, (record,) = lab.run_files("two.onnx", *arguments)
    assert code == 0, stderr
    outputs = _kept(lab, record)
    for figure in record["measurements"]["accuracy"]:
        figures = _figures(
            outputs[figure["output"]], dict(zip("yz", right, strict=True))[figure["output"]]
        )
        assert {name: figure[name] for name in figures} == pytest.approx(figures, rel=1e-9)
        assert (figure["inputs"], figure["not_finite"]) == ("given", 0)
        assert figure["sqnr_db"] > 40
    digests = [record["asked"].pop(name) for name in ("inputs", "expected")]
    assert [len(digest) for digest in digests] == [64, 64]
    assert {name: value for name, value in record["asked"].items() if value} == {"tolerance": 0.1}
    np.save(lab.folder / "in/x.npy", x / 2)
    _, _, (other,) = lab.run_files("two.onnx", *arguments)
    assert other["asked"]["inputs"] != digests[0], "another question"
    assert other["asked"]["expected"] == digests[1]


@pytest.mark.slow
def test_what_is_quantised_is_not_judged_by_what_it_cuts_off(lab: DeviceRuns) -> None:
    """Inputs from -1 to 1 would be cut off at 0.1, and their SQNR would be below 2 dB."""
    quantised = _model(lab.folder / "quantised.onnx", scale=0.1 / 127)
    plain = _model(lab.folder / "plain.onnx")
    code, stderr, (record,) = lab.run_files("quantised.onnx", "--reference=plain.onnx")
    assert code == 0, stderr
    for figure in record["measurements"]["accuracy"]:
        assert figure["inputs"] == "made up in range"
        assert figure["sqnr_db"] > 35
    assert "--inputs DIR" in stderr
    x = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype("f4")
    sides: Any = [ReferenceEvaluator(model).run(["y"], {"x": x})[0] for model in (quantised, plain)]
    assert _figures(*sides)["sqnr_db"] < 2


NODES = ("/conv_0", "/relu_1", "/conv_2", "/relu_3", "/globalaveragepool_4")


@pytest.fixture
def cnn(lab: DeviceRuns) -> Path:
    """Two convolutions with what belongs to them, and a mean over all places."""
    graph, scale = Graph(0, (1, 3, 32, 32)), 1 / 9
    x = graph.add("Conv", "x", graph.weight(16, 3, 3, 3, scale=scale), pads=[1] * 4)
    x = graph.add("Relu", x)
    x = graph.add("Conv", x, graph.weight(32, 16, 3, 3, scale=scale), pads=[1] * 4)
    x = graph.add("GlobalAveragePool", graph.add("Relu", x))
    onnx.save(graph.model(x), lab.folder / "cnn.onnx")
    return lab.folder / "cnn.onnx"


def whole_profile(record: dict[str, Any]) -> dict[str, Any]:
    """The ops of each run are within 5 % of what the accelerator says itself."""
    assert record["outcome"] == "passed", record["error"]
    profile: dict[str, Any] = record["measurements"]["profile"]
    totals = profile["total"]["runs"]
    assert len(totals) == 5
    for number, total in enumerate(totals):
        assert sum(op["runs"][number] for op in profile["ops"]) == pytest.approx(total, rel=0.05)
    assert profile["total"]["event"] == "Accelerator (execute) time (cycles)"
    assert {op["source"] for op in profile["ops"]} > {*NODES}
    assert profile["notes"] == []
    assert isinstance(profile["added_us"], int)
    return profile


@pytest.mark.slow
@pytest.mark.parametrize("qnn", ["2.47.0", "2.51.0"])
def test_the_ops_of_a_model_add_up_to_the_accelerators_total(
    lab: DeviceRuns, cnn: Path, qnn: str
) -> None:
    code, stderr, (record,) = lab.run_files(cnn.name, "--profile=ops", f"--qnn={qnn}")
    assert code == 0, stderr
    profile = whole_profile(record)
    assert [phase["phase"] for phase in profile["phases"]] == ["QNN (load binary) time"]
    assert "most expensive of" in stderr
    page = (lab.reports / "latest/report.html").read_text()
    assert "<h2>Slowest ops</h2>" in page
    assert 'class="measured sortable"' in page
    # what the case itself ran is what runs without a profile
    folder = lab.reports / "latest" / Path(record["logs"][0]).parent
    assert "profile" not in (folder / "probe.plan").read_text()


@pytest.mark.slow
def test_onnx_runtime_tells_what_preparing_took_too(lab: DeviceRuns, cnn: Path) -> None:
    code, stderr, (record,) = lab.run_files(cnn.name, "--profile=ops", "--engine=ort")
    assert code == 0, stderr
    profile = whole_profile(record)
    phases = [phase["phase"] for phase in profile["phases"]]
    assert phases[:3] == [
        "QNN (finalize) time",
        "Graph Preparation Initializing",
        "Graph Optimizations",
    ]
