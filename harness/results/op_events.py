"""Ops of a profile and their costs, by names that are the same in all versions (pure)."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import truediv
from typing import Any, Final, TypeGuard

from harness.core.error_codes import KINDS, UNITS, ProfileAsked
from harness.core.outgoing_text import counted
from harness.models.context_metadata import entries
from harness.results.record import whole_numbers

EVENTS_MOST: Final = 4096
OPS_MOST: Final = 2000
_NAME_CHARS: Final = 200
_OTHERS_MOST: Final = 60

# as in ONNX Runtime's file
_UNIT_WORDS: Final = {word.upper(): word for word in UNITS.values()}
_KIND_WORDS: Final = {word.upper(): word for word in KINDS.values()}
_TIMES: Final = ("cycles", "us")
_SAID_UNIT: Final = re.compile(r" \((?:cycles|us)\)$")
_OP_ID: Final = re.compile(r"[ :]OpId_\d+$")


@dataclass(frozen=True)
class ProfileEvent:
    """One event as the library reports it; `depth` 1 is a part of the event before it.

    `kind` is init, finalize, execute, node or other, `unit` us, bytes, cycles, count or other.
    """

    kind: str
    unit: str
    value: int
    name: str
    depth: int = 0


ProfiledRun = Sequence[ProfileEvent]
"""The events of one execution."""


def probe_events(data: Mapping[str, object]) -> list[ProfileEvent]:
    """Return the well-formed events of a profiled step."""
    events = []
    for entry in entries(data, "profile_events")[:EVENTS_MOST]:
        value, depth = entry.get("value"), entry.get("depth")
        if _is_count(value) and _is_count(depth):
            kind, unit = _known(KINDS, entry.get("type")), _known(UNITS, entry.get("unit"))
            name = str(entry.get("name", ""))[:_NAME_CHARS]
            events.append(ProfileEvent(kind, unit, value, name, depth))
    return events


def csv_events(content: bytes) -> list[ProfileEvent]:
    """Return the events of the CSV file that ONNX Runtime's QNN provider writes.

    Other lines (a header, the rest of a line that was cut) are left out; names may contain commas,
    which are not quoted.
    """
    rows = (line.split(",", 6) for line in content.decode("utf-8", "replace").splitlines())
    return [
        ProfileEvent(
            _KIND_WORDS.get(row[1], "other"),
            _UNIT_WORDS.get(row[3], "other"),
            int(row[2]),
            row[6][:_NAME_CHARS],
            int(row[5] == "SUB-EVENT"),
        )
        for row in rows
        if len(row) == 7 and re.fullmatch(r"[0-9]{1,18}", row[2])
    ]


def _known(words: Mapping[object, str], number: object) -> str:
    return words.get(number, "other") if isinstance(number, int) else "other"


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 63


def runs_in(events: Iterable[ProfileEvent]) -> list[list[ProfileEvent]]:
    """Split events into executions, each of which ends with its own `execute` event.

    Events before an `init` or `finalize` event, and the parts of that, belong to none.
    """
    runs: list[list[ProfileEvent]] = []
    current: list[ProfileEvent] = []
    preparing = False
    for event in events:
        if event.kind in ("init", "finalize") and event.depth == 0:
            current, preparing = [], True
        elif preparing and event.depth > 0:
            continue
        else:
            preparing = False
            current.append(event)
            if event.kind == "execute" and event.depth == 0:
                runs.append(current)
                current = []
    return runs


def phases_in(events: Iterable[ProfileEvent]) -> list[dict[str, object]]:
    """Return the phases of preparing a graph, or of loading a context: `phase` and `us`."""
    inside, phases = False, []
    for event in events:
        if event.depth == 0:
            inside = event.kind in ("init", "finalize")
        if inside and event.unit in ("us", "other"):  # for QNN, no unit means microseconds
            phases.append({"phase": event.name, "us": event.value, "part": event.depth > 0})
    return phases[:_OTHERS_MOST]


def ops_of(runs: Iterable[ProfiledRun], nodes: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the ops of the runs of one graph, in the order of the library.

    Each has its median in its unit (`cycles` or `us`) and its cost in each run. `source` is its
    node of the source graph, whose nodes are named `nodes`; None if unknown.
    """
    values: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        totals = Counter[tuple[str, str]]()
        for event in _nodes_of(run):
            totals[_SAID_UNIT.sub("", event.name), event.unit] += event.value
        for key, total in totals.items():
            values.setdefault(key, []).append(total)
    by_length = sorted(nodes, key=len, reverse=True)
    return [
        {"op": name, "source": _source(name, by_length)}
        | {unit: round(statistics.median(costs)), "runs": costs}
        for (name, unit), costs in values.items()
    ]


