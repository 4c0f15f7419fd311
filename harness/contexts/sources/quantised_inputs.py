"""The ranges of a quantised model's inputs: the values that it was calibrated for (pure)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx

Users = Mapping[str, Sequence["onnx.NodeProto"]]

_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_SAME_VALUES: Final = frozenset(
    {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_LARGEST: Final = 1e30
"""A range that goes further is none."""


def quantised_ranges(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """Return the least and the largest value that the model quantises an input to, by input.

    Of an input that is quantised itself they are those of its type.
    """
    users: dict[str, list[onnx.NodeProto]] = {}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and node.output:
                constants[node.output[0]] = attribute.t
    ranges = {}
    for tensor in model.graph.input:
        # a scale that is calculated, for each channel, or in a type that numpy does not know
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            node = next(_quantising(tensor.name, users), None)
            if node is not None:
                ranges[tensor.name] = _range(node, constants)
    return ranges


def _quantising(name: str, users: Users) -> Iterator[onnx.NodeProto]:
    left, seen = [name], {name}
    while left:
        for node in users.get(left.pop(), ()):
            if node.op_type in (_QUANTISE, _DEQUANTISE):
                yield node
            elif node.op_type in _SAME_VALUES and node.output and node.output[0] not in seen:
                left.append(node.output[0])
                seen.add(node.output[0])


def _range(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, float]:
    """Return the range of a node that quantises. Raises ValueError where there is none."""
    import numpy as np
    from onnx import numpy_helper

    zeros = numpy_helper.to_array(constants[node.input[2]])
    info = np.iinfo(zeros.dtype)
    if node.op_type == _DEQUANTISE:
        return int(info.min), int(info.max)
    zero, scale = int(zeros.item()), numpy_helper.to_array(constants[node.input[1]]).item()
    low, high = (info.min - zero) * scale, (info.max - zero) * scale
    if not -_LARGEST < low < high < _LARGEST:
        raise ValueError(f"{low} to {high} is no range")
    return low, high
