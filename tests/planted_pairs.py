"""Pairs of ONNX models with one error each, as people make them, and the op that has it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.planted import Graph

Build = Callable[["Builder", bool], str]
"""Adds nodes, with the error or without it, and gives the name of the output."""

_IMAGE: Final = (1, 4, 9, 9)
_ROWS: Final = (1, 8, 16)


class Builder(Graph):
    """A model that grows node by node; each node is called by its first output."""

    def __init__(self) -> None:
        super().__init__(0, ())

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(
        self,
        op: str,
        name: str,
        *inputs: str,
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> str:
        node = helper.make_node(op, inputs, outputs or [f"{name}.out"], name, **attributes)
        self.nodes.append(node)
        return f"{name}.out"

    def made(self, shape: Sequence[int], output: str) -> onnx.ModelProto:
        self.shape = shape
        return self.model(output)


def _between(build: Build) -> Build:
    """The nodes between others, which are the same in both models."""

    def built(b: Builder, wrong: bool) -> str:
        b.add("Relu", "before", "x")
        return b.add("Tanh", "after", build(b, wrong))

    return built


def _weight_turned(b: Builder, wrong: bool) -> str:
    square = np.random.default_rng(7).standard_normal((16, 16)).astype("f4")
    return b.add("MatMul", "op", "before.out", b.constant("op.w", square.T if wrong else square))


def _split(b: Builder, wrong: bool) -> str:
    b.constant("sizes", np.array([8, 8], "i8"))
    outputs = ["b", "a"] if wrong else ["a", "b"]
    b.add("Split", "op", "before.out", "sizes", outputs=outputs, axis=-1)
    first, second = b.add("Relu", "of_a", "a"), b.add("Sigmoid", "of_b", "b")
    return b.add("Concat", "together", first, second, axis=-1)


def _quantised(b: Builder, *, quantise: float, dequantise: float, turned: bool = False) -> str:
    zero = b.constant("zero", np.uint8(128))
    by = b.constant("q.scale", np.float32(quantise)), zero
    back = b.constant("dq.scale", np.float32(dequantise)), zero
    b.add("QuantizeLinear", "q", "before.out", *by)
    b.add("DequantizeLinear", "dq", "q.out", *back)
    weights = np.random.default_rng(5).integers(-127, 128, (4, 4, 3, 3)).astype("i1")
    scale = b.constant("w.scale", np.float32(0.02 if turned else 0.01))
    b.add("DequantizeLinear", "w_dq", b.constant("w", weights), scale)
    b.add("Conv", "conv", "dq.out", "w_dq.out", pads=[1] * 4)
    out = b.constant("y.scale", np.float32(0.05)), zero
    b.add("QuantizeLinear", "y_q", "conv.out", *out)
    return b.add("DequantizeLinear", "y_dq", "y_q.out", *out)


def _norm(b: Builder, wrong: bool) -> str:
    constants = [b.constant(name, np.ones(9, "f4")) for name in ("scale", "bias")]
    return b.add(
        "LayerNormalization", "op", "before.out", *constants, axis=-1, epsilon=1e-2 * wrong + 1e-5
    )


def _clip(b: Builder, wrong: bool) -> str:
    limits = [
        b.constant("low", np.float32(0)),
        b.constant("high", np.float32(0.8 if wrong else 0.6)),
    ]
    return b.add("Clip", "op", "before.out", *limits)


def _concat(b: Builder, wrong: bool) -> str:
    b.add("Sigmoid", "s", "before.out")
    both = ["before.out", "s.out"]
    return b.add("Concat", "op", *(both[::-1] if wrong else both), axis=1)


def _two(b: Builder, wrong: bool) -> str:
    negative = b.add("Neg", "negative", "before.out")
    b.add("Elu" if wrong else "LeakyRelu", "op", negative, alpha=0.2)
    return b.add("LeakyRelu", "later", "op.out", alpha=0.3 if wrong else 0.1)


def _attribute(op: str, name: str, right: Any, wrong_value: Any, **others: Any) -> Build:
    def build(b: Builder, wrong: bool) -> str:
        return b.add(op, "op", "before.out", **{name: wrong_value if wrong else right}, **others)

    return build


_POOL: Final = {"kernel_shape": [2, 2], "strides": [2, 2]}

PAIRS: Final[Mapping[str, tuple[Sequence[int], Build, str]]] = {
    "transposed weight": (_ROWS, _weight_turned, "op"),
    "outputs of Split swapped": (_ROWS, _split, "op"),
    "epsilon of LayerNormalization": (_IMAGE, _norm, "op"),
    "scale of DequantizeLinear": (
        _IMAGE,
        lambda b, wrong: _quantised(b, quantise=0.01, dequantise=0.02 if wrong else 0.01),
        "dq",
    ),
    "range of Clip": (_IMAGE, _clip, "op"),
    "ceil_mode": (_IMAGE, _attribute("MaxPool", "ceil_mode", 0, 1, **_POOL), "op"),
    "order of Concat": (_IMAGE, _concat, "op"),
    "two errors": (_IMAGE, _two, "op"),
    "scale of weights": (
        _IMAGE,
        lambda b, wrong: _quantised(b, quantise=0.01, dequantise=0.01, turned=wrong),
        "conv",
    ),
    "scale of an activation": (
        _IMAGE,
        lambda b, wrong: _quantised(
            b, quantise=0.02 if wrong else 0.01, dequantise=0.02 if wrong else 0.01
        ),
        "q",
    ),
    "axis of Softmax": (_ROWS, _attribute("Softmax", "axis", -1, 1), "op"),
}
"""By what was done: the shape of the input, what builds both models, and the node to be named."""


def pair(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto, str]:
    """The model with the error, the one without, and the node that has it."""
    shape, build, node = PAIRS[name]
    models = []
    for wrong in (True, False):
        builder = Builder()
        models.append(builder.made(shape, _between(build)(builder, wrong)))
    return models[0], models[1], node
