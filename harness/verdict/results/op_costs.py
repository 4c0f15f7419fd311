"""What each op of a record's `profile` took, by names that other versions have, too (pure)."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.contexts.context.metadata import entries
from harness.verdict.results.json_value import whole_numbers
from harness.verdict.results.op_events import OPS_MOST

# what ONNX Runtime and the library number anew in each version
_NUMBERS: Final = re.compile(r"(?:_token_\d+(?:_\d+)?)?(?:[ :]OpId_\d+)?$", re.ASCII)
_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class OpCost:
    """What an op took in each profiled execution, in `unit`; of several of one name, their sum.

    `inside` is the op whose time has its own in it, None where it was told by itself: libraries
    tell 0 of an op that was fused into the next one.
    """

    op: str
    unit: str
    runs: tuple[int, ...]
    inside: str | None = None

    @property
    def value(self) -> float:
        return float(statistics.median(self.runs))


def op_costs(profile: object) -> dict[str, OpCost]:
    """The ops of a `profile` by their names, in the order that the library tells them in.

    A name is that of the source graph's node, where it is known, else the library's without its
    numbers, with the graph in front where there are several. What is no op is left out.
    """
    runs: dict[str, list[list[int]]] = {}
    units: dict[str, str] = {}
    told = entries(profile, "ops") if isinstance(profile, Mapping) else []
    for one in told[:OPS_MOST]:
        unit = next((name for name in ("cycles", "us") if name in one), None)
        seen = whole_numbers(one.get("runs")) or whole_numbers([one.get(unit or "")])
        name = _name(one)
        if unit and seen and name and min(seen) >= 0 and units.setdefault(name, unit) == unit:
            runs.setdefault(name, []).append(seen)
    sums = {name: tuple(map(sum, zip(*each, strict=False))) for name, each in runs.items()}
    found: dict[str, OpCost] = {}
    behind: str | None = None
    for name in reversed(sums):
        alone = any(sums[name])
        behind = name if alone else behind
        found[name] = OpCost(name, units[name], sums[name], None if alone else behind)
    return dict(reversed(found.items()))


def cost_of(profile: object, name: str) -> float | None:
    """What an op took, with what it was fused into; None if there is none of this name."""
    costs = op_costs(profile)
    found = costs.get(name)
    if found is not None and found.inside is not None:
        found = costs[found.inside]
    return found.value if found is not None and math.isfinite(found.value) else None


def dearest(profile: object, most: int = 5) -> list[str]:
    """The names of the ops that took most."""
    costs: Iterable[OpCost] = op_costs(profile).values()
    return [one.op for one in sorted(costs, key=lambda one: one.value, reverse=True)[:most]]


def _name(one: Mapping[str, Any]) -> str:
    source, op, graph = (one.get(key) for key in ("source", "op", "graph"))
    name = source if isinstance(source, str) and source else _NUMBERS.sub("", str(op or ""))
    return f"{graph}/{name}"[:_NAME_CHARS] if isinstance(graph, str) else name[:_NAME_CHARS]
