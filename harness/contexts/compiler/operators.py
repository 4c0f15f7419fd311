"""Models of one operator each, in half precision, 8 and 16 bits: what a target calculates with.

A target that gets one of them wrong is known by its name, which a whole network does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from harness.contexts.compiler.model_graphs import (
    GraphOf,
    constant,
    dims,
    graph,
    random_bytes,
    random_floats,
)

if TYPE_CHECKING:
    import numpy as np
    import onnx

OPSET: Final = 21
IR_VERSION: Final = 10
"""The first with quantised tensors of 16 bits."""

_MAP: Final = (1, 8, 16, 64)
_REACH: Final = 4.0
"""Inputs lie between minus and plus this."""

Bits = Literal[8, 16, 32]
DataType = Literal["float32", "uint8", "uint16"]
Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Operands = Callable[[str], Arrays]
_DATA_TYPES: Final[Mapping[Bits, DataType]] = {8: "uint8", 16: "uint16", 32: "float32"}
_NUMPY: Final = {8: "u1", 16: "<u2", 32: "<f4"}


def _no_operands(seed: str) -> Arrays:
    del seed
    return {}


@dataclass(frozen=True)
class Operator:
    """A model in which `x` goes through one operator (attention: five) and becomes `y`.

    `op` has its attributes, as ONNX's text syntax has them: `Softmax <axis = -1>`. `bits` are those
    of what goes in and comes out: 32 for float32, which HTP calculates in half precision; 8 and 16
    are quantised and unsigned. `operands` are what the operator takes besides, made of a seed: as
    they are for float32, else values of the input's type, but for `weights` and `bias`, which have
    8 and 32 bits. `takes` is the order of all, where `x` is not the first or one is left out. `top`
    is the largest quantised output; `signed` ones reach down to minus that. `apart` keeps inputs
    away from zero, `positive` above it. `tolerance`: by how much an output may differ from ONNX
    Runtime's on the CPU, in raw values.
    """

    op: str
    bits: Bits
    tolerance: float
    shape: Sequence[int] = _MAP
    output: Sequence[int] = ()
    operands: Operands = _no_operands
    takes: Sequence[str] = ()
    top: float = 8.0
    signed: bool = True
    apart: bool = False
    positive: bool = False

    @property
    def data_type(self) -> DataType:
        return _DATA_TYPES[self.bits]

    @property
    def numpy_type(self) -> str:
        return _NUMPY[self.bits]

    def inputs(self, spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs of a variant: values of the quantised type, or what half precision holds."""
        import numpy as np

        seed = f"{spec.model} x"
        if self.bits != 32:
            return {"x": _values(seed, self.bits, *self.shape)}
        x = random_floats(seed, *self.shape) * np.float32(_REACH)
        if self.positive:
            x = np.abs(x) + np.float32(1 / 32)
        if self.apart:
            x += np.copysign(np.float32(0.25), x)
        return {"x": x}

    def graph(self, spec: GraphOf) -> onnx.GraphProto:
        """The graph of a variant."""
        kind = {8: "uint8", 16: "uint16", 32: "float"}[self.bits]
        make = self._plain if self.bits == 32 else self._quantised
        nodes, constants = make(self.operands(spec.model))
        x, y = (f"{kind}[{dims(shape)}]" for shape in (self.shape, self.output or self.shape))
        return graph(spec, f"{x} x", f"{y} y", nodes, constants)

    def _plain(self, operands: Arrays) -> tuple[list[str], list[onnx.TensorProto]]:
        if self.op == "Attention":  # of a map with itself: softmax(x x' / 8) x
            nodes = [
                "turned = Transpose <perm = [0, 1, 3, 2]> (x)",
                "products = MatMul(x, turned)",
                "scores = Mul(products, part)",
                "weights = Softmax <axis = -1> (scores)",
                "y = MatMul(weights, x)",
            ]
            return nodes, [constant("part", 0.125, "<f4")]
        constants = [constant(name, value) for name, value in operands.items()]
        return [f"y = {self.op} ({', '.join(self.takes or ('x', *operands))})"], constants

    def _quantised(self, operands: Arrays) -> tuple[list[str], list[onnx.TensorProto]]:
        kind, most = _NUMPY[self.bits], 2**self.bits - 1
        zero, middle = (most + 1) // 2, 2 * _REACH / most
        scale = (2 if self.signed else 1) * self.top / most
        quantised: dict[str, tuple[float, int, str]] = {
            "x": (middle, zero, kind),
            "y": (scale, zero if self.signed else 0, kind),
        }
        if "weights" in operands:
            quantised |= {"weights": (0.01, 0, "i1"), "bias": (0.01 * middle, 0, "<i4")}
        constants = [constant(name, value) for name, value in operands.items()]
        for name, (scale, zero, dtype) in quantised.items():
            constants += [
                constant(f"{name}_scale", scale, "<f4"),
                constant(f"{name}_zero", zero, dtype),
            ]
        taken, nodes = ["x", *operands], []
        for name in taken:
            like = name if name in quantised else "x"
            nodes.append(f"real_{name} = DequantizeLinear({name}, {like}_scale, {like}_zero)")
        nodes.append(f"real_y = {self.op} ({', '.join(f'real_{name}' for name in taken)})")
        nodes.append("y = QuantizeLinear(real_y, y_scale, y_zero)")
        return nodes, constants


