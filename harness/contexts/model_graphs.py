"""The graphs of the models and their inputs, the same to the byte everywhere (see models.py).

Weights and inputs come from the raw output of PCG64, which numpy keeps the same in all versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from harness.contexts.models import ModelSpec

_TINY_WIDTH = 16
_ROW_BYTES = 4000
_ROWS_TAKEN = 16
_PLANE = (1000, 1000)
_SPILL_PLANE = (125, 125)
_SPILL_DEPTH = 8
_SCALE = 0.02


def random_bytes(seed: str, count: int) -> np.ndarray[Any, Any]:
    """`count` random bytes (uint8), the same for the same seed with every version of numpy."""
    import numpy as np

    number = int.from_bytes(hashlib.sha256(seed.encode()).digest(), "little")
    raw = np.random.PCG64(number).random_raw((count + 7) // 8)
    return raw.astype("<u8").view("u1")[:count]


def _random_floats(seed: str, *shape: int) -> np.ndarray[Any, Any]:
    """Multiples of 1/128 in [-1, 1), which half precision holds exactly."""
    import numpy as np

    count = int(np.prod(shape))
    return (random_bytes(seed, count).astype("<f4") / 128 - 1).reshape(shape)


def _tiny(spec: ModelSpec) -> onnx.GraphProto:
    from onnx import TensorProto, helper, numpy_helper

    shape = [1, _TINY_WIDTH]
    weights = _random_floats(f"{spec.model} weights", _TINY_WIDTH, _TINY_WIDTH)
    return helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        spec.model,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weights, "w")],
    )


def _tiny_inputs(spec: ModelSpec) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": _random_floats(f"{spec.model} x", 1, _TINY_WIDTH)}


def _weights_heavy(spec: ModelSpec) -> onnx.GraphProto:
    from onnx import TensorProto, helper, numpy_helper

    rows = _table_rows(spec)
    table = random_bytes(f"{spec.model} table", rows * _ROW_BYTES).reshape(rows, _ROW_BYTES)
    return helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["table", "scale", "zero"], ["real_table"]),
            helper.make_node("Gather", ["real_table", "rows"], ["taken"], axis=0),
            helper.make_node("QuantizeLinear", ["taken", "scale", "zero"], ["y"]),
        ],
        spec.model,
        [helper.make_tensor_value_info("rows", TensorProto.INT32, [_ROWS_TAKEN])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [_ROWS_TAKEN, _ROW_BYTES])],
        [*_quantization(zero=128), numpy_helper.from_array(table, "table")],
    )


def _weights_heavy_inputs(spec: ModelSpec) -> dict[str, np.ndarray[Any, Any]]:
    picked = random_bytes(f"{spec.model} rows", 4 * _ROWS_TAKEN).view("<u4") % _table_rows(spec)
    return {"rows": picked.astype("<i4")}


def _table_rows(spec: ModelSpec) -> int:
    return spec.megabytes * 1_000_000 // _ROW_BYTES


def _io_heavy(spec: ModelSpec) -> onnx.GraphProto:
    from onnx import TensorProto, helper

    shape = [1, spec.megabytes // 2, *_PLANE]
    return helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real_x"]),
            helper.make_node("Relu", ["real_x"], ["real_y"]),
            helper.make_node("QuantizeLinear", ["real_y", "scale", "zero"], ["y"]),
        ],
        spec.model,
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape)],
        _quantization(zero=64 + spec.variant % 128),
    )


def _io_heavy_inputs(spec: ModelSpec) -> dict[str, np.ndarray[Any, Any]]:
    shape = (1, spec.megabytes // 2, *_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 500_000).reshape(shape)}


def _spill_heavy(spec: ModelSpec) -> onnx.GraphProto:
    """Every convolution moves its map by one pixel; then comes the maximum with all earlier maps.

    Exact in 8 bits, cheap to execute, and no map can be given up before the last one is there.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    channels = 64 * spec.megabytes
    shape = [1, channels, *_SPILL_PLANE]
    taps = np.zeros((_SPILL_DEPTH, channels, 1, 3, 3), np.int8)
    for layer in range(_SPILL_DEPTH):
        taps[layer, :, :, layer % 3, (layer // 3 + spec.variant) % 3] = 64
    constants = _quantization(zero=64)
    constants += [
        numpy_helper.from_array(np.array(1 / 64, "<f4"), "tap_scale"),
        numpy_helper.from_array(np.array(0, "i1"), "tap_zero"),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real_0"])]
    for layer, weights in enumerate(taps, 1):
        constants.append(numpy_helper.from_array(weights, f"taps_{layer}"))
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
    last = f"real_{_SPILL_DEPTH}"
    for layer in range(_SPILL_DEPTH - 1, -1, -1):
        nodes.append(helper.make_node("Max", [last, f"real_{layer}"], [f"greater_{layer}"]))
        last = f"real_greater_{layer}"
        nodes += _requantized(f"greater_{layer}", last)
    nodes[-1:] = []
    nodes[-1].output[0] = "y"
    return helper.make_graph(
        nodes,
        spec.model,
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape)],
        constants,
    )


def _requantized(name: str, real: str) -> list[onnx.NodeProto]:
    from onnx import helper

    return [
        helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"{name}_8bit"]),
        helper.make_node("DequantizeLinear", [f"{name}_8bit", "scale", "zero"], [real]),
    ]


def _spill_heavy_inputs(spec: ModelSpec) -> dict[str, np.ndarray[Any, Any]]:
    shape = (1, 64 * spec.megabytes, *_SPILL_PLANE)
    return {"x": random_bytes(f"{spec.model} x", spec.megabytes * 1_000_000).reshape(shape)}


def _quantization(zero: int) -> list[onnx.TensorProto]:
    """Scale and zero point; the same ones before and after make 8-bit data pass unchanged."""
    import numpy as np
    from onnx import numpy_helper

    return [
        numpy_helper.from_array(np.array(_SCALE, "<f4"), "scale"),
        numpy_helper.from_array(np.array(zero, "u1"), "zero"),
    ]


GRAPHS: Final[Mapping[str, Callable[[ModelSpec], Any]]] = MappingProxyType(
    {
        "tiny": _tiny,
        "weights-heavy": _weights_heavy,
        "io-heavy": _io_heavy,
        "spill-heavy": _spill_heavy,
    }
)
INPUTS: Final[Mapping[str, Callable[[ModelSpec], dict[str, Any]]]] = MappingProxyType(
    {
        "tiny": _tiny_inputs,
        "weights-heavy": _weights_heavy_inputs,
        "io-heavy": _io_heavy_inputs,
        "spill-heavy": _spill_heavy_inputs,
    }
)
