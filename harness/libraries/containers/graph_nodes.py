"""The nodes of a model and where each of them ran: parts, and what crosses between them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NPU: Final = "NPU"
CPU: Final = "CPU"

PlaceRow = dict[str, str | None]
"""`node`, `op_type`, `on` (NPU, GPU, CPU), and `reason`: why it is not on the NPU."""


@dataclass(frozen=True)
class GraphNode:
    """A node, called as people see it, and its tensors by their names, without weights."""

    name: str
    op_type: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placed:
    """A node and where it ran. `part`: which partition of the accelerator has it; None: none."""

    node: GraphNode
    on: str
    part: str | None = None
    reason: str | None = None


def figures_of(placed: Sequence[Placed], sizes: Mapping[str, int]) -> dict[str, object]:
    """`nodes`, `partitions` and `transfers` as they stand in the measurements of a record.

    A tensor is carried over once to each partition, or to the CPU, that reads what another one
    made. `bytes` of all such tensors; null where the size of one is not in `sizes`.
    """
    made: dict[str, str | None] = {}
    carried: dict[tuple[str, str | None], None] = {}
    for one in placed:
        for tensor in one.node.reads:
            if tensor in made and made[tensor] != one.part:
                carried[tensor, one.part] = None
        made |= dict.fromkeys(one.node.writes, one.part)
    known = [sizes[tensor] for tensor, _ in carried if tensor in sizes]
    return {
        "nodes": [place_row(one.node, one.on, one.reason) for one in placed],
        "partitions": len({one.part for one in placed} - {None}),
        "transfers": {
            "tensors": len(carried),
            "bytes": sum(known) if len(known) == len(carried) else None,
        },
    }


def place_row(node: GraphNode, on: str, reason: str | None) -> PlaceRow:
    """A node as it stands in a record."""
    return {"node": node.name, "op_type": node.op_type, "on": on, "reason": reason}


Assigned = Sequence[tuple[str | None, str, Collection[tuple[str, str]]]]
"""What a runtime gave to whom: the partition (None: the CPU's), its processor, names and ops."""


def placed_as(
    nodes: Sequence[GraphNode], assigned: Assigned, reasons: Mapping[str, str]
) -> list[Placed]:
    """The nodes of a model as a runtime placed them, in the model's order.

    A runtime calls a node without a name "", and that is the next such node of its op. Nodes that
    it made itself stand at the end; those that it computed before or made one with others nowhere.
    `reasons` are those of refused nodes.
    """
    left: dict[tuple[str, str], list[GraphNode]] = {}
    for node in nodes:
        left.setdefault((node.name, node.op_type), []).append(node)
        left.setdefault(("", node.op_type), []).append(node)
    order = {id(node): at for at, node in enumerate(nodes)}
    found: list[tuple[int, Placed]] = []
    for part, on, named in assigned:
        for name, op_type in named:
            same = left.get((name, op_type), [])
            node = same.pop(0) if same else GraphNode(name or f"another {op_type}", op_type)
            reason = reasons.get(node.name) if part is None else None
            if part is None and reason is None:
                reason = "left to the CPU by ONNX Runtime, which names no reason"
            found.append((order.get(id(node), len(nodes)), Placed(node, on, part, reason)))
    found.sort(key=lambda one: one[0])
    return [one for _, one in found]
