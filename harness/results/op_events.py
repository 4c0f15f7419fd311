"""What a profile says of each op, and what it took, by names that all versions have (pure)."""

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

from harness.core.codes import KINDS, UNITS, ProfileAsked
from harness.core.outgoing_text import counted
from harness.models.metadata import entries
from harness.results.record import whole_numbers

EVENTS_MOST: Final = 4096
OPS_MOST: Final = 2000
_NAME_CHARS: Final = 200
_OTHERS_MOST: Final = 60

# as ONNX Runtime's file has them
_UNIT_WORDS: Final = {one.upper(): one for one in UNITS.values()}
_KIND_WORDS: Final = {one.upper(): one for one in KINDS.values()}
_TIMES: Final = ("cycles", "us")
_SAID_UNIT: Final = re.compile(r" \((?:cycles|us)\)$")
_OP_ID: Final = re.compile(r"[ :]OpId_\d+$")


@dataclass(frozen=True)
class ProfileEvent:
    """One event as the library tells it; `depth` 0 stands alone, 1 is a part of the one before.

    `kind` is init, finalize, execute, node or other, `unit` us, bytes, cycles, count or other.
    """

    kind: str
    unit: str
    value: int
    name: str
    depth: int = 0


ProfiledRun = Sequence[ProfileEvent]
"""What was told of one execution."""


def probe_events(data: Mapping[str, object]) -> list[ProfileEvent]:
    """The events of a step that was profiled, as far as each has its proper form."""
    found = []
    for one in entries(data, "profile_events")[:EVENTS_MOST]:
        value, depth = one.get("value"), one.get("depth")
        if _is_count(value) and _is_count(depth):
            kind, unit = _known(KINDS, one.get("type")), _known(UNITS, one.get("unit"))
            name = str(one.get("name", ""))[:_NAME_CHARS]
            found.append(ProfileEvent(kind, unit, value, name, depth))
    return found


def csv_events(content: bytes) -> list[ProfileEvent]:
    """The events of the CSV file that ONNX Runtime's QNN provider writes.

    Lines that are no events (a header, the rest of one that was cut) are left out; names may hold
    commas, which nothing quotes.
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
    """Events of several executions, taken apart: each ends with its own `execute` event.

    What the library told before an `init` or `finalize` event, with the parts of that, is of none.
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
    """What preparing a graph, or loading a context, spent its time with: `phase` and `us`."""
    inside, found = False, []
    for event in events:
        if event.depth == 0:
            inside = event.kind in ("init", "finalize")
        if inside and event.unit in ("us", "other"):  # without a unit it is time, says QNN
            found.append({"phase": event.name, "us": event.value, "part": event.depth > 0})
    return found[:_OTHERS_MOST]


def ops_of(runs: Iterable[ProfiledRun], nodes: Collection[str] = ()) -> list[dict[str, Any]]:
    """The ops of the runs of one graph, in the order that the library tells them in.

    Each has its median in its unit (`cycles` or `us`) and what it took in each run. `source` is its
    node of the source graph, whose nodes are called `nodes`; None where that is not known.
    """
    values: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        took = Counter[tuple[str, str]]()
        for one in _nodes_of(run):
            took[_SAID_UNIT.sub("", one.name), one.unit] += one.value
        for key, total in took.items():
            values.setdefault(key, []).append(total)
    by_length = sorted(nodes, key=len, reverse=True)
    return [
        {"op": name, "source": _source(name, by_length)}
        | {unit: round(statistics.median(seen)), "runs": seen}
        for (name, unit), seen in values.items()
    ]


def _nodes_of(run: ProfiledRun) -> Iterator[ProfileEvent]:
    return (one for one in run if one.kind == "node" and one.depth == 1 and one.unit in _TIMES)


def _source(op: str, by_length: Iterable[str]) -> str | None:
    stem = _OP_ID.sub("", op)
    return next((one for one in by_length if one and f"{stem}_".startswith(f"{one}_")), None)


