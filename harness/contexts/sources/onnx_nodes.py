"""The nodes of an ONNX model in their order, and the types and shapes of its tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.contexts.sources.onnx_shapes import shaped
from harness.libraries.containers.graph_nodes import GraphNode


@dataclass(frozen=True)
class OnnxNodes:
    """The nodes of a model, each before those of the graphs within it.

    `inputs` and `outputs` are the model's own, without weights. `kinds` has of each tensor its type
    and shape in words, `sizes` its bytes where the shape is known.
    """

    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Self:
        """The nodes of a model. Raises ConfigError for what is no model."""
        graph = shaped(path).graph
        weights = {one.name for one in graph.initializer}
        nodes = tuple(_nodes(graph, weights))
        kinds, sizes = {}, {}
        for one in (*graph.input, *graph.value_info, *graph.output):
            kinds[one.name], size = _kind(one)
            if size is not None:
                sizes[one.name] = size
        inputs = tuple(one.name for one in graph.input if one.name not in weights)
        outputs = tuple(one.name for one in graph.output)
        return cls(nodes, inputs, outputs, kinds, sizes)

    def shapes(self) -> dict[str, str]:
        """Type and shape of what each node reads, by the node's name."""
        return {
            one.name: ", ".join(self.kinds[name] for name in one.reads if name in self.kinds)
            for one in self.nodes
        }


def _nodes(graph: Any, weights: Set[str], within: str | None = None) -> Iterator[GraphNode]:
    own = weights | {one.name for one in graph.initializer}
    for at, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{at}"
        reads = dict.fromkeys(one for one in all_inputs(node) if one not in own)
        writes = tuple(filter(None, node.output))
        yield GraphNode(name, node.op_type, tuple(reads), writes, not node.name, within)
        for inner in graphs_within(node):
            yield from _nodes(inner, own, name)


def all_inputs(node: Any) -> list[str]:
    """All that a node takes, also what graphs within it take from outside."""
    found = [name for name in node.input if name]
    for graph in graphs_within(node):
        own = {one.name for one in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        taken = [name for inner in graph.node for name in all_inputs(inner)]
        found += [name for name in (*taken, *(one.name for one in graph.output)) if name not in own]
    return found


def graphs_within(node: Any) -> Iterator[Any]:
    """The graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _kind(tensor: object) -> tuple[str, int | None]:
    """Type and shape in words, and bytes where all dimensions are known."""
    import numpy as np
    from onnx import helper

    kind = tensor.type.tensor_type  # type: ignore[attr-defined]
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except (KeyError, TypeError, ValueError):
        return f"type {kind.elem_type}", None
    if not kind.HasField("shape"):
        return f"{dtype.name}, of no known shape", None
    dims = [one.dim_value or one.dim_param or "?" for one in kind.shape.dim]
    known = all(isinstance(one, int) for one in dims)
    size = math.prod(dims) * dtype.itemsize if known else None
    return f"{dtype.name} [{', '.join(map(str, dims))}]", size
