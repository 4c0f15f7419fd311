"""MobileNet-v2 (Sandler et al., 2018), width 1.0, and its 8-bit twin, with seeded weights.

The architecture is the paper's, in the form that torchvision's ONNX export in evaluation mode has:
batch normalisation is folded into the convolutions, ReLU6 is Clip. Every weight is a multiple of
1/128 of its layer's bound, so that float model and 8-bit twin have the very same weights and differ
in their activations only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from harness.contexts.compiler.model_graphs import constant, graph, random_bytes, random_floats

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from harness.contexts.compiler.model_graphs import GraphOf

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


def _ranges() -> Iterator[tuple[str, tuple[float, float]]]:
    table = files("harness.contexts.compiler").joinpath("mobilenet-ranges.tsv").read_text("ascii")
    for line in table.splitlines():
        name, least, most = line.split("\t")
        yield name, (float(least), float(most))


RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(dict(_ranges()))
"""The calibrated ranges of the activations, with which the 8-bit twin is quantised.

They are fixed, so that the twin is equal to the byte on every computer: the least and greatest
value over the pictures of variants 1000 to 1003, by ORT 1.26.0 on the CPU, two digits. What is
behind ReLU6 has the range 0 to 6. A test calibrates again and compares.
"""

_FIRST: Final = 32
_LAST: Final = 1280
_SIX: Final = (0.0, 6.0)
_PATCHES: Final = 4
_INPUT: Final = f"float[1, 3, {PIXELS}, {PIXELS}] x"
_OUTPUT: Final = f"float[1, {CLASSES}] y"


@dataclass(frozen=True)
class Layer:
    """One node that has weights, or adds or averages what others gave.

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
        """Of a convolution or of the matrix product."""
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


def build_float(spec: GraphOf) -> onnx.GraphProto:
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


def build_quantised(spec: GraphOf) -> onnx.GraphProto:
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
        how = f"{name}_scale, {name}_zero"
        nodes.append(f"{name}_8bit = QuantizeLinear({source}, {how})")
        nodes.append(f"{target} = DequantizeLinear({name}_8bit, {how})")

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
                constants += [
                    constant(name, array),
                    constant(f"{name}_scale", scale, "<f4"),
                    constant(f"{name}_zero", zero, dtype),
                ]
                nodes.append(f"{name}_real = DequantizeLinear({name}, {name}_scale, {name}_zero)")
                inputs.append(f"{name}_real")
        out = f"{layer.name}_wide"
        nodes.append(f"{out} = {layer.op} ({', '.join(inputs)})")
        requantise(layer.name, out, "y" if layer.name == "y" else f"{layer.name}_real")
    return graph(spec, _INPUT, _OUTPUT, nodes, constants)


def make_inputs(spec: GraphOf) -> dict[str, np.ndarray[Any, Any]]:
    """A picture of coloured patches under some noise, in [-1, 1): noise alone averages out."""
    import numpy as np

    patches = random_floats(f"{_seed(spec)} patches", 3, _PATCHES, _PATCHES)
    size = PIXELS // _PATCHES
    noise = random_floats(f"{_seed(spec)} noise", 3, PIXELS, PIXELS)
    picture = np.kron(patches, np.ones((1, size, size), "<f4")) * 0.75 + noise * 0.25
    return {"x": picture.astype("<f4")[None]}


def float_weights(spec: GraphOf, layer: Layer) -> tuple[Any, Any]:
    """Weights and biases of a layer."""
    bound, after = layer.weight_bound, layer.channels[1]
    weights = random_floats(f"{_seed(spec)} {layer.name} w", *layer.weight_shape) * bound
    bias = random_floats(f"{_seed(spec)} {layer.name} b", after) * 0.1
    return weights.astype("<f4"), bias.astype("<f4")


def integer_weights(spec: GraphOf, layer: Layer, input_scale: float) -> tuple[Any, Any]:
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


def _seed(spec: GraphOf) -> str:
    return f"mobilenet-v2 {spec.variant}"
