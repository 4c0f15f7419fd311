"""Which ops became slower or faster, came, went, or are fused otherwise, in two runs (pure).

The judge is that of speed: a run is one sample, the median of its profiled executions, and what
earlier runs of the case took tells noise. Executions of one process are no runs: alone they are
believed only where all of one side lie far from all of the other.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from harness.diagnosis.error import Part
from harness.history.attempts import PROFILE, Attempt, attempts_by_name, finder
from harness.history.performance import Change, judge
from harness.results.op_events import OpCost, op_costs

OP_EFFECT: Final = 0.2
"""Changes of an op by less are not told."""
# Between processes on the simulator of a busy computer all executions of an op were up to 2.2 times
# those of another (12 processes of each of two versions, 264 pairs), and medians up to 7.5 times.
_APART: Final = 3.0
_FLOOR: Final = 0.1
_FEWEST_EXECUTIONS: Final = 3
_FEWEST_TOGETHER: Final = 8

_Costs = dict[str, OpCost]
_Ops = tuple[str, ...]


class OpChange(Part):
    """An op in two runs; `also` are those that are fused with it on either side.

    `ratio` is `new` by `base`, `judged` the ratio that was judged: of all runs, beside what most
    ops of the case did, since a busier computer slows all. `base` and `new` are the medians of the
    `executions` of BASE and NEW in `unit`, `base_spread` and `new_spread` how far these lie apart:
    (most - least) / median.
    """

    case: str
    op: str
    also: _Ops
    ratio: float
    judged: float
    unit: str
    base: float
    new: float
    base_spread: float
    new_spread: float
    base_runs: int
    new_runs: int


class Remade(Part):
    """Ops that are not told as the same ones in both runs, and their share of all ops.

    `fused`: these are one op now, which NEW tells as `told_as`; `split`: BASE told them so.
    `appeared` and `vanished`: one op that the other run has not got.
    """

    case: str
    kind: Literal["appeared", "vanished", "fused", "split"]
    ops: _Ops
    told_as: str
    share: float


class OpsCompared(Part):
    """All ops of the `cases` that were profiled in both runs; listed are those that changed.

    `suspects` may well be changes: more runs would tell. Of the others `same` are the same within
    `effect`, `unsure` not to be told. `together` has what most ops of a case did alike, new by
    base, which no op is blamed for. `spread` is how far executions of the op in the middle lie
    apart.
    """

    cases: int
    effect: float
    slower: tuple[OpChange, ...]
    faster: tuple[OpChange, ...]
    suspects: tuple[OpChange, ...]
    remade: tuple[Remade, ...]
    together: dict[str, float]
    same: int
    unsure: int
    spread: float


def judge_ops(
    befores: Sequence[Attempt],
    afters: Sequence[Attempt],
    earlier: Iterable[Sequence[Attempt]] = (),
    between: Iterable[Sequence[Attempt]] = (),
    effect: float = OP_EFFECT,
) -> OpsCompared | None:
    """What became of each op of cases that passed in BASE and NEW; None if none was profiled.

    `earlier` and `between` are as for `judge_speed`.
    """
    both = [(one, new) for one, new in zip(befores, afters, strict=True) if _ops(one) and _ops(new)]
    if not both:
        return None
    # of runs whose cases have no profile nothing more is read
    base = [*_met([one for one, _ in both], earlier), [_ops(one) for one, _ in both]]
    new = [*_met([one for _, one in both], between), [_ops(one) for _, one in both]]
    rows: list[tuple[int, _Ops]] = []
    remade: list[Remade] = []
    for at, (_, attempt) in enumerate(both):
        for ops in _together(base[-1][at], new[-1][at]):
            told = _remade(attempt.case, ops, base[-1][at], new[-1][at])
            remade += [told] if told else []
            if all(_value(ops, side[-1][at]) for side in (base, new)):
                rows.append((at, ops))
    old, now = (
        [[_value(ops, run[at]) for run in side] for at, ops in rows] for side in (base, new)
    )
    floors = [
        _FLOOR * statistics.median(filter(None, b + n)) for b, n in zip(old, now, strict=True)
    ]
    judged = judge(rows, [at for at, _ in rows], old, now, effect, floors)
    told_as: dict[str, list[OpChange]] = {"slower": [], "faster": [], "suspect": []}
    said: list[str] = []
    spreads = []
    executed = [[_executions(ops, side[-1][at]) for side in (base, new)] for at, ops in rows]
    moved = _moved([at for at, _ in rows], executed)
    for one, (before, after) in zip(judged.changes, executed, strict=True):
        at = one.name[0]
        said.append(_verdict(one, before, after, moved[at], effect))
        spreads.append(_spread(after))
        if said[-1] in told_as:
            told_as[said[-1]].append(_change(one, both[at][1].case, new[-1][at], before, after))
    slower, faster, suspects = (sorted(found, key=_furthest) for found in told_as.values())
    return OpsCompared(
        cases=len(both),
        effect=effect,
        slower=tuple(slower),
        faster=tuple(faster),
        suspects=tuple(suspects),
        remade=tuple(sorted(remade, key=lambda one: -one.share)),
        together={
            both[one.name][1].case: one.ratio
            for one in judged.common
            if one is not None and one.verdict in ("slower", "faster")
        },
        same=said.count("same"),
        unsure=said.count("unsure"),
        spread=statistics.median(spreads or [0.0]),
    )


def _ops(one: Attempt | None) -> _Costs:
    return op_costs(one.measurements.get(PROFILE)) if one and one.outcome == "passed" else {}


def _met(cases: Sequence[Attempt], runs: Iterable[Sequence[Attempt]]) -> list[list[_Costs]]:
    """What the cases' ops took in these runs."""
    finders = (finder(attempts_by_name(run)) for run in runs)
    return [[_ops(met.last if (met := find(one)) else None) for one in cases] for find in finders]


