"""Ops that became slower or faster, appeared, vanished, or are fused otherwise (pure).

Ops are judged as speed is: a run is one sample, the median of its profiled executions, and earlier
runs of the case show the noise. Executions of one process are not independent: without more runs
they are believed only where all of one side lie far from all of the other.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from harness.core.json_record import Part
from harness.history.attempts import PROFILE, Attempt, attempts_by_name, finder
from harness.history.speed_changes import Change, judge
from harness.results.op_events import OpCost, op_costs

OP_EFFECT: Final = 0.2
"""Smaller changes of an op are not reported."""
# Between processes on the simulator of a busy computer all executions of an op were up to 2.2 times
# those of another (12 processes of each of two versions, 264 pairs), and medians up to 7.5 times.
_APART: Final = 3.0
_FLOOR: Final = 0.1
_FEWEST_EXECUTIONS: Final = 3
_FEWEST_TOGETHER: Final = 8

_Costs = dict[str, OpCost]
_Ops = tuple[str, ...]


class OpChange(Part):
    """An op in two runs; `also` are the ops that are fused with it in either run.

    `ratio` is `new` by `base`. `judged` is the ratio that was judged: that of all runs, relative
    to most ops of the case, since a busier computer slows all. `base` and `new` are the medians of
    the executions in `unit`, `base_spread` and `new_spread` are (maximum - minimum) / median.
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
    """Ops that are not profiled as the same ones in both runs, and their share of all ops.

    `fused`: they are one op in NEW, named `reported_as`; `split`: they were one op in BASE.
    `appeared` and `vanished`: an op that the other run does not have.
    """

    case: str
    kind: Literal["appeared", "vanished", "fused", "split"]
    ops: _Ops
    reported_as: str
    share: float


