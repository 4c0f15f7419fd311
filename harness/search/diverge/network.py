"""A model taken apart: its ops, and models that give out what lies between them (pure)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.contexts.sources.onnx_nodes import all_inputs, graphs_within
from harness.contexts.sources.onnx_shapes import inlined
from harness.ground.errors import ConfigError

if TYPE_CHECKING:
    import onnx

INSIDE: Final = "__in"
"""Behind the name of an input that an op of the same model gives; no other name has two of `_`."""

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
    """An ONNX model with fixed shapes; nodes without a name, or with one of another, get one.

    Tensors are called anew, so that a file can have the name: as those of `like` where a node there
    has the same name, so that values of both are told by one name. `called` has their own names.
    """

    def __init__(self, model: onnx.ModelProto, like: Network | None = None) -> None:
        copy = type(model)()
        copy.CopyFrom(inlined(model))
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(model.graph.initializer)
        self.model = copy
        self.nodes: Sequence[onnx.NodeProto] = copy.graph.node
        _name(copy.graph.node)
        self.weights = {one.name: one for one in copy.graph.initializer}
        new = _new_names(copy, self.weights, like)
        self.called = {name: own for own, name in new.items()}
        for node in self.nodes:
            _rename(node, new, new)
        for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
            value.name = new.get(value.name, value.name)
        self.inputs = [one.name for one in copy.graph.input if one.name not in self.weights]
        self.kinds = _kinds(copy)
        self.made_by = {
            name: at for at, node in enumerate(self.nodes) for name in node.output if name
        }
        self.constant = self._constant(frozenset())
        self.free = self._free()
        self._users = Counter(name for node in self.nodes for name in all_inputs(node))
        self._users.update(one.name for one in copy.graph.output)

    def ops(self) -> list[Op]:
        """Every node whose output depends on an input, in order."""
        return [self._op((at,)) for at in range(len(self.nodes)) if at not in self.constant]

    def units(self) -> list[Op]:
        """The same as a quantising backend sees them: from what dequantises to what quantises.

        Shapes are constants to it.
        """
        chains = [self._chain(at) for at in range(len(self.nodes))]
        passed = self.constant | {one for chain in chains for one in chain[:-1]}
        outputs = {one.name for one in self.model.graph.output}
        return [
            self._op(chain)
            for at, chain in enumerate(chains)
            if at not in passed
            and (at not in self.free or not outputs.isdisjoint(self.nodes[at].output))
        ]

    def whole(self, wanted: Sequence[str]) -> onnx.ModelProto:
        """The model whose outputs are these tensors."""
        nodes, takes = self._behind({self.made_by[name] for name in wanted}, range(len(self.nodes)))
        return self._model([self.nodes[at] for at in nodes], takes, wanted)

    def takes(self, op: Op, *, unit: bool) -> list[str]:
        """The tensors that an op calculates with, but for constants."""
        return [one for one in self._closure(op, unit)[1] if one in self.kinds]

    def parts(self, op: Op) -> list[int]:
        """The places of all nodes that are calculated as one with an op."""
        return [at for at in self._closure(op, unit=True)[0] if at not in self.constant]

    def behind(self, op: Op) -> Iterator[tuple[int, onnx.ModelProto]]:
        """Models of an op with more and more before it, and how many ops these have.

        The op's outputs are theirs.
        """
        nodes, takes = self._behind(op.nodes, self.free)
        while makers := {self.made_by[name] for name in takes if name in self.made_by}:
            chains = [one for maker in makers for one in self._chain(maker)]
            nodes, takes = self._behind([*nodes, *chains], self.free)
            if any(name not in self.kinds for name in takes):
                return
            count = sum(at not in self.free for at in nodes)
            yield count, self._model([self.nodes[at] for at in nodes], takes, op.gives)

    def apart(self, ops: Iterable[Op], *, unit: bool) -> onnx.ModelProto:
        """A model of these ops, each by itself: all they take are inputs, all they give outputs.

        An input that another one gives has `INSIDE` behind its name.
        """
        from onnx import helper

        closures = [(op, *self._closure(op, unit)) for op in ops]
        made = {name for _, nodes, _ in closures for at in nodes for name in self.nodes[at].output}
        inputs: dict[str, str] = {}
        copies: dict[int, onnx.NodeProto] = {}
        for _, nodes, takes in closures:
            new = {name: name + INSIDE if name in made else name for name in takes}
            inputs |= new
            for at in nodes:
                node = self.nodes[at]
                if unit and node.op_type in _SHAPES:
                    copies[at] = helper.make_node(
                        "Constant", [], node.output, value=self._shape(at)
                    )
                else:
                    copies[at] = type(node).FromString(node.SerializeToString())
                    _rename(copies[at], new, {})
        gives = [name for op, _, _ in closures for name in op.gives]
        return self._model([copies[at] for at in sorted(copies)], inputs.values(), gives)

    def check_inputs(self, other: Network) -> None:
        """Raises ConfigError unless the other one takes the same inputs."""
        mine, theirs = (
            {one.called[name]: one.kinds.get(name) for name in one.inputs} for one in (self, other)
        )
        for name in dict.fromkeys([*mine, *theirs]):
            if name not in mine or name not in theirs or mine[name] != theirs[name]:
                kinds = f"{mine.get(name)} and {theirs.get(name)}"
                problem = f"the models do not take the same: input {name} is {kinds}"
                raise ConfigError(problem, field="--reference")

    def _model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Iterable[str], outputs: Iterable[str]
    ) -> onnx.ModelProto:
        from onnx import helper

        used = {name for node in nodes for name in all_inputs(node)}
        graph = helper.make_graph(
            nodes,
            self.model.graph.name or "diverge",
            [self._info(name) for name in inputs],
            [self._info(name) for name in outputs],
            [one for name, one in self.weights.items() if name in used],
            sparse_initializer=self.model.graph.sparse_initializer,
        )
        return helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )

    def _op(self, nodes: tuple[int, ...]) -> Op:
        first, last = self.nodes[nodes[0]], self.nodes[nodes[-1]]
        gives = tuple(name for name in last.output if name and name in self.kinds)
        zero = 0
        if last.op_type == _QUANTISE and len(last.input) > 2 and last.input[2] in self.weights:
            from onnx import numpy_helper

            points = numpy_helper.to_array(self.weights[last.input[2]])
            zero = int(points.ravel()[0]) if points.size == 1 else 0
        return Op(first.name, first.op_type, nodes, gives, zero)

    def _chain(self, at: int) -> tuple[int, ...]:
        """A node; before one that quantises all whose output goes nowhere but into it."""
        chain = [at]
        while self.nodes[at].op_type == _QUANTISE and at not in self.free:
            before = self.made_by.get(self.nodes[chain[0]].input[0])
            if before is None or before in self.free or self.nodes[before].op_type == _QUANTISE:
                break
            names = [name for name in self.nodes[before].output if name]
            if len(names) != 1 or self._users[names[0]] != 1:
                break
            chain.insert(0, before)
        return tuple(chain)

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
            if at in also or (node.op_type not in _RANDOM and set(all_inputs(node)) <= known):
                found.add(at)
                known.update(node.output)
        return frozenset(found)

    def _closure(self, op: Op, unit: bool) -> tuple[list[int], list[str]]:
        shapes = {at for at in self.free if self.nodes[at].op_type in _SHAPES} if unit else ()
        return self._behind(op.nodes, self.free if unit else self.constant, shapes)

    def _behind(
        self, nodes: Iterable[int], through: Container[int], ends: Container[int] = ()
    ) -> tuple[list[int], list[str]]:
        """Nodes with those of `through` that they take from, and what all of them take of others.

        What `ends` take is not asked for.
        """
        found, takes = set(nodes), dict[str, None]()
        left = sorted(found)
        while left:
            at = left.pop()
            for name in all_inputs(self.nodes[at]) if at not in ends else ():
                maker = self.made_by.get(name)
                if maker in found or name in self.weights:
                    continue
                if maker is not None and maker in through:
                    found.add(maker)
                    left.append(maker)
                else:
                    takes[name] = None
        return sorted(found), list(takes)

    def _shape(self, at: int) -> onnx.TensorProto:
        import numpy as np
        from onnx import numpy_helper

        node = self.nodes[at]
        shape = np.array(self.kinds[node.input[0]].shape, "i8")
        told = {one.name: one.i for one in node.attribute}
        if node.op_type == "Size":
            return numpy_helper.from_array(shape.prod().reshape(()))
        return numpy_helper.from_array(shape[told.get("start", 0) : told.get("end", len(shape))])

    def _info(self, name: str) -> onnx.ValueInfoProto:
        import numpy as np
        from onnx import helper

        kind = self.kinds[name.removesuffix(INSIDE)]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
        return helper.make_tensor_value_info(name, element, kind.shape)


def _new_names(
    model: onnx.ModelProto, weights: Iterable[str], like: Network | None
) -> dict[str, str]:
    """What each tensor but weights is called, by its own name."""
    known = {} if like is None else {own: name for name, own in like.called.items()}
    same = {} if like is None else {node.name: node.output for node in like.nodes}
    taken = {name.lower() for name in (*weights, *known.values())}
    inputs = [one.name for one in model.graph.input]
    new = {own: known[own] for own in inputs if own in known}
    for node in model.graph.node:
        theirs = same.get(node.name, ())
        if {known.get(own) for own in node.output} == {*theirs}:  # whatever their order
            new |= {own: known[own] for own in node.output if own}
        elif len(theirs) == len(node.output):
            new |= {
                own: name for own, name in zip(node.output, theirs, strict=True) if own and name
            }
    for own in [*inputs, *(name for node in model.graph.node for name in node.output)]:
        if own and own not in new and own not in weights:
            short = _UNUSUAL.sub("_", own).strip("_")[-80:] or "tensor"
            new[own], number = short, 2
            while new[own].lower() in taken:
                new[own], number = f"{short}_{number}", number + 1
            taken.add(new[own].lower())
    return new


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
    from onnx import helper

    graph = model.graph
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


def _rename(node: onnx.NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    for names, new in ((node.input, inputs), (node.output, outputs)):
        names[:] = [new.get(name, name) for name in names]
    for graph in graphs_within(node):
        for inner in graph.node:
            _rename(inner, inputs, {})
        for one in graph.output:
            one.name = inputs.get(one.name, one.name)
