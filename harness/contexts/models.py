"""The models that contexts are made of: built in code, the same to the byte everywhere.

MB are 10^6 bytes throughout. Weights and inputs come from the raw output of PCG64, which numpy
keeps the same in all versions, so that a model's key stands for its bytes and its inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from harness.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import onnx

_IR_VERSION = 9
_OPSET = 17
_MAX_MEGABYTES = 1024
_MAX_VARIANTS = 10_000

_TINY_WIDTH = 16
_ROW_BYTES = 4000
_ROWS_TAKEN = 16
_PLANE = (1000, 1000)
_SPILL_PLANE = (125, 125)
_SPILL_DEPTH = 8
_SCALE = 0.02
_OUTPUTS = ("y",)
_NAME = re.compile(
    r"(?P<kind>[a-z]+(?:-[a-z]+)*?)(?:-(?P<size>\d{1,6})mb)?(?:-variant(?P<variant>\d{1,6}))?"
    r"(?:-by-(?P<prepare>memhandle|spill-fill))?",
    re.ASCII,
)

Prepare = Literal["raw", "memhandle", "spill-fill"]
PREPARATIONS: Final[Mapping[Prepare, Mapping[str, str]]] = MappingProxyType(
    {
        "raw": {},
        # The graph's inputs and outputs get memType MEMHANDLE, as qnn-context-binary-generator
        # gives them for `--input_output_tensor_mem_type memhandle`.
        "memhandle": {"enable_htp_shared_memory_allocator": "1"},
        # The EPContext model says what the largest spill-fill buffer of its context is.
        "spill-fill": {"enable_htp_spill_fill_buffer": "1"},
    }
)
"""How a context can be prepared: options of ORT's QNN execution provider for the compiler."""


@dataclass(frozen=True)
class _Kind:
    """What is known of a kind of model: its purpose, bounds of its size, how exact it runs."""

    purpose: str
    megabytes: tuple[int, int]
    step: int
    tolerance: float


KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        # 16 products of numbers below 1 in half precision (11 bits): 16 * 2**-11 at worst.
        "tiny": _Kind("one MatMul, float32 in and out", (0, 0), 1, 0.01),
        "weights-heavy": _Kind("a table of 8-bit weights", (1, _MAX_MEGABYTES), 1, 0.0),
        "io-heavy": _Kind("Relu on 8-bit data: big I/O, small file", (2, _MAX_MEGABYTES), 2, 0.0),
        "spill-heavy": _Kind("skips over convolutions: outgrows the VTCM", (1, 64), 1, 0.0),
    }
)


@dataclass(frozen=True, order=True)
class ModelSpec:
    """One model: a kind, its size in MB where the kind has one, and which of its variants.

    - `tiny`: MatMul of [1, 16] with a 16 x 16 matrix.
    - `weights-heavy`: rows picked by index out of a table of `megabytes` MB of 8-bit weights.
      Nothing but the table is large, and whatever is not used of it stays in the binary.
    - `io-heavy`: quantised Relu with half of `megabytes` MB (even) going in and half coming out.
      Exact, and 50 times faster on the simulator than the same bytes in float32.
    - `spill-heavy`: maps of `megabytes` MB that are kept for skip connections over convolutions, so
      that they outgrow the VTCM and part of them is spilled to memory and filled back.

    `prepare` is one of `PREPARATIONS`: how the compiler is told to make the context.

    Variants differ in content, so each gives a binary of its own. Raises ConfigError for a kind,
    size, variant or preparation that does not exist.
    """

    kind: str
    megabytes: int = 0
    variant: int = 0
    prepare: Prepare = "raw"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"unknown model {self.kind!r}", choices=KINDS)
        if self.prepare not in PREPARATIONS:
            raise ConfigError(f"unknown preparation {self.prepare!r}", choices=PREPARATIONS)
        kind = KINDS[self.kind]
        least, most = kind.megabytes
        if not least <= self.megabytes <= most or self.megabytes % kind.step:
            even = ", even" if kind.step == 2 else ""
            raise ConfigError(
                f"{self.kind} cannot have {self.megabytes} MB (valid: {least} to {most}{even})"
            )
        if not 0 <= self.variant < _MAX_VARIANTS:
            raise ConfigError(f"variant {self.variant} is not between 0 and {_MAX_VARIANTS - 1}")

    def __str__(self) -> str:
        prepared = f"-by-{self.prepare}" if self.prepare != "raw" else ""
        return f"{self.model}{prepared}"

    @property
    def model(self) -> str:
        """The model's name, whatever way its context is prepared."""
        size = f"-{self.megabytes}mb" if self.megabytes else ""
        variant = f"-variant{self.variant}" if self.variant else ""
        return f"{self.kind}{size}{variant}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The model that `str` calls so, as in io-heavy-56mb. Raises ConfigError."""
        found = _NAME.fullmatch(text)
        if found is None:
            raise ConfigError(f"unknown model {text[:80]!r}", choices=KINDS)
        size, variant = int(found["size"] or 0), int(found["variant"] or 0)
        return cls(found["kind"], size, variant, found["prepare"] or "raw")  # type: ignore[arg-type]

    @property
    def tolerance(self) -> float:
        """By how much an output may differ from the reference, in units of its raw values."""
        return KINDS[self.kind].tolerance

    def build(self) -> onnx.ModelProto:
        """The model."""
        from onnx import helper

        graph = _GRAPHS[self.kind](self)
        return helper.make_model(
            graph,
            producer_name="qnn-harness",
            producer_version="",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )

    def serialized(self) -> bytes:
        """The model as bytes, the same every time."""
        return bytes(self.build().SerializeToString(deterministic=True))

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Input arrays by name, in the order of the model's inputs; always the same."""
        return _INPUTS[self.kind](self)

    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in the order of the model."""
        return _OUTPUTS


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


_GRAPHS: Final[Mapping[str, Callable[[ModelSpec], Any]]] = MappingProxyType(
    {
        "tiny": _tiny,
        "weights-heavy": _weights_heavy,
        "io-heavy": _io_heavy,
        "spill-heavy": _spill_heavy,
    }
)
_INPUTS: Final[Mapping[str, Callable[[ModelSpec], dict[str, Any]]]] = MappingProxyType(
    {
        "tiny": _tiny_inputs,
        "weights-heavy": _weights_heavy_inputs,
        "io-heavy": _io_heavy_inputs,
        "spill-heavy": _spill_heavy_inputs,
    }
)
