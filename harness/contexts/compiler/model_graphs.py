"""The graphs of the models and their inputs, the same to the byte everywhere (see models.py).

Weights and inputs come from the raw output of PCG64, which numpy keeps the same in all versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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


class GraphOf(Protocol):
    """What a graph is made of: a `Model`."""

    @property
    def model(self) -> str:
        """Its name, from which weights and inputs are derived."""

    @property
    def megabytes(self) -> int:
        """Its size in MB (10^6 bytes), where its kind has one."""

    @property
    def variant(self) -> int:
        """Which of its variants, which differ in their content."""


def random_bytes(seed: str, count: int) -> np.ndarray[Any, Any]:
    """`count` random bytes (uint8), the same for the same seed with every version of numpy."""
    import numpy as np

    number = int.from_bytes(hashlib.sha256(seed.encode()).digest(), "little")
    return np.random.PCG64(number).random_raw((count + 7) // 8).astype("<u8").view("u1")[:count]


def random_floats(seed: str, *shape: int) -> np.ndarray[Any, Any]:
    """Multiples of 1/128 in [-1, 1), which half precision holds exactly."""
    import numpy as np

    count = int(np.prod(shape))
    return (random_bytes(seed, count).astype("<f4") / 128 - 1).reshape(shape)


def constant(name: str, value: Any, dtype: str | None = None) -> onnx.TensorProto:
    """A tensor of a graph that is always the same: an array, or a number of this numpy type."""
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array(value, dtype), name)


def graph(
    spec: GraphOf,
    inputs: str,
    output: str,
    nodes: Iterable[str],
    constants: Sequence[onnx.TensorProto],
) -> onnx.GraphProto:
    """A graph of nodes in ONNX's text syntax; inputs and output as in `float[1, 16] x`."""
    from onnx import parser

    # the parser takes no name with a hyphen
    made = parser.parse_graph("\n".join((f"g ({inputs}) => ({output}) {{", *nodes, "}")))
    made.name = spec.model
    made.initializer.extend(constants)
    return made


def dims(shape: Iterable[int]) -> str:
    """A shape as ONNX's text syntax has it."""
    return ", ".join(map(str, shape))


def tiny(spec: GraphOf) -> onnx.GraphProto:
    """One MatMul, float32 in and out."""
    weights = random_floats(f"{spec.model} weights", _TINY_WIDTH, _TINY_WIDTH)
    kind = f"float[1, {_TINY_WIDTH}]"
    return graph(spec, f"{kind} x", f"{kind} y", ["y = MatMul(x, w)"], [constant("w", weights)])


def tiny_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers that half precision holds."""
    return {"x": random_floats(f"{spec.model} x", 1, _TINY_WIDTH)}


def weights_heavy(spec: GraphOf) -> onnx.GraphProto:
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


def weights_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers of the rows."""
    picked = random_bytes(f"{spec.model} rows", 4 * _ROWS_TAKEN).view("<u4") % _table_rows(spec)
    return {"rows": picked.astype("<i4")}


def _table_rows(spec: GraphOf) -> int:
    return spec.megabytes * 1_000_000 // _ROW_BYTES


def io_heavy(spec: GraphOf) -> onnx.GraphProto:
    """Relu on 8-bit data: big I/O, small file."""
    nodes = (
        "real_x = DequantizeLinear(x, scale, zero)",
        "real_y = Relu(real_x)",
        "y = QuantizeLinear(real_y, scale, zero)",
    )
    kind = f"uint8[{dims((1, spec.megabytes // 2, *_PLANE))}]"
    return graph(spec, f"{kind} x", f"{kind} y", nodes, _quantization(zero=64 + spec.variant % 128))


def io_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes."""
    shape = (1, spec.megabytes // 2, *_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 500_000).reshape(shape)}


def spill_heavy(spec: GraphOf) -> onnx.GraphProto:
    """Skips over pooling, which outgrow the VTCM.

    Every layer widens what is bright by a pixel; then all maps are added up, so that none can be
    given up before the last one is there. Exact in 8 bits, since inputs are so dark that no sum
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


def spill_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes, dark ones, of which few are bright enough to be seen in the last map."""
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