def total_of(run: ProfiledRun) -> ProfileEvent | None:
    """The accelerator's own total: the event that the ops are parts of, else its time."""
    roots = [one for one in run if one.depth == 0 and one.unit in _TIMES]
    parts = [at for at, one in enumerate(run) if one.kind == "node" and one.depth]
    above = [one for at in parts[:1] for one in run[:at] if one.depth == 0][-1:]
    told = [one for one in above if one.unit in _TIMES]
    told += [one for one in roots if one.name.startswith("Accelerator")]
    return next(iter([*told, *(one for one in roots if one.kind == "execute")]), None)


def profile_of(
    level: ProfileAsked,
    graphs: Mapping[str, Sequence[ProfiledRun]],
    *,
    phases: Sequence[Mapping[str, object]] = (),
    nodes: Collection[str] = (),
    added_us: int | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """A record's `profile`: of the runs of each graph, by its name.

    `ops` has each op with its median, the single runs and its share of all ops. `total` is what the
    accelerator says itself, `ops_share` how much of that the ops are (the median of the runs), and
    `spread` how far its runs lie apart: (most - least) / median. `notes` tell in words what is
    missing. `added_us` is what profiling added to an execution, by the medians.
    """
    several = len(graphs) > 1
    ops = [
        one | ({"graph": name} if several else {})
        for name, runs in graphs.items()
        for one in ops_of(runs, nodes)
    ]
    unit = next((unit for unit in _TIMES if any(unit in one for one in ops)), "")
    ops = [one for one in ops if unit in one]
    whole = sum(one[unit] for one in ops) or 1
    for one in ops:
        one["share"] = one[unit] / whole
    cut = len(ops) - OPS_MOST
    if cut > 0:
        ops = sorted(ops, key=_share, reverse=True)[:OPS_MOST]
        notes = [*notes, f"left out: {counted(cut, 'op')} that took least"]
    told: dict[str, Any] = {"level": level, "ops": ops, "phases": list(phases)}
    told |= {"total": _totals(graphs), "added_us": added_us, "notes": list(notes)}
    last = [one for runs in graphs.values() for run in runs[-1:] for one in run if not one.depth]
    events = [{"name": e.name, "unit": e.unit, "value": e.value} for e in last[:_OTHERS_MOST]]
    return told | {"events": events}


def _totals(graphs: Mapping[str, Sequence[ProfiledRun]]) -> dict[str, object] | None:
    """The totals of all graphs together; None if they have none in one unit."""
    told = [[(one, run) for run in runs if (one := total_of(run))] for runs in graphs.values()]
    units = {one.unit for seen in told for one, _ in seen}
    if len(units) != 1 or not all(told):
        return None
    (unit,) = units
    rounds = list(zip(*told, strict=False))
    sums = [sum(one.value for one, _ in each) for each in rounds]
    parts = [sum(one.value for _, run in each for one in _nodes_of(run)) for each in rounds]
    middle = statistics.median(sums)
    return {
        unit: round(middle),
        "event": told[0][0][0].name,
        "runs": sums,
        "spread": (max(sums) - min(sums)) / middle if middle else 0.0,
        "ops_share": statistics.median(map(truediv, parts, sums)) if all(parts) else None,
    }


def most_expensive(profile: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], float]]:
    """The ops of a record's `profile`, the most expensive first, each with its cumulative share.

    What has not the form of an op is left out: a record can be anybody's.
    """
    ops = sorted(entries(profile, "ops"), key=_share, reverse=True)
    return list(zip(ops, accumulate(map(_share, ops)), strict=True))


def _share(one: Mapping[str, object]) -> float:
    share = one.get("share")
    return float(share) if isinstance(share, int | float) else 0.0


# what ONNX Runtime and the library number anew in each version
_NUMBERS: Final = re.compile(r"(?:_token_\d+(?:_\d+)?)?(?:[ :]OpId_\d+)?$", re.ASCII)


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
