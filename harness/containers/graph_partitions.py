"""Nodes of a model and their processors: partitions, and transfers between them (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NPU: Final = "NPU"
CPU: Final = "CPU"
ADDED_BY_ORT: Final = "ONNX Runtime"

# these change layouts and types; any other node that the file lacks is of a function's body
_INSERTED: Final = frozenset({"Transpose", "Cast", "QuantizeLinear", "DequantizeLinear"})
_OF_FUNCTION: Final = "_inlfunc_"
_RENAMED: Final = re.compile(r"_token_\d+$")


@dataclass(frozen=True)
class GraphNode:
    """A node by the name that people see, and the names of its tensors, without weights.

    An `unnamed` one is named by its op and its index. `parent` is the node whose subgraph has it.
    """

    name: str
    op_type: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    unnamed: bool = False
    parent: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return ("" if self.unnamed else self.name, self.op_type)


@dataclass(frozen=True)
class Placed:
    """A node and the processor that ran it. `part` is its partition on the accelerator, if any.

    `added_by` is what inserted a node that the model does not have.
    """

    node: GraphNode
    on: str
    part: str | None = None
    reason: str | None = None
    added_by: str | None = None


def figures_of(placed: Sequence[Placed], sizes: Mapping[str, int]) -> dict[str, object]:
    """Return `nodes`, `partitions` and `transfers` as in the measurements of a record."""
    return {
        "nodes": [place_row(node) for node in placed],
        "partitions": len({node.part for node in placed} - {None}),
        "transfers": transfers_of(placed, sizes),
    }


def transfers_of(placed: Sequence[Placed], sizes: Mapping[str, int]) -> dict[str, int | None]:
    """Return the number of `tensors` that are transferred, and their `bytes`.

    A tensor is transferred once to each partition, or to the CPU, that reads it from another.
    `bytes` are those of all such tensors; null if the size of one is not in `sizes`.
    """
    producers: dict[str, str | None] = {}
    carried: dict[tuple[str, str | None], None] = {}
    for node in placed:
        for tensor in node.node.reads:
            if tensor in producers and producers[tensor] != node.part:
                carried[tensor, node.part] = None
        producers |= dict.fromkeys(node.node.writes, node.part)
    known = [sizes[tensor] for tensor, _ in carried if tensor in sizes]
    return {"tensors": len(carried), "bytes": sum(known) if len(known) == len(carried) else None}


def place_row(placed: Placed) -> dict[str, str | None]:
    """Return a node as in a record."""
    return {
        "node": placed.node.name,
        "op_type": placed.node.op_type,
        "on": placed.on,
        "reason": placed.reason,
        "added_by": placed.added_by,
    }


Assigned = Sequence[tuple[str | None, str, Collection[tuple[str, str]]]]
"""Assignments of a runtime: the partition (None: the CPU's), its processor, names and ops."""


def placed_as(
    nodes: Sequence[GraphNode], assigned: Assigned, reasons: Mapping[tuple[str, str], str]
) -> list[Placed]:
    """Return the nodes of a model as ONNX Runtime placed them, in the model's order.

    ORT names a node without a name "", and one in another layout by its name with a number. Nodes
    that it inserted, or took out of a function, are at the end; those that it folded or fused are
    left out. `reasons` are those of refused nodes, by name and op.
    """
    candidates: dict[tuple[str, str], list[GraphNode]] = {}
    for node in nodes:
        for key in dict.fromkeys((node.key, ("", node.op_type))):
            candidates.setdefault(key, []).append(node)
    used: set[int] = set()

    def claim(name: str, op_type: str) -> GraphNode | None:
        for node in candidates.get((name, op_type), ()):
            if id(node) not in used:
                used.add(id(node))
                return node
        return None

    assignments = [(part, on, *named) for part, on, several in assigned for named in several]
    exact = [claim(name, op_type) for _, _, name, op_type in assignments]
    order = {id(node): place for place, node in enumerate(nodes)}
    placed: list[tuple[int, Placed]] = []
    for (part, on, name, op_type), same in zip(assignments, exact, strict=True):
        match = same or claim(_RENAMED.sub("", name), op_type)
        node = match or GraphNode(name or f"another {op_type}", op_type)
        inserted = match is None and op_type in _INSERTED and not name.startswith(_OF_FUNCTION)
        added_by = ADDED_BY_ORT if inserted else None
        reason = None if part is not None else reasons.get((name, op_type))
        if part is None and reason is None:
            reason = (
                f"it is in a subgraph of {node.parent}; QNN takes only nodes of the main graph"
                if node.parent
                else "ONNX Runtime left it to the CPU and gave no reason"
            )
        place = order.get(id(node), len(nodes))
        placed.append((place, Placed(node, on, part, reason, added_by)))
    placed.sort(key=lambda pair: pair[0])
    return [node for _, node in placed]


def is_as_in_file(nodes: Sequence[GraphNode], placed: Sequence[Placed]) -> bool:
    """Return whether a runtime runs the nodes of a file as they are, without any change."""
    return Counter(map(id, nodes)) == Counter(id(node.node) for node in placed)


def transfers_in(
    nodes: Sequence[GraphNode], sizes: Mapping[str, int], assigned: Assigned
) -> dict[str, int | None] | None:
    """Return the transfers in a graph of EPContext nodes; None if others were `assigned`."""
    parts = [node for node in nodes if node.op_type == "EPContext"]
    others = Counter(node.key for node in nodes if node.op_type != "EPContext")
    on_cpu = [named for part, _, several in assigned if part is None for named in several]
    if len(parts) != sum(part is not None for part, _, _ in assigned) or others != Counter(on_cpu):
        return None
    owner = {id(node): str(index) for index, node in enumerate(parts)}
    return transfers_of([Placed(node, NPU, owner.get(id(node))) for node in nodes], sizes)