def _value(ops: _Ops, costs: _Costs) -> float | None:
    """What ops took together; None if nothing was told of them."""
    return sum(costs[op].value for op in ops if op in costs) or None


def _together(before: _Costs, after: _Costs) -> list[_Ops]:
    """All ops, those that are fused in either run together: only their sum can be compared."""
    group = {op: {op} for op in [*after, *before]}
    joined = [(op, one.inside) for side in (before, after) for op, one in side.items()]
    for op, into in [*joined, *_by_names(before, after), *_by_names(after, before)]:
        if into is not None and group[op] is not group[into]:
            group[into] |= group[op]
            group |= dict.fromkeys(group[into], group[into])
    order = {op: at for at, op in enumerate(group)}
    unique = {id(ops): tuple(sorted(ops, key=order.__getitem__)) for ops in group.values()}
    return list(unique.values())


def _by_names(one: _Costs, other: _Costs) -> list[tuple[str, str]]:
    """Ops of one run alone that an op of the other run alone has in its name, two at least."""
    alone, found = [op for op in one if op not in other], []
    for into in (op for op in other if op not in one):
        parts = [op for op in alone if re.search(rf"(?<![^\W_]){re.escape(op)}(?![^\W_])", into)]
        found += [(op, into) for op in parts] if len(parts) > 1 else []
    return found


def _remade(case: str, ops: _Ops, before: _Costs, after: _Costs) -> Remade | None:
    sides = before, after
    own = [[op for op in ops if op in one and not one[op].inside] for one in sides]
    share = max((_value(ops, one) or 0.0) / (_value((*one,), one) or 1) for one in sides)
    if len(ops) == 1 and own[0] != own[1]:
        kind: Literal["appeared", "vanished"] = "appeared" if own[1] else "vanished"
        return Remade(case=case, kind=kind, ops=ops, told_as=ops[0], share=share)
    fewer, more = sorted(own, key=len)
    if len(fewer) == len(more) or not fewer:
        return None
    named, into = tuple(more), " + ".join(fewer)
    how: Literal["fused", "split"] = "fused" if fewer is own[1] else "split"
    return Remade(case=case, kind=how, ops=named, told_as=into, share=share)


def _verdict(one: Change, old: list[int], new: list[int], moved: float, effect: float) -> str:
    """As judged, or as executions say that lie apart; `moved` is how far most ops of the case did.

    "suspect" of what more runs may show to be a change.
    """
    up, down = min(new) / moved / (max(old) or 1), min(old) * moved / (max(new) or 1)
    if one.verdict != "unsure":
        return one.verdict
    enough = min(len(old), len(new)) >= _FEWEST_EXECUTIONS and one.size >= _APART
    if enough and max(up, down) >= _APART:
        return "slower" if up > down else "faster"
    return "suspect" if one.suspect or (max(up, down) > 1 and one.size > 1 + effect) else "unsure"


def _moved(cases: Sequence[int], executed: Sequence[Sequence[list[int]]]) -> dict[int, float]:
    """How far most ops of each case did: a computer that is busier is no change of an op."""
    ratios: dict[int, list[float]] = {}
    for at, (old, new) in zip(cases, executed, strict=True):
        ratios.setdefault(at, []).append(statistics.median(new) / (statistics.median(old) or 1))
    few = _FEWEST_TOGETHER
    return {at: statistics.median(of) if len(of) >= few else 1.0 for at, of in ratios.items()}


def _executions(ops: _Ops, costs: _Costs) -> list[int]:
    return [*map(sum, zip(*(costs[op].runs for op in ops if op in costs), strict=False))]


def _spread(values: Sequence[int]) -> float:
    return (max(values) - min(values)) / (statistics.median(values) or 1)


def _change(
    change: Change, case: str, after: _Costs, old: list[int], new_runs: list[int]
) -> OpChange:
    """It is told as what takes most of it now."""
    ops: _Ops = change.name[1]
    op = max((one for one in ops if one in after), key=lambda one: after[one].value)
    base, new = statistics.median(old), statistics.median(new_runs)
    return OpChange(
        case=case,
        op=op,
        also=tuple(one for one in ops if one != op),
        ratio=new / (base or 1),
        judged=change.ratio,
        unit=after[op].unit,
        base=base,
        new=new,
        base_spread=_spread(old),
        new_spread=_spread(new_runs),
        base_runs=change.base_runs,
        new_runs=change.new_runs,
    )


def _furthest(change: OpChange) -> float:
    return -max(change.judged, 1 / change.judged)