class OpsCompared(Part):
    """All ops of the `cases` that were profiled in both runs; those that changed are listed.

    `suspects` may be changes, which more runs would show. Of the others `same` are the same within
    `effect`, `unsure` cannot be judged. `together` has the ratio that most ops of a case share, new
    by base, which no op is blamed for.
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


def judge_ops(
    befores: Sequence[Attempt],
    afters: Sequence[Attempt],
    earlier: Iterable[Sequence[Attempt]] = (),
    between: Iterable[Sequence[Attempt]] = (),
    effect: float = OP_EFFECT,
) -> OpsCompared | None:
    """Judge each op of cases that passed in BASE and NEW; None if none was profiled.

    `earlier` and `between` are as for `judge_speed`.
    """
    both = [(old, new) for old, new in zip(befores, afters, strict=True) if _ops(old) and _ops(new)]
    if not both:
        return None
    # cases without a profile are not looked up in other runs
    base = [*_costs_in([old for old, _ in both], earlier), [_ops(old) for old, _ in both]]
    new = [*_costs_in([after for _, after in both], between), [_ops(after) for _, after in both]]
    rows: list[tuple[int, _Ops]] = []
    remade: list[Remade] = []
    for i, (_, attempt) in enumerate(both):
        for ops in _together(base[-1][i], new[-1][i]):
            remade_ops = _remade(attempt.case, ops, base[-1][i], new[-1][i])
            remade += [remade_ops] if remade_ops else []
            if all(_value(ops, side[-1][i]) for side in (base, new)):
                rows.append((i, ops))
    old, now = ([[_value(ops, run[i]) for run in side] for i, ops in rows] for side in (base, new))
    floors = [
        _FLOOR * statistics.median(filter(None, b + n)) for b, n in zip(old, now, strict=True)
    ]
    judged = judge(rows, [i for i, _ in rows], old, now, effect, floors)
    reported: dict[str, list[OpChange]] = {"slower": [], "faster": [], "suspect": []}
    verdicts: list[str] = []
    executed = [[_executions(ops, side[-1][i]) for side in (base, new)] for i, ops in rows]
    moved = _moved([i for i, _ in rows], executed)
    for change, (before, after) in zip(judged.changes, executed, strict=True):
        i = change.name[0]
        verdicts.append(verdict := _verdict(change, before, after, moved[i], effect))
        if verdict in reported:
            reported[verdict].append(_change(change, both[i][1].case, new[-1][i], before, after))
    slower, faster, suspects = (
        sorted(changes, key=lambda change: -max(change.judged, 1 / change.judged))
        for changes in reported.values()
    )
    return OpsCompared(
        cases=len(both),
        effect=effect,
        slower=tuple(slower),
        faster=tuple(faster),
        suspects=tuple(suspects),
        remade=tuple(sorted(remade, key=lambda change: -change.share)),
        together={
            both[change.name][1].case: change.ratio
            for change in judged.common
            if change is not None and change.verdict in ("slower", "faster")
        },
        same=verdicts.count("same"),
        unsure=verdicts.count("unsure"),
    )


def _ops(case: Attempt | None) -> _Costs:
    return op_costs(case.measurements.get(PROFILE)) if case and case.outcome == "passed" else {}


def _costs_in(cases: Sequence[Attempt], runs: Iterable[Sequence[Attempt]]) -> list[list[_Costs]]:
    finders = (finder(attempts_by_name(run)) for run in runs)
    return [[_ops(run.last if (run := find(case)) else None) for case in cases] for find in finders]


def _value(ops: _Ops, costs: _Costs) -> float | None:
    return sum(costs[op].value for op in ops if op in costs) or None


def _together(before: _Costs, after: _Costs) -> list[_Ops]:
    """Group the ops that are fused in either run, since only their sum can be compared."""
    group = {op: {op} for op in [*after, *before]}
    joined = [(op, cost.inside) for side in (before, after) for op, cost in side.items()]
    for op, into in joined:
        if into is not None and group[op] is not group[into]:
            group[into] |= group[op]
            group |= dict.fromkeys(group[into], group[into])
    order = {op: index for index, op in enumerate(group)}
    unique = {id(ops): tuple(sorted(ops, key=order.__getitem__)) for ops in group.values()}
    return list(unique.values())


def _remade(case: str, ops: _Ops, before: _Costs, after: _Costs) -> Remade | None:
    sides = before, after
    separate = [[op for op in ops if op in costs and not costs[op].inside] for costs in sides]
    share = max((_value(ops, costs) or 0.0) / (_value((*costs,), costs) or 1) for costs in sides)
    if len(ops) == 1 and separate[0] != separate[1]:
        kind: Literal["appeared", "vanished"] = "appeared" if separate[1] else "vanished"
        return Remade(case=case, kind=kind, ops=ops, reported_as=ops[0], share=share)
    fewer, more = sorted(separate, key=len)
    if len(fewer) == len(more) or not fewer:
        return None
    named, into = tuple(more), " + ".join(fewer)
    outcome: Literal["fused", "split"] = "fused" if fewer is separate[1] else "split"
    return Remade(case=case, kind=outcome, ops=named, reported_as=into, share=share)


def _verdict(change: Change, old: list[int], new: list[int], moved: float, effect: float) -> str:
    """Return the verdict by runs, or else by executions; "suspect" if more runs may show a change.

    `moved` is the ratio of most ops of the case.
    """
    up, down = min(new) / moved / (max(old) or 1), min(old) * moved / (max(new) or 1)
    if change.verdict != "unsure":
        return change.verdict
    enough = min(len(old), len(new)) >= _FEWEST_EXECUTIONS and change.size >= _APART
    if enough and max(up, down) >= _APART:
        return "slower" if up > down else "faster"
    is_suspect = change.suspect or (max(up, down) > 1 and change.size > 1 + effect)
    return "suspect" if is_suspect else "unsure"


def _moved(cases: Sequence[int], executed: Sequence[Sequence[list[int]]]) -> dict[int, float]:
    """Return the ratio of most ops of each case: a busier computer is no change of an op."""
    ratios: dict[int, list[float]] = {}
    for i, (old, new) in zip(cases, executed, strict=True):
        ratios.setdefault(i, []).append(statistics.median(new) / (statistics.median(old) or 1))
    few = _FEWEST_TOGETHER
    return {i: statistics.median(of) if len(of) >= few else 1.0 for i, of in ratios.items()}


def _executions(ops: _Ops, costs: _Costs) -> list[int]:
    return [*map(sum, zip(*(costs[op].runs for op in ops if op in costs), strict=False))]


def _spread(values: Sequence[int]) -> float:
    return (max(values) - min(values)) / (statistics.median(values) or 1)


def _change(
    change: Change, case: str, after: _Costs, old: list[int], new_runs: list[int]
) -> OpChange:
    """Return the change of fused ops, named after the op that costs most now."""
    ops: _Ops = change.name[1]
    op = max((name for name in ops if name in after), key=lambda name: after[name].value)
    base, new = statistics.median(old), statistics.median(new_runs)
    return OpChange(
        case=case,
        op=op,
        also=tuple(name for name in ops if name != op),
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
