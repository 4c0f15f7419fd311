"""A model taken apart: its ops, and models that give out what lies between them (pure)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.ground import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import onnx

_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_SHAPES: Final = frozenset({"Shape", "Size"})
_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class TensorKind:
    """What is known of a tensor: numpy's name of its elements, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Op:
    """What is looked at as one: a node, or a node with what quantises its output.

    `op` is the node's name, `nodes` are places of all nodes in the model, `gives` the tensors that
    come out, whose values stand for `zero` where they are that (of quantised ones).
    """

    op: str
    type: str
    nodes: tuple[int, ...]
    gives: tuple[str, ...]
    zero: int = 0


class Network:
    """An ONNX model with fixed shapes; nodes without a name, or with one of another, get one."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx
        from onnx import inliner

        copy = onnx.ModelProto()
        copy.CopyFrom(inliner.inline_local_functions(model) if model.functions else model)
        self.model = copy
        self.nodes: Sequence[onnx.NodeProto] = copy.graph.node
        _name(copy.graph.node)
        self.weights = {one.name: one for one in copy.graph.initializer}
        self.inputs = [one.name for one in copy.graph.input if one.name not in self.weights]
        self.kinds = _kinds(copy)
        self.made_by = {
            name: at for at, node in enumerate(self.nodes) for name in node.output if name
        }
        self.constant = self._constant(frozenset())
        self.free = self._free()
        self._users = Counter(name for node in self.nodes for name in _takes(node))
        self._users.update(one.name for one in copy.graph.output)

    def ops(self) -> list[Op]:
        """Every node whose output depends on an input, in order."""
        return [self._op((at,)) for at in range(len(self.nodes)) if at not in self.constant]

    def units(self) -> list[Op]:
        """The same as a quantising backend sees them: from what dequantises to what quantises.

        Shapes are constants to it.
        """
        free = self.free
        into: dict[int, list[int]] = {}
        for at in reversed(range(len(self.nodes))):
            node, chain = self.nodes[at], [at]
            while node.op_type == _QUANTISE and at not in free:
                before = self.made_by.get(self.nodes[chain[0]].input[0])
                if before is None or before in free or not self._only_for_one(before):
                    break
                if self.nodes[before].op_type == _QUANTISE:
                    break
                chain.insert(0, before)
            into[at] = chain
        inside = {one for chain in into.values() for one in chain[:-1]}
        outputs = {one.name for one in self.model.graph.output}
        found = []
        for at in range(len(self.nodes)):
            last = at not in inside and (at not in free or self._gives_out(at, outputs))
            if last and at not in self.constant:
                found.append(self._op(tuple(into[at])))
        return found

    def whole(self, wanted: Sequence[str]) -> onnx.ModelProto:
        """The model whose outputs are these tensors, with inputs called `in_0` and so on."""
        import onnx

        names = {name: in_name(at) for at, name in enumerate(self.inputs)}
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        graph = made.graph
        for node in graph.node:
            _rename(node, names, {})
        del graph.input[:], graph.output[:], graph.value_info[:]
        graph.input.extend(self._info(name, names[name]) for name in self.inputs)
        graph.output.extend(self._info(name, name) for name in wanted)
        _without_unused(graph)
        return made

    def takes(self, op: Op, *, unit: bool) -> list[str]:
        """The tensors that an op calculates with, but for constants."""
        return [one for one in self._closure(op, unit)[1] if one in self.kinds]

    def apart(
        self, ops: Sequence[Op], tensors: Mapping[str, str], *, unit: bool
    ) -> onnx.ModelProto:
        """A model of these ops, each by itself: all they take are inputs, all they give outputs.

        `tensors` says what each input is called; outputs are called by `out_name`.
        """
        import onnx

        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        graph = made.graph
        del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
        taken: dict[str, None] = {}
        for number, op in enumerate(ops):
            nodes, takes = self._closure(op, unit)
            taken.update(dict.fromkeys(takes))
            named = dict(tensors) | {
                name: f"diverge_{number}_{at}_{out}"
                for at in nodes
                for out, name in enumerate(self.nodes[at].output)
                if name
            }
            own = {name: out_name(number, out) for out, name in enumerate(op.gives)}
            for at in nodes:
                node = self.nodes[at]
                if unit and node.op_type in _SHAPES:
                    shape = self._shape(node)
                    shape.name = named[node.output[0]]
                    graph.initializer.append(shape)
                    continue
                copied = graph.node.add()
                copied.CopyFrom(node)
                copied.name = f"{node.name}_{number}" if len(ops) > 1 else node.name
                _rename(copied, named | own, named | own)
            graph.output.extend(self._info(name, new) for name, new in own.items())
        graph.input.extend(self._info(name, tensors[name]) for name in taken)
        _without_unused(graph)
        return made

    def like(self, other: Network) -> None:
        """Raises ConfigError unless the other one takes the same inputs."""
        for name in dict.fromkeys([*self.inputs, *other.inputs]):
            mine, theirs = self.kinds.get(name), other.kinds.get(name)
            if name not in self.inputs or name not in other.inputs or mine != theirs:
                problem = f"the models do not take the same: input {name} is {mine} and {theirs}"
                raise ConfigError(problem, field="--reference")

    def _op(self, nodes: tuple[int, ...]) -> Op:
        first, last = self.nodes[nodes[0]], self.nodes[nodes[-1]]
        gives = tuple(name for name in last.output if name and name in self.kinds)
        zero = 0
        if last.op_type == _QUANTISE and len(last.input) > 2 and last.input[2] in self.weights:
            from onnx import numpy_helper

            points = numpy_helper.to_array(self.weights[last.input[2]])
            zero = int(points.ravel()[0]) if points.size == 1 else 0
        return Op(first.name, first.op_type, nodes, gives, zero)

    def _gives_out(self, at: int, outputs: set[str]) -> bool:
        return any(name in outputs for name in self.nodes[at].output)

    def _only_for_one(self, at: int) -> bool:
        names = [name for name in self.nodes[at].output if name]
        return len(names) == 1 and self._users[names[0]] == 1

    def _free(self) -> frozenset[int]:
        """What a backend has as a part of whatever takes it."""
        kept = [
            at
            for at, node in enumerate(self.nodes)
            if node.op_type == _DEQUANTISE
            or (node.op_type in _SHAPES and node.input[0] in self.kinds)
        ]
        shapes = (at for at in kept if self.nodes[at].op_type in _SHAPES)
        return self._constant(frozenset(shapes)) | frozenset(kept)

    def _constant(self, also: frozenset[int]) -> frozenset[int]:
        known, found = set(self.weights), set(also)
        for at, node in enumerate(self.nodes):
            if at in also or (node.op_type not in _RANDOM and set(_takes(node)) <= known):
                found.add(at)
                known.update(node.output)
        return frozenset(found)

    def _closure(self, op: Op, unit: bool) -> tuple[list[int], list[str]]:
        """The nodes of an op with the free ones before it, in order, and what goes into them."""
        free = self.free if unit else self.constant
        found, takes, left = set(op.nodes), dict[str, None](), list(op.nodes)
        while left:
            node = self.nodes[left.pop()]
            if unit and node.op_type in _SHAPES:
                continue
            for name in _takes(node):
                at = self.made_by.get(name)
                if at in found or name in self.weights:
                    continue
                if at is not None and at in free:
                    found.add(at)
                    left.append(at)
                else:
                    takes[name] = None
        return sorted(found), list(takes)

    def _shape(self, node: onnx.NodeProto) -> onnx.TensorProto:
        import numpy as np
        from onnx import numpy_helper

        shape = np.array(self.kinds[node.input[0]].shape, "i8")
        told = {one.name: one.i for one in node.attribute}
        if node.op_type == "Size":
            return numpy_helper.from_array(shape.prod().reshape(()))
        return numpy_helper.from_array(shape[told.get("start", 0) : told.get("end", len(shape))])

    def _info(self, name: str, new: str) -> onnx.ValueInfoProto:
        from onnx import helper

        kind = self.kinds[name]
        element = helper.np_dtype_to_tensor_dtype(_dtype(kind.dtype))
        return helper.make_tensor_value_info(new, element, kind.shape)


def in_name(at: int) -> str:
    """What an input of a model that is made here is called."""
    return f"in{at}"


def out_name(op: int, at: int) -> str:
    """What an output of an op by itself is called."""
    return f"out{op}x{at}"


def plain(name: str, taken: Iterable[str] = ()) -> str:
    """A name as a file can have it, other than those taken."""
    short = _UNUSUAL.sub("_", name).strip("_")[-80:] or "tensor"
    number, found, used = 2, short, {one.lower() for one in taken}
    while found.lower() in used:
        found, number = f"{short}_{number}", number + 1
    return found


def _dtype(name: str) -> np.dtype[Any]:
    import numpy as np

    return np.dtype(name)


def _name(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives each node a name of its own, by its type and place where it has none."""
    listed = list(nodes)
    taken = {node.name for node in listed}
    seen: set[str] = set()
    for at, node in enumerate(listed):
        if not node.name or node.name in seen:
            name = node.name or f"{node.op_type}_{at}"
            while name in taken:
                name += f"_{at}"
            node.name = name
            taken.add(name)
        seen.add(node.name)


