"""The models that contexts are compiled from: built in code, the same to the byte everywhere.

MB are 10^6 bytes throughout. The graphs are in generated_models.py; a model's key stands for its
bytes and its inputs.

The architecture is the paper's, in the form that torchvision's ONNX export in evaluation mode has:
batch normalisation is folded into the convolutions, ReLU6 is Clip. Every weight is a multiple of
1/128 of its layer's bound, so that float model and 8-bit twin have the very same weights and differ
in their activations only.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from harness.core.errors import ConfigError
from harness.core.files import keep_whole
from harness.core.yaml_document import did_you_mean
from harness.models import generated_models
from harness.models.generated_models import DataType, constant, graph, random_bytes, random_floats

if TYPE_CHECKING:
    import numpy as np
    import onnx


PIXELS: Final = 224
CLASSES: Final = 1000
BLOCKS: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Table 2 of the paper: expansion t, channels c, repeats n, stride s of the first."""


_TABLE: Final = files("harness.models").joinpath("mobilenet-ranges.tsv").read_text("ascii")
RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        name: (float(least), float(most))
        for name, least, most in (line.split("\t") for line in _TABLE.splitlines())
    }
)
"""The calibrated ranges of the activations, with which the 8-bit twin is quantised.

They are fixed, so that the twin is equal to the byte on every computer: the least and greatest
value over the pictures of variants 1000 to 1003, by ORT 1.26.0 on the CPU, two digits. The range
after a ReLU6 is 0 to 6. A test calibrates again and compares.
"""

_FIRST: Final = 32
_LAST: Final = 1280
_SIX: Final = (0.0, 6.0)
_PATCHES: Final = 4
_INPUT: Final = f"float[1, 3, {PIXELS}, {PIXELS}] x"
_OUTPUT: Final = f"float[1, {CLASSES}] y"


@dataclass(frozen=True)
class Layer:
    """A node that has weights, or adds or averages the outputs of others.

    `gain` scales a layer's outputs: 2 in front of a ReLU6, which takes half.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    channels: tuple[int, int] = (0, 0)
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False
    relu6: bool = False
    gain: float = 1.0

    @property
    def weight_shape(self) -> tuple[int, ...]:
        before, after = self.channels
        if self.kind == "Gemm":
            return after, before
        return after, 1 if self.depthwise else before, self.kernel, self.kernel

    @property
    def op(self) -> str:
        """The operator with its attributes, in ONNX's text syntax."""
        if self.kind == "Gemm":
            return "Gemm <transB = 1>"
        if self.kind != "Conv":
            return self.kind
        group = self.channels[1] if self.depthwise else 1
        shape = f"kernel_shape = {[self.kernel] * 2}, strides = {[self.stride] * 2}"
        return f"Conv <{shape}, pads = {[self.kernel // 2] * 4}, group = {group}>"

    @property
    def weight_bound(self) -> float:
        return math.sqrt(3 * self.gain / math.prod(self.weight_shape[1:]))


def layers() -> Iterator[Layer]:
    """All layers in order; the input is called `x`, the output `y`."""
    yield Layer("first", "Conv", ("x",), (3, _FIRST), 3, 2, relu6=True)
    last, channels = "first", _FIRST
    for stage, (expansion, out, repeats, stride) in enumerate(BLOCKS):
        for block in range(repeats):
            name, before = f"block_{stage}_{block}", last
            wide = channels * expansion
            if expansion > 1:
                yield Layer(f"{name}_expand", "Conv", (last,), (channels, wide), relu6=True)
                last = f"{name}_expand"
            step = stride if block == 0 else 1
            yield Layer(f"{name}_filter", "Conv", (last,), (wide, wide), 3, step, True, True, 2.0)
            yield Layer(f"{name}_project", "Conv", (f"{name}_filter",), (wide, out), gain=2.0)
            last = f"{name}_project"
            if step == 1 and channels == out:
                yield Layer(f"{name}_add", "Add", (before, last))
                last = f"{name}_add"
            channels = out
    yield Layer("last", "Conv", (last,), (channels, _LAST), relu6=True, gain=2.0)
    yield Layer("average", "GlobalAveragePool", ("last",))
    yield Layer("y", "Gemm", ("average",), (_LAST, CLASSES), gain=2.0)


