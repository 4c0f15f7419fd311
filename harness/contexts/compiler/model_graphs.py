"""The graphs of the models and their inputs, the same to the byte everywhere (see models.py).

Weights and inputs come from the raw output of PCG64, which numpy keeps the same in all versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
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
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int]]],
    output: tuple[str, Sequence[int]],
    constants: Sequence[onnx.TensorProto],
) -> onnx.GraphProto:
    """A graph whose output is `y`; of inputs and output ONNX's element type and the shape."""
    from onnx import TensorProto, helper

    infos = [
        helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), shape)
        for name, (kind, shape) in (*inputs.items(), ("y", output))
    ]
    return helper.make_graph(nodes, spec.model, infos[:-1], infos[-1:], constants)


def tiny(spec: GraphOf) -> onnx.GraphProto:
    """One MatMul, float32 in and out."""
    from onnx import helper

    shape = [1, _TINY_WIDTH]
    weights = random_floats(f"{spec.model} weights", _TINY_WIDTH, _TINY_WIDTH)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return graph(spec, [node], {"x": ("FLOAT", shape)}, ("FLOAT", shape), [constant("w", weights)])


def tiny_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers that half precision holds."""
    return {"x": random_floats(f"{spec.model} x", 1, _TINY_WIDTH)}


def weights_heavy(spec: GraphOf) -> onnx.GraphProto:
    """Rows of a table of 8-bit weights."""
    from onnx import helper

    rows = _table_rows(spec)
    table = random_bytes(f"{spec.model} table", rows * _ROW_BYTES).reshape(rows, _ROW_BYTES)
    return graph(
        spec,
        [
            helper.make_node("DequantizeLinear", ["table", "scale", "zero"], ["real_table"]),
            helper.make_node("Gather", ["real_table", "rows"], ["taken"], axis=0),
            helper.make_node("QuantizeLinear", ["taken", "scale", "zero"], ["y"]),
        ],
        {"rows": ("INT32", [_ROWS_TAKEN])},
        ("UINT8", [_ROWS_TAKEN, _ROW_BYTES]),
        [*_quantization(zero=128), constant("table", table)],
    )


def weights_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """The numbers of the rows."""
    picked = random_bytes(f"{spec.model} rows", 4 * _ROWS_TAKEN).view("<u4") % _table_rows(spec)
    return {"rows": picked.astype("<i4")}


def _table_rows(spec: GraphOf) -> int:
    return spec.megabytes * 1_000_000 // _ROW_BYTES


def io_heavy(spec: GraphOf) -> onnx.GraphProto:
    """Relu on 8-bit data: big I/O, small file."""
    from onnx import helper

    shape = [1, spec.megabytes // 2, *_PLANE]
    return graph(
        spec,
        [
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real_x"]),
            helper.make_node("Relu", ["real_x"], ["real_y"]),
            helper.make_node("QuantizeLinear", ["real_y", "scale", "zero"], ["y"]),
        ],
        {"x": ("UINT8", shape)},
        ("UINT8", shape),
        _quantization(zero=64 + spec.variant % 128),
    )


def io_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes."""
    shape = (1, spec.megabytes // 2, *_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 500_000).reshape(shape)}


def spill_heavy(spec: GraphOf) -> onnx.GraphProto:
    """Skips over convolutions, which outgrow the VTCM.

    Every convolution moves its map by one pixel; then comes the maximum with all earlier maps.
    Exact in 8 bits, cheap to execute, and no map can be given up before the last one is there.
    """
    import numpy as np
    from onnx import helper

    channels = 64 * spec.megabytes
    shape = [1, channels, *_SPILL_PLANE]
    taps = np.zeros((_SPILL_DEPTH, channels, 1, 3, 3), np.int8)
    for layer in range(_SPILL_DEPTH):
        taps[layer, :, :, layer % 3, (layer // 3 + spec.variant) % 3] = 64
    constants = _quantization(zero=64)
    constants += [constant("tap_scale", 1 / 64, "<f4"), constant("tap_zero", 0, "i1")]
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real_0"])]
    for layer, weights in enumerate(taps, 1):
        constants.append(constant(f"taps_{layer}", weights))
        nodes += [
            helper.make_node(
                "DequantizeLinear",
                [f"taps_{layer}", "tap_scale", "tap_zero"],
                [f"real_taps_{layer}"],
            ),
            helper.make_node(
                "Conv",
                [f"real_{layer - 1}", f"real_taps_{layer}"],
                [f"moved_{layer}"],
                pads=[1, 1, 1, 1],
                group=channels,
            ),
            *_requantized(f"moved_{layer}", f"real_{layer}"),
        ]
    nodes += _skips_back("Max", "greater")
    return graph(spec, nodes, {"x": ("UINT8", shape)}, ("UINT8", shape), constants)


def _skips_back(op: str, name: str) -> list[onnx.NodeProto]:
    """Joins the last map with each one before it, all of which are kept until then; ends in `y`."""
    from onnx import helper

    nodes, last = [], f"real_{_SPILL_DEPTH}"
    for layer in range(_SPILL_DEPTH - 1, -1, -1):
        nodes.append(helper.make_node(op, [last, f"real_{layer}"], [f"{name}_{layer}"]))
        last = f"real_{name}_{layer}"
        nodes += _requantized(f"{name}_{layer}", last)
    nodes[-1:] = []
    nodes[-1].output[0] = "y"
    return nodes


def spill_pooled(spec: GraphOf) -> onnx.GraphProto:
    """Skips over pooling, which outgrow the VTCM: as `spill_heavy`, without a matrix engine.

    Every layer widens what is bright by a pixel; the sum of all maps depends on each of them. Exact
    in 8 bits, since inputs are so dark that no sum saturates.
    """
    from onnx import helper

    shape = [1, 64 * spec.megabytes, *_SPILL_PLANE]
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real_0"])]
    for layer in range(1, _SPILL_DEPTH + 1):
        pool = helper.make_node(
            "MaxPool",
            [f"real_{layer - 1}"],
            [f"wider_{layer}"],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        )
        nodes += [pool, *_requantized(f"wider_{layer}", f"real_{layer}")]
    nodes += _skips_back("Add", "sum")
    return graph(spec, nodes, {"x": ("UINT8", shape)}, ("UINT8", shape), _quantization(zero=0))


def spill_pooled_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes, dark ones, of which few are bright enough to be seen in the last map."""
    import numpy as np

    drawn = spill_heavy_inputs(spec)["x"]
    bright = (drawn // 9) * (np.roll(drawn, 1, axis=-1) < 3)
    return {"x": bright.astype("u1")}


def _requantized(name: str, real: str) -> list[onnx.NodeProto]:
    from onnx import helper

    return [
        helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"{name}_8bit"]),
        helper.make_node("DequantizeLinear", [f"{name}_8bit", "scale", "zero"], [real]),
    ]


def spill_heavy_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """Random bytes."""
    shape = (1, 64 * spec.megabytes, *_SPILL_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 1_000_000).reshape(shape)}


def _quantization(zero: int) -> list[onnx.TensorProto]:
    return [constant("scale", _SCALE, "<f4"), constant("zero", zero, "u1")]
