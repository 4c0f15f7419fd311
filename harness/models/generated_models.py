"""The graphs of the models and operators, and their inputs: the same to the byte everywhere.

Weights and inputs come from the raw output of PCG64, which numpy keeps the same in all versions.

A wrong output names the operator, which that of a whole network does not.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import onnx


_TINY_WIDTH = 16
_ROW_BYTES = 4000
_ROWS_TAKEN = 16
_PLANE = (1000, 1000)
_SPILL_PLANE = (125, 125)
_SPILL_DEPTH = 8
_SCALE = 0.02


class GraphSpec(Protocol):
    """The parameters of a graph: those of a `Model`, from whose name all content is derived."""

    @property
    def model(self) -> str: ...
    @property
    def megabytes(self) -> int: ...
    @property
    def variant(self) -> int: ...


def random_bytes(seed: str, count: int) -> np.ndarray[Any, Any]:
    """Return random bytes (uint8), the same for the same seed with every version of numpy."""
    import numpy as np

    number = int.from_bytes(hashlib.sha256(seed.encode()).digest(), "little")
    return np.random.PCG64(number).random_raw((count + 7) // 8).astype("<u8").view("u1")[:count]


def random_floats(seed: str, *shape: int) -> np.ndarray[Any, Any]:
    """Return random multiples of 1/128 in [-1, 1), which half precision holds exactly."""
    import numpy as np

    count = int(np.prod(shape))
    return (random_bytes(seed, count).astype("<f4") / 128 - 1).reshape(shape)


def constant(name: str, value: Any, dtype: str | None = None) -> onnx.TensorProto:
    """Return a constant tensor: an array, or a number of this numpy type."""
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array(value, dtype), name)


def graph(
    spec: GraphSpec,
    inputs: str,
    output: str,
    nodes: Iterable[str],
    constants: Sequence[onnx.TensorProto],
) -> onnx.GraphProto:
    """Return a graph of nodes in ONNX's text syntax; inputs and output as in `float[1, 16] x`."""
    from onnx import parser

    # the parser accepts no name with a hyphen
    proto = parser.parse_graph("\n".join((f"g ({inputs}) => ({output}) {{", *nodes, "}")))
    proto.name = spec.model
    proto.initializer.extend(constants)
    return proto


def dims(shape: Iterable[int]) -> str:
    """Format a shape in ONNX's text syntax."""
    return ", ".join(map(str, shape))


def tiny(spec: GraphSpec) -> onnx.GraphProto:
    """One MatMul, float32 in and out."""
    weights = random_floats(f"{spec.model} weights", _TINY_WIDTH, _TINY_WIDTH)
    kind = f"float[1, {_TINY_WIDTH}]"
    return graph(spec, f"{kind} x", f"{kind} y", ["y = MatMul(x, w)"], [constant("w", weights)])


def tiny_inputs(spec: GraphSpec) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers that half precision holds."""
    return {"x": random_floats(f"{spec.model} x", 1, _TINY_WIDTH)}


def weights_heavy(spec: GraphSpec) -> onnx.GraphProto:
    """Rows of a table of 8-bit weights."""
    rows = _table_rows(spec)
    table = random_bytes(f"{spec.model} table", rows * _ROW_BYTES).reshape(rows, _ROW_BYTES)
    nodes = (
        "real_table = DequantizeLinear(table, scale, zero)",
        "taken = Gather <axis = 0> (real_table, rows)",
        "y = QuantizeLinear(taken, scale, zero)",
    )
    output = f"uint8[{_ROWS_TAKEN}, {_ROW_BYTES}] y"
    constants = [*_quantization(zero=128), constant("table", table)]
    return graph(spec, f"int32[{_ROWS_TAKEN}] rows", output, nodes, constants)


def weights_heavy_inputs(spec: GraphSpec) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers of the rows."""
    picked = random_bytes(f"{spec.model} rows", 4 * _ROWS_TAKEN).view("<u4") % _table_rows(spec)
    return {"rows": picked.astype("<i4")}


def _table_rows(spec: GraphSpec) -> int:
    return spec.megabytes * 1_000_000 // _ROW_BYTES


def io_heavy(spec: GraphSpec) -> onnx.GraphProto:
    """Relu on 8-bit data: big I/O, small file."""
    nodes = (
        "real_x = DequantizeLinear(x, scale, zero)",
        "real_y = Relu(real_x)",
        "y = QuantizeLinear(real_y, scale, zero)",
    )
    kind = f"uint8[{dims((1, spec.megabytes // 2, *_PLANE))}]"
    return graph(spec, f"{kind} x", f"{kind} y", nodes, _quantization(zero=64 + spec.variant % 128))


