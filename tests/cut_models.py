"""Models that ONNX Runtime cuts, with what is then carried over: counted by hand, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSETS: Final = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
_MAP: Final = (1, 4, 8, 8)
_BYTES: Final = 4 * 4 * 8 * 8


class _Model:
    """A model that grows node by node; each node is called as its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.random = np.random.default_rng(0)

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        domain = "own" if op.startswith("own_") else ""
        node = helper.make_node(op, inputs, [name], name, domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def conv(self, name: str, x: str, channels: int = 4, **attributes: Any) -> str:
        weights = self.random.standard_normal((channels, 4, 3, 3)).astype("f4") * 0.2
        pads = {"pads": [1] * 4} | attributes
        return self.add("Conv", name, x, self.constant(f"{name}.w", weights), **pads)

    def function(self, name: str, *nodes: onnx.NodeProto) -> None:
        self.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, _OPSETS))

    def made(self, *outputs: str, shape: tuple[int, ...] = _MAP) -> onnx.ModelProto:
        def tensor(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(
                name, TensorProto.FLOAT, _MAP if name == "x" else shape
            )

        graph = helper.make_graph(
            self.nodes, "cut", [tensor("x")], [tensor(name) for name in outputs], self.weights
        )
        return helper.make_model(
            graph, opset_imports=_OPSETS, ir_version=9, functions=self.functions
        )


def _body(*nodes: onnx.NodeProto, reads: str = "v") -> onnx.GraphProto:
    """A body that goes on as long as it is told, and makes `w` of `v`."""
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, _MAP),
    ]
    outputs = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, _MAP),
    ]
    same = helper.make_node("Identity", ["go"], ["on"], "on")
    last = helper.make_node("Add", ["v", reads], ["w"], "w")
    return helper.make_graph([same, *nodes, last], "body", inputs, outputs)


def _looped(model: _Model, name: str, x: str, body: onnx.GraphProto) -> str:
    often = model.constant(f"{name}.often", np.int64(2))
    condition = model.constant(f"{name}.go", np.bool_(True))
    return model.add("Loop", name, often, condition, x, body=body)


def _between_convs() -> onnx.ModelProto:
    m = _Model()
    return m.made(m.conv("y", m.add("Acosh", "refused", m.conv("first", "x"))))


def _two_refused_in_a_row() -> onnx.ModelProto:
    m = _Model()
    x = m.add("Shrink", "r1", m.conv("first", "x"), lambd=0.1)
    return m.made(m.conv("y", m.add("Acosh", "r2", x)))


def _branch_around() -> onnx.ModelProto:
    """The Conv goes to the CPU; what comes back is added to a Conv of the first partition."""
    m = _Model()
    first = m.conv("first", "x")
    back = m.add("Acosh", "refused", first)
    return m.made(m.conv("y", m.add("Add", "sum", back, m.conv("beside", first))))


def _smaller_behind() -> onnx.ModelProto:
    """8 channels of 4 x 4 go there and come back."""
    m = _Model()
    x = m.conv("first", "x", 8, strides=[2, 2])
    x = m.add("Relu", "y", m.add("Shrink", "refused", x, lambd=0.1))
    return m.made(x, shape=(1, 8, 4, 4))


def _two_outputs() -> onnx.ModelProto:
    """One output is of the CPU, and goes back to be turned: it is in the layout of the Conv."""
    m = _Model()
    first = m.conv("first", "x")
    return m.made(m.add("Acosh", "refused", first), m.add("Relu", "y", first))


def _identities() -> onnx.ModelProto:
    """ORT takes them out, so that no node has the name of what it reads."""
    m = _Model()
    x = m.add("Identity", "i1", m.add("Relu", "first", "x"))
    x = m.add("Identity", "i2", m.add("Acosh", "refused", x))
    return m.made(m.add("Relu", "y", x))


def _functions() -> onnx.ModelProto:
    m = _Model()
    m.function(
        "own_act",
        helper.make_node("Acosh", ["a"], ["m"], "in1"),
        helper.make_node("Relu", ["m"], ["b"], "in2"),
    )
    x = m.add("own_act", "f1", m.conv("first", "x"))
    return m.made(m.add("Relu", "y", m.add("own_act", "f2", m.conv("second", x))))


def _functions_in_functions() -> onnx.ModelProto:
    """Relu, Shrink, Relu, twice."""
    m = _Model()
    m.function("own_inner", helper.make_node("Shrink", ["a"], ["b"], "s", lambd=0.1))
    m.function(
        "own_outer",
        helper.make_node("Relu", ["a"], ["m"], "r1"),
        helper.make_node("own_inner", ["m"], ["n"], "call", domain="own"),
        helper.make_node("Relu", ["n"], ["b"], "r2"),
    )
    return m.made(m.add("own_outer", "y", m.add("own_outer", "f1", "x")))


def _loop() -> onnx.ModelProto:
    """Nobody knows the shape of what the loop gives, so that the CPU has all that is behind it."""
    m = _Model()
    return m.made(m.conv("y", _looped(m, "loop", m.conv("first", "x"), _body())))


def _loop_that_reads_from_outside() -> onnx.ModelProto:
    """It begins with the input, and adds the Conv each time."""
    m = _Model()
    first = m.conv("first", "x")
    _looped(m, "y", "x", _body(reads=first))
    return m.made("y", m.add("Relu", "z", first))


def _all_of_it() -> onnx.ModelProto:
    m = _Model()
    return m.made(m.conv("y", m.add("Relu", "middle", m.conv("first", "x"))))


CUT: Final[Mapping[str, tuple[onnx.ModelProto, int, int, int]]] = {
    "between-convs": (_between_convs(), 2, 2, 2 * _BYTES),
    "two-in-a-row": (_two_refused_in_a_row(), 2, 2, 2 * _BYTES),
    "branch-around": (_branch_around(), 2, 3, 3 * _BYTES),
    "smaller-behind": (_smaller_behind(), 2, 2, 2 * 4 * 8 * 4 * 4),
    "two-outputs": (_two_outputs(), 2, 2, 2 * _BYTES),
    "identities": (_identities(), 2, 2, 2 * _BYTES),
    "functions": (_functions(), 3, 4, 4 * _BYTES),
    "functions-in-functions": (_functions_in_functions(), 3, 4, 4 * _BYTES),
    "loop": (_loop(), 1, 1, _BYTES),
    "loop-from-outside": (_loop_that_reads_from_outside(), 1, 1, _BYTES),
    "all-of-it": (_all_of_it(), 1, 0, 0),
}
"""By name: the model, its partitions, the tensors that are carried over, and their bytes."""
