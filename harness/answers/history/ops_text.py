"""What became of ops, in words (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from harness.answers.history.ops import OpChange, OpsCompared, Remade
from harness.ground.errors.outgoing_text import counted

_MOST: Final = 20


def op_counts(ops: OpsCompared) -> list[str]:
    """How many ops became what, as far as there are any that changed."""
    kinds = [one.kind for one in ops.remade]
    found = {"slower": len(ops.slower), "faster": len(ops.faster)}
    found |= {"appeared": kinds.count("appeared"), "vanished": kinds.count("vanished")}
    return [f"{counted(n, 'op')} {word}" for word, n in found.items() if n]


def op_lines(ops: OpsCompared, most: int = _MOST) -> Iterator[str]:
    """A line for each change, the furthest first, and one for all the others."""
    for case, ratio in ops.together.items():
        yield f"most ops together x {ratio:.3g}  [{case}]"
    yield from _listed((f"op slower: {_said(one)}" for one in ops.slower), most)
    yield from _listed((f"op faster: {_said(one)}" for one in ops.faster), most)
    for one in ops.suspects[:most]:
        word = "slower" if one.judged > 1 else "faster"
        yield f"perhaps op {word}: {_said(one)}; more runs would tell"
    yield from _listed(map(_remade, ops.remade), most)
    told = f"ops: {ops.same} the same within {100 * ops.effect:g} %, {ops.unsure} not to be told"
    yield f"{told} yet; executions of the op in the middle lie {100 * ops.spread:.3g} % apart"


def _listed(lines: Iterable[str], most: int) -> Iterator[str]:
    left = iter(lines)
    yield from islice(left, most)
    if more := sum(1 for _ in left):
        yield f"... and {more} more such ops"


def _said(one: OpChange) -> str:
    runs = f"{one.base_runs} + {counted(one.new_runs, 'run')}"
    apart = f"executions {100 * one.base_spread:,.0f} and {100 * one.new_spread:,.0f} % apart"
    fused = f" with {_names(one.also)}" if one.also else ""
    took = f"{one.base:,.0f} to {one.new:,.0f} {one.unit}"
    ratio, judged = f"x {one.ratio:.3g}", f"x {one.judged:.3g}"
    beside = f"; {judged} by all runs, beside most ops" if judged != ratio else ""
    return f"{one.op}{fused} {ratio} ({took}{beside}; {runs}, {apart})  [{one.case}]"


def _remade(one: Remade) -> str:
    if one.kind in ("appeared", "vanished"):
        return f"op {one.kind}: {one.told_as}, {100 * one.share:.3g} % of all ops  [{one.case}]"
    when = "are one op now" if one.kind == "fused" else "were one op"
    return f"{_names(one.ops)} {when}, told as {one.told_as}  [{one.case}]"


def _names(names: tuple[str, ...]) -> str:
    listed = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