def io_heavy_inputs(spec: GraphSpec) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes."""
    shape = (1, spec.megabytes // 2, *_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 500_000).reshape(shape)}


def spill_heavy(spec: GraphSpec) -> onnx.GraphProto:
    """Skip connections over pooling, which outgrow the VTCM.

    Every layer widens bright spots by a pixel; then all maps are added up, so that none can be
    freed before the last one is computed. Exact in 8 bits: inputs are so dark that no sum
    saturates.
    """
    pool = "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
    nodes = ["real_0 = DequantizeLinear(x, scale, zero)"]
    for layer in range(1, _SPILL_DEPTH + 1):
        nodes.append(f"wider_{layer} = {pool} (real_{layer - 1})")
        nodes += _requantized(f"wider_{layer}", f"real_{layer}")
    last = f"real_{_SPILL_DEPTH}"
    for layer in range(_SPILL_DEPTH - 1, -1, -1):
        nodes.append(f"sum_{layer} = Add({last}, real_{layer})")
        last = f"real_sum_{layer}"
        nodes += _requantized(f"sum_{layer}", last)
    nodes[-2:] = ["y = QuantizeLinear(sum_0, scale, zero)"]
    kind = f"uint8[{dims((1, 64 * spec.megabytes, *_SPILL_PLANE))}]"
    return graph(spec, f"{kind} x", f"{kind} y", nodes, _quantization(zero=0))


def spill_heavy_inputs(spec: GraphSpec) -> dict[str, np.ndarray[Any, Any]]:
    """Random dark bytes, few of them bright enough to be seen in the last map."""
    import numpy as np

    shape = (1, 64 * spec.megabytes, *_SPILL_PLANE)
    drawn = random_bytes(f"{spec.model} x", spec.megabytes * 1_000_000).reshape(shape)
    bright = (drawn // 9) * (np.roll(drawn, 1, axis=-1) < 3)
    return {"x": bright.astype("u1")}


def _requantized(name: str, real: str) -> list[str]:
    return [
        f"{name}_8bit = QuantizeLinear({name}, scale, zero)",
        f"{real} = DequantizeLinear({name}_8bit, scale, zero)",
    ]


def _quantization(zero: int) -> list[onnx.TensorProto]:
    return [constant("scale", _SCALE, "<f4"), constant("zero", zero, "u1")]


_MAP: Final = (1, 8, 16, 64)
_REACH: Final = 4.0
"""Inputs lie between minus and plus this."""

Bits = Literal[8, 16, 32]
DataType = Literal["float32", "uint8", "uint16"]
Arrays = Mapping[str, "np.ndarray[Any, Any]"]
_DATA_TYPES: Final[Mapping[Bits, DataType]] = {8: "uint8", 16: "uint16", 32: "float32"}
_NUMPY: Final = {8: "u1", 16: "<u2", 32: "<f4"}


@dataclass(frozen=True)
class Operator:
    """A model in which `x` goes through one operator (attention: five) and becomes `y`.

    `op` is the call in ONNX's text syntax, with its tensors in braces: `Softmax <axis = -1>({x})`.
    `bits` are those of the input and output: 32 for float32, which HTP calculates in half
    precision; 8 and 16 are quantised and unsigned. `operands` are the shapes of further operands,
    random float32 or values of the input's type, but for quantised `weights` and `bias`, which have
    8 and 32 bits; `fixed` are numbers, or one for all of the last axis. `top` is the largest
    quantised output; `signed` ones reach down to its negative. `apart` keeps inputs away from zero,
    `positive` above it. `tolerance` is the largest difference from ONNX Runtime's output on the
    CPU, in raw values.
    """

    op: str
    bits: Bits
    tolerance: float
    shape: Sequence[int] = _MAP
    output: Sequence[int] = ()
    operands: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fixed: Mapping[str, Sequence[float] | float] = field(default_factory=dict)
    top: float = 8.0
    signed: bool = True
    apart: bool = False
    positive: bool = False
    megabytes: ClassVar = (0, 0)
    step: ClassVar = 1
    opset: ClassVar = 21
    ir_version: ClassVar = 10  # the first with quantised tensors of 16 bits

    @property
    def data_type(self) -> DataType:
        return _DATA_TYPES[self.bits]

    @property
    def output_type(self) -> str:
        return _NUMPY[self.bits]

    def inputs(self, spec: GraphSpec) -> dict[str, np.ndarray[Any, Any]]:
        """Return the inputs of a variant, of the quantised type, or exact in half precision."""
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

    def graph(self, spec: GraphSpec) -> onnx.GraphProto:
        """Return the graph of a variant."""
        kind = {8: "uint8", 16: "uint16", 32: "float"}[self.bits]
        build = self._plain if self.bits == 32 else self._quantised
        nodes, constants = build({name: self._drawn(name, spec.model) for name in self.operands})
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
        for name, value in self.fixed.items():
            numbers = [value] * self.shape[-1] if isinstance(value, float) else value
            constants.append(
                constant(name, numbers, "<f4" if isinstance(numbers[0], float) else "<i8")
            )
        names = {name: name for name in ("x", *operands, *self.fixed)}
        return [f"y = {self.op.format_map(names)}"], constants

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
        names, nodes = {name: f"real_{name}" for name in ("x", *operands)}, []
        for name, real in names.items():
            like = name if name in quantised else "x"
            nodes.append(f"{real} = DequantizeLinear({name}, {like}_scale, {like}_zero)")
        nodes.append(f"real_y = {self.op.format_map(names)}")
        nodes.append("y = QuantizeLinear(real_y, y_scale, y_zero)")
        return nodes, constants

    def _drawn(self, name: str, model: str) -> np.ndarray[Any, Any]:
        import numpy as np

        seed, shape = f"{model} {name}", self.operands[name]
        if self.bits == 32:
            return random_floats(seed, *shape) * np.float32(0.125 if name == "weights" else 1)
        if name == "weights":
            return random_bytes(seed, math.prod(shape)).view("i1").clip(-127).reshape(shape)
        if name == "bias":
            return random_bytes(seed, 2 * math.prod(shape)).view("<i2").astype("<i4") // 8
        return _values(seed, self.bits, *shape)


def _values(seed: str, bits: Bits, *shape: int) -> np.ndarray[Any, Any]:
    return random_bytes(seed, math.prod(shape) * bits // 8).view(_NUMPY[bits]).reshape(shape)


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType(
    {
        name: Operator(**fields)
        for name, fields in tomllib.loads(
            files("harness.models").joinpath("operators.toml").read_text("ascii")
        ).items()
    }
)
"""All of them by name."""
