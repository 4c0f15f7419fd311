"""Inputs that are made up lie in the range that a model quantises them for."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.models.onnx_model import OnnxModel, quantised_ranges
from harness.models.session_plan import IN_RANGE, MADE_UP, READ


def quantised(
    scale: object = 0.5,
    zero: object = np.uint8(0),
    *,
    place: str = "initializer",
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model that quantises its input x, or takes it quantised, and gives it back."""
    values = {"scale": np.asarray(scale, "f4"), "zero": np.asarray(zero)}
    tensors = [numpy_helper.from_array(value, name) for name, value in values.items()]
    nodes = []
    if place == "constant":
        nodes = [
            helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in tensors
        ]
    first = "QuantizeLinear" if kind == TensorProto.FLOAT else "DequantizeLinear"
    nodes.append(helper.make_node(first, ["x", "scale", "zero"], ["y"]))
    back = TensorProto.UINT8 if kind == TensorProto.FLOAT else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [40, 50])],
        [helper.make_tensor_value_info("y", back, None)],
        tensors if place == "initializer" else [],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("model", "ranges"),
    [
        (quantised(), {"x": (0.0, 127.5)}),
        (quantised(0.25, np.uint8(128)), {"x": (-32.0, 31.75)}),
        (quantised(0.5, np.int16(0)), {"x": (-16384.0, 16383.5)}),
        (quantised(place="constant"), {"x": (0.0, 127.5)}),
        (quantised(kind=TensorProto.INT8, zero=np.int8(3)), {"x": (-128, 127)}),
        # each row has a scale of its own
        (quantised([0.5] * 50, np.zeros(50, "u1")), {}),
        (quantised(place="nowhere"), {}),
        (quantised(np.nan), {}),
        (quantised(np.inf), {}),
        (quantised(0.0), {}),
    ],
)
def test_ranges(model: onnx.ModelProto, ranges: dict[str, tuple[float, float]]) -> None:
    assert quantised_ranges(model) == ranges


@pytest.mark.parametrize(
    ("model", "low", "high", "message"),
    [
        (quantised(0.25, np.uint8(128)), -32, 31.75, IN_RANGE),
        (quantised(kind=TensorProto.INT8, zero=np.int8(3)), -128, 127, IN_RANGE),
        (quantised(np.nan), -1, 1, MADE_UP),
    ],
)
def test_inputs_fill_the_range(
    model: onnx.ModelProto, low: float, high: float, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    onnx_model = OnnxModel.of(path)
    x = onnx_model.inputs()["x"]
    assert low <= x.min() < low + (high - low) / 20
    assert high - (high - low) / 20 < x.max() <= high
    assert onnx_model.inputs_are == message
    np.save(tmp_path / "x.npy", x)
    assert OnnxModel.of(path, inputs=tmp_path / "x.npy").inputs_are == READ