def _kinds(model: onnx.ModelProto) -> dict[str, TensorKind]:
    """What each tensor is, as far as it is fixed."""
    import numpy as np
    from onnx import helper, shape_inference

    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    found = {}
    for one in (*graph.input, *graph.value_info, *graph.output):
        tensor = one.type.tensor_type
        if not one.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        shape = tuple(size.dim_value for size in tensor.shape.dim)
        if any(not size.HasField("dim_value") or size.dim_value < 1 for size in tensor.shape.dim):
            continue
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (KeyError, TypeError, ValueError):
            continue
        if dtype.kind in "fiub":
            found[one.name] = TensorKind(dtype.str, shape)
    return found


def _takes(node: onnx.NodeProto) -> list[str]:
    """All that a node takes, also what graphs within it take from outside."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {one.name for one in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            inner_takes = (name for inner in graph.node for name in _takes(inner))
            outer = [*inner_takes, *(one.name for one in graph.output)]
            found += [name for name in outer if name not in own]
    return found


def _rename(node: onnx.NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    for names, new in ((node.input, inputs), (node.output, outputs)):
        for at, name in enumerate(names):
            names[at] = new.get(name, name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                _rename(inner, inputs, {})
            for one in graph.output:
                one.name = inputs.get(one.name, one.name)


def _without_unused(graph: onnx.GraphProto) -> None:
    """Takes out the nodes and weights that no output needs."""
    needed = {one.name for one in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(_takes(node))
            kept.append(node)
    # a copy: what is kept lies in what is cleared
    nodes = [type(node).FromString(node.SerializeToString()) for node in reversed(kept)]
    weights = [one for one in graph.initializer if one.name in needed]
    weights = [type(one).FromString(one.SerializeToString()) for one in weights]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)
    used = [one for one in graph.input if one.name in needed]
    used = [type(one).FromString(one.SerializeToString()) for one in used]
    del graph.input[:]
    graph.input.extend(used)