def build_float(spec: Model) -> onnx.GraphProto:
    """The graph in float32."""
    nodes, constants = [], [constant("zero", 0.0, "<f4"), constant("six", 6.0, "<f4")]
    for layer in layers():
        inputs = [*layer.inputs]
        if layer.kind == "Gemm":
            nodes.append(f"flat = Flatten <axis = 1> ({layer.inputs[0]})")
            inputs = ["flat"]
        if layer.channels[0]:
            inputs += [f"{layer.name}_w", f"{layer.name}_b"]
            constants += map(constant, inputs[1:], float_weights(spec, layer))
        out = f"{layer.name}_raw" if layer.relu6 else layer.name
        nodes.append(f"{out} = {layer.op} ({', '.join(inputs)})")
        if layer.relu6:
            nodes.append(f"{layer.name} = Clip({out}, zero, six)")
    return graph(spec, _INPUT, _OUTPUT, nodes, constants)


def build_quantised(spec: Model) -> onnx.GraphProto:
    """The twin in QDQ form: 8-bit activations and weights, 32-bit biases, float32 in and out.

    A Clip is not needed: a range of 0 to 6 is one.
    """
    nodes: list[str] = []
    constants: list[onnx.TensorProto] = []
    scales: dict[str, float] = {}

    def requantise(name: str, source: str, target: str) -> None:
        # 0 to 6 behind ReLU6, elsewhere as calibrated
        scale, zero = quantization(*RANGES.get(name.removesuffix("_flat"), _SIX))
        scales[name] = scale
        constants.append(constant(f"{name}_scale", scale, "<f4"))
        constants.append(constant(f"{name}_zero", zero, "u1"))
        encoding = f"{name}_scale, {name}_zero"
        nodes.append(f"{name}_8bit = QuantizeLinear({source}, {encoding})")
        nodes.append(f"{target} = DequantizeLinear({name}_8bit, {encoding})")

    requantise("x", "x", "x_real")
    for layer in layers():
        inputs = [f"{name}_real" for name in layer.inputs]
        if layer.kind == "Gemm":
            nodes.append(f"flat = Flatten <axis = 1> ({inputs[0]})")
            requantise("average_flat", "flat", "flat_real")
            inputs = ["flat_real"]
        if layer.channels[0]:
            weights, bias = integer_weights(spec, layer, scales[layer.inputs[0]])
            weight_scale = layer.weight_bound / 128
            bias_scale = weight_scale * scales[layer.inputs[0]]
            for kind, array, scale, zero, dtype in (
                ("w", weights, weight_scale, 128, "u1"),
                ("b", bias, bias_scale, 0, "i4"),
            ):
                name = f"{layer.name}_{kind}"
                constants.append(constant(name, array))
                constants.append(constant(f"{name}_scale", scale, "<f4"))
                constants.append(constant(f"{name}_zero", zero, dtype))
                nodes.append(f"{name}_real = DequantizeLinear({name}, {name}_scale, {name}_zero)")
                inputs.append(f"{name}_real")
        out = f"{layer.name}_wide"
        nodes.append(f"{out} = {layer.op} ({', '.join(inputs)})")
        requantise(layer.name, out, "y" if layer.name == "y" else f"{layer.name}_real")
    return graph(spec, _INPUT, _OUTPUT, nodes, constants)


def make_inputs(spec: Model) -> dict[str, np.ndarray[Any, Any]]:
    """A picture of coloured patches under some noise, in [-1, 1): noise alone averages out."""
    import numpy as np

    patches = random_floats(f"{_seed(spec)} patches", 3, _PATCHES, _PATCHES)
    size = PIXELS // _PATCHES
    noise = random_floats(f"{_seed(spec)} noise", 3, PIXELS, PIXELS)
    picture = np.kron(patches, np.ones((1, size, size), "<f4")) * 0.75 + noise * 0.25
    return {"x": picture.astype("<f4")[None]}


def float_weights(spec: Model, layer: Layer) -> tuple[Any, Any]:
    """Weights and biases of a layer."""
    bound, after = layer.weight_bound, layer.channels[1]
    weights = random_floats(f"{_seed(spec)} {layer.name} w", *layer.weight_shape) * bound
    bias = random_floats(f"{_seed(spec)} {layer.name} b", after) * 0.1
    return weights.astype("<f4"), bias.astype("<f4")


