"""Pairs of ONNX models that differ in one op: what `model layers` has to name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """A graph that grows op by op, with weights of a seed."""

    def __init__(self, seed: int, shape: Sequence[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape

    def weight(self, *shape: int, scale: float = 0.2, base: float = 0.0) -> str:
        values = (base + scale * self.random.standard_normal(shape)).astype("f4")
        return self.constant(values)

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"/{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "planted",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.weights,
        )
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        built = onnx.shape_inference.infer_shapes(built)
        onnx.checker.check_model(built)
        return built


def _normalised(graph: Graph, x: str, channels: int) -> str:
    factors = [graph.weight(channels, base=1.0), graph.weight(channels), graph.weight(channels)]
    variance = graph.constant(np.abs(graph.random.standard_normal(channels)).astype("f4") + 0.01)
    return graph.add("BatchNormalization", x, *factors, variance, epsilon=1e-5)


def cnn(seed: int) -> onnx.ModelProto:
    """Convolutions with a residual branch, two pools put side by side, a Gemm."""
    g = Graph(seed, (1, 3, 16, 16))
    x = g.add("Conv", "x", g.weight(16, 3, 3, 3), g.weight(16), pads=[1] * 4)
    x = g.add("Relu", _normalised(g, x, 16))
    y = g.add("Conv", x, g.weight(16, 16, 3, 3, scale=0.1), g.weight(16), pads=[1] * 4)
    y = g.add("Clip", y, g.constant(np.float32(-0.5)), g.constant(np.float32(1.0)))
    z = g.add("Conv", x, g.weight(16, 1, 3, 3), pads=[1] * 4, group=16)
    z = g.add("LeakyRelu", z, alpha=0.1)
    x = g.add("Add", g.add("Add", x, y), z)
    a = g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    b = g.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("Concat", a, b, axis=1)
    x = g.add("Flatten", g.add("GlobalAveragePool", _normalised(g, x, 32)))
    x = g.add("Gemm", x, g.weight(10, 32), g.weight(10), transB=1, alpha=1.0)
    return g.model(g.add("Softmax", x, axis=-1))


def transformer(seed: int) -> onnx.ModelProto:
    """Attention with two heads and a feed-forward part, each with a norm and a residual."""
    g = Graph(seed, (1, 8, 32))

    def norm(x: str) -> str:
        factors = g.weight(32, base=1.0), g.weight(32)
        return g.add("LayerNormalization", x, *factors, axis=-1, epsilon=1e-5)

    def head(x: str, turn: Sequence[int]) -> str:
        x = g.add("Add", g.add("MatMul", x, g.weight(32, 32)), g.weight(32))
        x = g.add("Reshape", x, g.constant(np.array([1, 8, 2, 16], "i8")))
        return g.add("Transpose", x, perm=turn)

    before = norm("x")
    q, k, v = head(before, (0, 2, 1, 3)), head(before, (0, 2, 3, 1)), head(before, (0, 2, 1, 3))
    scores = g.add("Mul", g.add("MatMul", q, k), g.constant(np.float32(0.25)))
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), v)
    mixed = g.add("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = g.add("Reshape", mixed, g.constant(np.array([1, 8, 32], "i8")))
    x = g.add("Add", "x", g.add("MatMul", mixed, g.weight(32, 32)))
    y = g.add("Gelu", g.add("MatMul", norm(x), g.weight(32, 64)))
    x = g.add("Add", x, g.add("MatMul", y, g.weight(64, 32)))
    return g.model(g.add("ReduceMean", x, g.constant(np.array([1], "i8")), keepdims=0))


def quantised(seed: int) -> onnx.ModelProto:
    """Convolutions with 8-bit values between their ops, and a residual."""
    g = Graph(seed, (1, 3, 16, 16))

    def eight(x: str, scale: float) -> str:
        by = g.constant(np.float32(scale)), g.constant(np.uint8(128))
        return g.add("DequantizeLinear", g.add("QuantizeLinear", x, *by), *by)

    def conv(x: str, channels: int, filters: int) -> str:
        values = g.random.integers(-127, 128, (filters, channels, 3, 3)).astype("i1")
        by = g.constant(np.float32(0.003)), g.constant(np.int8(0))
        weights = g.add("DequantizeLinear", g.constant(values), *by)
        return g.add("Conv", x, weights, pads=[1] * 4)

    x = eight(g.add("Relu", conv(eight("x", 0.008), 3, 16)), 0.03)
    y = eight(conv(x, 16, 16), 0.06)
    x = eight(g.add("Add", x, y), 0.08)
    x = eight(g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 0.08)
    return g.model(eight(g.add("GlobalAveragePool", x), 0.03))


KINDS: Final = (cnn, transformer, quantised)


def changed(model: onnx.ModelProto, seed: int) -> tuple[onnx.ModelProto, str]:
    """The model with one op changed at random, and its name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    random = np.random.default_rng(seed)
    weights = {tensor_.name: tensor_ for tensor_ in copy.graph.initializer}
    nodes = list(copy.graph.node)
    for index in random.permutation(len(nodes)):
        node = nodes[index]
        attributes = {attribute.name: attribute for attribute in node.attribute}
        node_weights = [weights[name] for name in node.input if name in weights]
        if node.op_type in ("Reshape", "ReduceMean", "QuantizeLinear", "DequantizeLinear"):
            continue
        if "epsilon" in attributes:
            attributes["epsilon"].f = 1e-3
        elif "alpha" in attributes:
            attributes["alpha"].f *= 1.01
        elif node.op_type == "Softmax":
            attributes["axis"].i = 1 if len(nodes) > 20 else 0
        elif node.op_type == "Clip":
            node_weights[1].CopyFrom(numpy_helper.from_array(np.float32(0.8), node_weights[1].name))
        elif node_weights:
            weight = node_weights[random.integers(len(node_weights))]
            values = numpy_helper.to_array(weight).copy()
            flat = values.reshape(-1)
            flat[random.integers(flat.size)] += np.float32(0.1)
            weight.CopyFrom(numpy_helper.from_array(values, weight.name))
        elif node.op_type in ("Relu", "Gelu"):
            node.op_type = "Sigmoid"
        elif node.op_type == "MaxPool":
            node.op_type = "AveragePool"
        else:
            continue
        return copy, node.name
    raise AssertionError("no op to be changed")


def write(folder: Path, seed: int) -> tuple[Path, Path, str]:
    """A pair in a folder: tested, reference, and the name of the op that differs."""
    reference = KINDS[seed % len(KINDS)](seed)
    tested, name = changed(reference, seed)
    paths = folder / f"tested{seed}.onnx", folder / f"reference{seed}.onnx"
    onnx.save(tested, paths[0])
    onnx.save(reference, paths[1])
    return *paths, name