def _values(seed: str, bits: Bits, *shape: int) -> np.ndarray[Any, Any]:
    import numpy as np

    count = int(np.prod(shape))
    return random_bytes(seed, count * bits // 8).view(_NUMPY[bits]).reshape(shape)


def _random(name: str, *shape: int, part: float = 1.0) -> Operands:
    def make(seed: str) -> Arrays:
        import numpy as np

        return {name: random_floats(f"{seed} {name}", *shape) * np.float32(part)}

    return make


def _fixed(dtype: str, **operands: Sequence[float]) -> Operands:
    def make(seed: str) -> Arrays:
        import numpy as np

        del seed
        return {name: np.array(value, dtype) for name, value in operands.items()}

    return make


def _float(op: str, tolerance: float, **what: Any) -> Operator:
    return Operator(op, 32, tolerance, **what)


def _of_both(bits: Bits) -> dict[str, Operator]:
    """What is there in 8 and 16 bits alike; tolerances are steps of the output."""

    def other(*shape: int) -> Operands:
        return lambda seed: {"other": _values(f"{seed} other", bits, *shape)}

    few, many = (1, 3) if bits == 8 else (4, 40)
    made = {
        "add": Operator("Add", bits, few, operands=other(*_MAP)),
        "mul": Operator("Mul", bits, few, operands=other(*_MAP), top=16.0),
        "softmax": Operator("Softmax <axis = -1>", bits, many, top=1.0, signed=False),
        "sigmoid": Operator("Sigmoid", bits, many, top=1.0, signed=False),
        "gelu": Operator("Gelu", bits, many, top=4.0),
        "matmul": Operator(
            "MatMul",
            bits,
            few if bits == 8 else 80,
            (1, 4, 32, 64),
            (1, 4, 32, 96),
            other(64, 96),
            top=64.0,
        ),
        "average": Operator("GlobalAveragePool", bits, few, (1, 32, 14, 14), (1, 32, 1, 1)),
        "conv-1x1": _conv(bits, few, 1, 64, 96, 16),
        "conv-3x3": _conv(bits, few, 3, 32, 64, 16),
    }
    return {f"{name}-{bits}bit": one for name, one in made.items()}


def _conv(
    bits: Bits,
    tolerance: float,
    side: int,
    channels: int,
    filters: int,
    size: int,
    *,
    group: int = 1,
    stride: int = 1,
) -> Operator:
    """A convolution of `size` x `size` pixels, padded so that these stay, with 8-bit weights."""

    def operands(seed: str) -> Arrays:
        shape = (filters, channels // group, side, side)
        count = filters * channels // group * side * side
        bias = random_bytes(f"{seed} bias", 2 * filters).view("<i2").astype("<i4") // 8
        return {
            "weights": random_bytes(f"{seed} weights", count).view("i1").clip(-127).reshape(shape),
            "bias": bias,
        }

    shape = f"pads = {[side // 2] * 4}, group = {group}, strides = {[stride] * 2}"
    return Operator(
        f"Conv <{shape}>",
        bits,
        tolerance,
        (1, channels, size, size),
        (1, filters, size // stride, size // stride),
        operands,
    )


_IMAGE: Final = (1, 32, 16, 16)

OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        "relu-float": _float("Relu", 0.002),
        "sigmoid-float": _float("Sigmoid", 0.002),
        "tanh-float": _float("Tanh", 0.002),
        "gelu-float": _float("Gelu", 0.01),
        "sqrt-float": _float("Sqrt", 0.002, positive=True),
        "exp-float": _float("Exp", 0.1),
        "hard-swish-float": _float("HardSwish", 0.01),
        "add-float": _float("Add", 0.01, operands=_random("other", *_MAP)),
        "mul-float": _float("Mul", 0.01, operands=_random("other", *_MAP)),
        "div-float": _float(
            "Div", 0.01, operands=_random("other", *_MAP), takes=("other", "x"), apart=True
        ),
        "softmax-float": _float("Softmax <axis = -1>", 0.001),
        "layer-norm-float": _float(
            "LayerNormalization <axis = -1>",
            0.01,
            operands=_fixed("<f4", factor=[1.0] * 64, offset=[0.0] * 64),
        ),
        "conv-3x3-float": _float(
            "Conv <pads = [1, 1, 1, 1]>",
            0.02,
            shape=_IMAGE,
            output=(1, 64, 16, 16),
            operands=_random("weights", 64, 32, 3, 3, part=0.125),
        ),
        "matmul-float": _float(
            "MatMul",
            0.02,
            shape=(1, 64, 256),
            output=(1, 64, 512),
            operands=_random("weights", 256, 512, part=0.125),
        ),
        "attention-float": _float("Attention", 0.02, shape=(1, 4, 32, 64)),
        "average-float": _float(
            "GlobalAveragePool", 0.005, shape=(1, 32, 14, 14), output=(1, 32, 1, 1)
        ),
        "max-pool-float": _float(
            "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>",
            0.002,
            shape=_IMAGE,
            output=(1, 32, 8, 8),
        ),
        "resize-float": _float(
            'Resize <mode = "linear">',
            0.02,
            shape=_IMAGE,
            output=(1, 32, 32, 32),
            operands=_fixed("<f4", factors=[1, 1, 2, 2]),
            takes=("x", "", "factors"),
        ),
        "mean-float": _float(
            "ReduceMean <keepdims = 1>",
            0.005,
            output=(1, 8, 16, 1),
            operands=_fixed("<i8", axes=[-1]),
        ),
        **_of_both(8),
        "depthwise-8bit": _conv(8, 1, 3, 64, 64, 32, group=64),
        "conv-3x3-by-2-8bit": _conv(8, 1, 3, 32, 64, 32, stride=2),
        **_of_both(16),
    }
)
"""All of them by name."""