def integer_weights(spec: Model, layer: Layer, input_scale: float) -> tuple[Any, Any]:
    """These weights as numbers of 8 bits (128 is zero), biases as numbers of 32 bits."""
    import numpy as np

    seed = f"{_seed(spec)} {layer.name}"
    weights = random_bytes(f"{seed} w", math.prod(layer.weight_shape)).reshape(layer.weight_shape)
    scale = np.float32(layer.weight_bound / 128) * np.float32(input_scale)
    _, bias = float_weights(spec, layer)
    return weights, np.round(bias / scale).astype("<i4")


def quantization(least: float, most: float) -> tuple[float, int]:
    """Scale and zero point of 8 bits for a range, which is widened to hold zero."""
    least, most = min(least, 0.0), max(most, 0.0)
    scale = (most - least) / 255
    return scale, round(-least / scale)


def _seed(spec: Model) -> str:
    return f"mobilenet-v2 {spec.variant}"


_IR_VERSION = 9
_OPSET = 17
_MAX_MEGABYTES = 1024
_MAX_VARIANTS = 10_000

_OUTPUTS = ("y",)
_NAME = re.compile(
    r"(?P<kind>[a-z]+(?:-[a-z0-9]+)*?)(?:-(?P<size>\d{1,6})mb)?(?:-variant(?P<variant>\d{1,6}))?"
    r"(?:-by-(?P<prepare>memhandle|spill-fill))?(?:-for-v(?P<arch>\d{2}))?",
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
"""Ways to prepare a context: options of ORT's QNN execution provider for the compiler."""


@dataclass(frozen=True)
class _Kind:
    """A kind of model: its graph, the bounds of its size, its accuracy.

    `graph` and `inputs` build those of a model, inputs as arrays by name. `data_type` is the type
    of its activations, `output_type` the numpy type of its outputs.
    """

    graph: Callable[[Model], onnx.GraphProto]
    inputs: Callable[[Model], dict[str, np.ndarray[Any, Any]]]
    megabytes: tuple[int, int]
    step: int = 1
    tolerance: float = 0.0
    data_type: DataType = "uint8"
    output_type: str = "u1"
    opset: int = _OPSET
    ir_version: int = _IR_VERSION


KINDS: Final[Mapping[str, _Kind | generated_models.Operator]] = MappingProxyType(
    {
        # 16 products of numbers below 1 in half precision (11 bits): 16 * 2**-11 at worst
        "tiny": _Kind(
            generated_models.tiny, generated_models.tiny_inputs, (0, 0), 1, 0.01, "float32", "<f4"
        ),
        "weights-heavy": _Kind(
            generated_models.weights_heavy,
            generated_models.weights_heavy_inputs,
            (1, _MAX_MEGABYTES),
        ),
        "io-heavy": _Kind(
            generated_models.io_heavy, generated_models.io_heavy_inputs, (2, _MAX_MEGABYTES), 2
        ),
        "spill-heavy": _Kind(
            generated_models.spill_heavy, generated_models.spill_heavy_inputs, (1, 64)
        ),
        # 53 layers in half precision, or in 8 bits with float32 in and out: how close these come
        # is in experiments/accuracy.py
        "mobilenet-v2": _Kind(build_float, make_inputs, (0, 0), 1, 0.1, "float32", "<f4"),
        "mobilenet-v2-8bit": _Kind(build_quantised, make_inputs, (0, 0), 1, 1.0, "uint8", "<f4"),
        **generated_models.OPERATORS,
    }
)


@dataclass(frozen=True, order=True)
class Model:
    """One model: a kind, its size in MB if the kind has one, and the number of a variant.

    - `tiny`: MatMul of [1, 16] with a 16 x 16 matrix.
    - `weights-heavy`: rows picked by index out of a table of `megabytes` MB of 8-bit weights.
      Only the table is large, and its unused rows stay in the binary.
    - `io-heavy`: quantised Relu with half of `megabytes` MB (even) going in and half coming out.
      Exact, and 50 times faster on the simulator than the same bytes in float32.
    - `spill-heavy`: maps of `megabytes` MB that are kept for skip connections over pooling, so that
      they outgrow the VTCM and part of them is spilled to memory and filled back.
    - `mobilenet-v2`: MobileNet-v2 for 224 x 224 pixels (builtin_models.py), in float32.
    - `mobilenet-v2-8bit`: the same with 8-bit weights and activations (QDQ), float32 in and out.
    - the names of `OPERATORS` (generated_models.py), as `conv-3x3-8bit`: one operator each.

    `prepare` is one of `PREPARATIONS`, options of the compiler. `htp_arch` (75 for v75) is the HTP
    to compile for, instead of the device's.

    Variants differ in content, so each has its own binary. Raises ConfigError for a kind, size,
    variant or preparation that does not exist.
    """

    kind: str
    megabytes: int = 0
    variant: int = 0
    prepare: Prepare = "raw"
    htp_arch: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = did_you_mean(self.kind, KINDS)
            raise ConfigError(f"unknown model {self.kind!r}{near}", choices=KINDS)
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
        return f"{self.model}{prepared}" + (f"-for-v{self.htp_arch}" if self.htp_arch else "")

    # other plug-ins of pytest (allure) show parameters by their repr
    __repr__ = __str__

    @property
    def compiled(self) -> bool:
        """True: its contexts are compiled here."""
        return True

    def seen_from(self, folder: Path) -> Self:
        """Return the model itself: it is built in code, and has no path."""
        return self

    @property
    def model(self) -> str:
        """Name of the model, however its context is prepared."""
        size = f"-{self.megabytes}mb" if self.megabytes else ""
        variant = f"-variant{self.variant}" if self.variant else ""
        return f"{self.kind}{size}{variant}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the model with the given `str`, as io-heavy-56mb. Raises ConfigError."""
        match = _NAME.fullmatch(text)
        if match is None:
            near = did_you_mean(text, KINDS)
            raise ConfigError(f"unknown model {text[:80]!r}{near}", choices=KINDS)
        size, variant = int(match["size"] or 0), int(match["variant"] or 0)
        return cls(match["kind"], size, variant, match["prepare"] or "raw", int(match["arch"] or 0))  # type: ignore[arg-type]

    @property
    def compared(self) -> bool:
        """True: its outputs are compared with those of ONNX Runtime on the CPU."""
        return True

    @property
    def tolerance(self) -> float:
        """Largest difference of an output from the reference, in units of its raw values."""
        return KINDS[self.kind].tolerance

    @property
    def data_type(self) -> DataType:
        """Type of the activations."""
        return KINDS[self.kind].data_type

    @property
    def output_type(self) -> str:
        """Numpy type of the outputs in raw files."""
        return KINDS[self.kind].output_type

    def build(self) -> onnx.ModelProto:
        """Return the model."""
        from onnx import helper

        kind = KINDS[self.kind]
        return helper.make_model(
            kind.graph(self),
            producer_name="qnn-harness",
            producer_version="",
            ir_version=kind.ir_version,
            opset_imports=[helper.make_opsetid("", kind.opset)],
        )

    @property
    def recipe(self) -> str:
        """Digest of all that its bytes depend on; empty for a user's file."""
        return hashlib.sha256(f"{self.model}\n{_makers()}".encode()).hexdigest()

    def serialized(self) -> bytes:
        """Return the model as bytes, the same every time."""
        return bytes(self.build().SerializeToString(deterministic=True))

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return input arrays by name, in the order of the model's inputs; always the same."""
        return KINDS[self.kind].inputs(self)

    @property
    def without_inputs(self) -> Self:
        """The model without its inputs: itself."""
        return self

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, in the order of the model."""
        return _OUTPUTS

    def expected(self) -> dict[str, Path]:
        """Return a user's raw files of expected outputs: none, as a reference is computed."""
        return {}


@cache
def _makers() -> str:
    """Return the digest of the code that builds models, and of the libraries' versions."""
    digest = hashlib.sha256(" ".join(map(version, ("numpy", "onnx"))).encode())
    for path in sorted(Path(__file__).parent.glob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class OnnxFiles:
    """ONNX files of models below `<cache_root>/onnx`, for sessions on devices."""

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "onnx"
        self._paths: dict[Model, Path] = {}

    def path(self, model: Model) -> Path:
        """Return the model's file, written if it is missing or damaged. Raises InfraError."""
        alone = model.without_inputs
        if alone not in self._paths:
            content = model.serialized()
            path = self._root / f"{alone}-{hashlib.sha256(content).hexdigest()[:16]}.onnx"
            keep_whole(path, content)
            self._paths[alone] = path
        return self._paths[alone]