def _nodes_of(run: ProfiledRun) -> Iterator[ProfileEvent]:
    nodes = (event for event in run if event.kind == "node" and event.depth == 1)
    return (node for node in nodes if node.unit in _TIMES)


def _source(op: str, by_length: Iterable[str]) -> str | None:
    stem = _OP_ID.sub("", op)
    return next((node for node in by_length if node and f"{stem}_".startswith(f"{node}_")), None)


def total_of(run: ProfiledRun) -> ProfileEvent | None:
    """Return the accelerator's own total: the event that the ops are parts of, else its time."""
    roots = [event for event in run if event.depth == 0 and event.unit in _TIMES]
    parts = [i for i, event in enumerate(run) if event.kind == "node" and event.depth]
    above = [event for i in parts[:1] for event in run[:i] if event.depth == 0][-1:]
    totals = [event for event in above if event.unit in _TIMES]
    totals += [event for event in roots if event.name.startswith("Accelerator")]
    return next(iter([*totals, *(event for event in roots if event.kind == "execute")]), None)


def profile_of(
    level: ProfileAsked,
    graphs: Mapping[str, Sequence[ProfiledRun]],
    *,
    phases: Sequence[Mapping[str, object]] = (),
    nodes: Collection[str] = (),
    added_us: int | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a record's `profile`, made of the runs of each graph, by its name.

    `ops` has each op with its median, the single runs and its share of all ops. `total` is the
    accelerator's own total, `ops_share` the part of it that the ops make up (median of the runs),
    and `spread` (maximum - minimum) / median of its runs. `notes` say what is missing. `added_us`
    is the time that profiling added to an execution, by the medians.
    """
    several = len(graphs) > 1
    ops = [
        op | ({"graph": name} if several else {})
        for name, runs in graphs.items()
        for op in ops_of(runs, nodes)
    ]
    unit = next((unit for unit in _TIMES if any(unit in op for op in ops)), "")
    ops = [op for op in ops if unit in op]
    whole = sum(op[unit] for op in ops) or 1
    for op in ops:
        op["share"] = op[unit] / whole
    cut = len(ops) - OPS_MOST
    if cut > 0:
        ops = sorted(ops, key=_share, reverse=True)[:OPS_MOST]
        notes = [*notes, f"left out: the {counted(cut, 'op')} that took least"]
    profile: dict[str, Any] = {"level": level, "ops": ops, "phases": list(phases)}
    profile |= {"total": _totals(graphs), "added_us": added_us, "notes": list(notes)}
    last_runs = [run for runs in graphs.values() for run in runs[-1:]]
    last = [event for run in last_runs for event in run if not event.depth]
    events = [{"name": e.name, "unit": e.unit, "value": e.value} for e in last[:_OTHERS_MOST]]
    return profile | {"events": events}


def _totals(graphs: Mapping[str, Sequence[ProfiledRun]]) -> dict[str, object] | None:
    """Return the totals of all graphs together; None without a common unit."""
    totals = [[(each, run) for run in runs if (each := total_of(run))] for runs in graphs.values()]
    units = {total.unit for of_graph in totals for total, _ in of_graph}
    if len(units) != 1 or not all(totals):
        return None
    (unit,) = units
    rounds = list(zip(*totals, strict=False))
    sums = [sum(total.value for total, _ in each) for each in rounds]
    parts = [sum(event.value for _, run in each for event in _nodes_of(run)) for each in rounds]
    middle = statistics.median(sums)
    return {
        unit: round(middle),
        "event": totals[0][0][0].name,
        "runs": sums,
        "spread": (max(sums) - min(sums)) / middle if middle else 0.0,
        "ops_share": statistics.median(map(truediv, parts, sums)) if all(parts) else None,
    }


def most_expensive(profile: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], float]]:
    """Return the ops of a record's `profile`, most expensive first, with cumulative shares.

    Malformed ops are left out, since anybody may have written a record.
    """
    ops = sorted(entries(profile, "ops"), key=_share, reverse=True)
    return list(zip(ops, accumulate(map(_share, ops)), strict=True))


def _share(op: Mapping[str, object]) -> float:
    share = op.get("share")
    return float(share) if isinstance(share, int | float) else 0.0


# numbers that ONNX Runtime and the library change in each version
_NUMBERS: Final = re.compile(r"(?:_token_\d+(?:_\d+)?)?(?:[ :]OpId_\d+)?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of an op in each profiled execution, in `unit`; the sum of ops of one name.

    `inside` is the op whose cost includes its own, None if it has its own cost: libraries report 0
    for an op that was fused into the next one.
    """

    op: str
    unit: str
    runs: tuple[int, ...]
    inside: str | None = None

    @property
    def value(self) -> float:
        return float(statistics.median(self.runs))


def op_costs(profile: object) -> dict[str, OpCost]:
    """Return the costs of a `profile` by the names of ops, in the order of the library.

    A name is that of the source graph's node, if known, else the library's without its numbers,
    preceded by the graph if there are several. Malformed ops are left out.
    """
    runs: dict[str, list[list[int]]] = {}
    units: dict[str, str] = {}
    listed = entries(profile, "ops") if isinstance(profile, Mapping) else []
    for op in listed[:OPS_MOST]:
        unit = next((name for name in ("cycles", "us") if name in op), None)
        values = whole_numbers(op.get("runs")) or whole_numbers([op.get(unit or "")])
        name = _name(op)
        if unit and values and name and min(values) >= 0 and units.setdefault(name, unit) == unit:
            runs.setdefault(name, []).append(values)
    sums = {name: tuple(map(sum, zip(*each, strict=False))) for name, each in runs.items()}
    costs: dict[str, OpCost] = {}
    behind: str | None = None
    for name in reversed(sums):
        alone = any(sums[name])
        behind = name if alone else behind
        costs[name] = OpCost(name, units[name], sums[name], None if alone else behind)
    return dict(reversed(costs.items()))


def cost_of(profile: object, name: str) -> float | None:
    """Return the cost of an op, with the op it was fused into; None if there is no such op."""
    costs = op_costs(profile)
    cost = costs.get(name)
    if cost is not None and cost.inside is not None:
        cost = costs[cost.inside]
    return cost.value if cost is not None and math.isfinite(cost.value) else None


def dearest(profile: object, most: int = 5) -> list[str]:
    """Return the names of the most expensive ops."""
    costs: Iterable[OpCost] = op_costs(profile).values()
    return [cost.op for cost in sorted(costs, key=lambda cost: cost.value, reverse=True)[:most]]


def _name(entry: Mapping[str, Any]) -> str:
    source, op, graph = (entry.get(key) for key in ("source", "op", "graph"))
    name = source if isinstance(source, str) and source else _NUMBERS.sub("", str(op or ""))
    return f"{graph}/{name}"[:_NAME_CHARS] if isinstance(graph, str) else name[:_NAME_CHARS]
