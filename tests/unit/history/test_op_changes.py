"""Ops of two runs: what is blamed, what noise is, what is fused otherwise."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.history.attempts import Attempt
from harness.history.comparison import FailOn, compare
from harness.history.comparison_text import op_counts, op_lines
from harness.history.op_changes import OpsCompared, judge_ops
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt

Ops = dict[str, list[int]]
NAMES = [f"Conv_{index}" for index in range(30)]


def run(ops: Ops, outcome: str = "passed") -> list[Attempt]:
    """A run of one case with what each op took in its executions."""
    events: list[dict[str, Any]] = [
        {"op": f"{name}:OpId_{index}", "source": None, "cycles": runs[0], "runs": runs}
        for index, (name, runs) in enumerate(ops.items())
    ]
    return [Attempt.of(attempt(f"a {outcome}", measurements={"profile": {"ops": events}}))]


def compared(*sides: Ops) -> OpsCompared:
    return judge_ops(*map(run, sides))


def noisy(draw: np.random.Generator, planted: dict[str, float] | None = None) -> Ops:
    """Executions as a simulator's: of a busy process each op a little slow, some far off."""
    executions = {}
    for index, name in enumerate(NAMES):
        base = 1000 * (index + 1) * (planted or {}).get(name, 1)
        of_process = np.exp(0.05 * draw.standard_t(2))
        odd = np.where(draw.random(5) < 0.05, 2, 1)
        executions[name] = [
            int(base * of_process * np.exp(0.1 * draw.standard_t(2)) * k) for k in odd
        ]
    return executions


@pytest.mark.parametrize("earlier", [0, 4])
def test_twenty_comparisons_of_nothing_blame_no_op(earlier: int) -> None:
    draw = np.random.default_rng(earlier)
    for _ in range(20):
        runs = [run(noisy(draw)) for _ in range(2 + 2 * earlier)]
        comparison = judge_ops(runs[0], runs[1], runs[2 : 2 + earlier], runs[2 + earlier :])
        assert not comparison.slower
        assert not comparison.faster
        assert not comparison.remade


@pytest.mark.parametrize("earlier", [0, 4])
def test_an_op_made_ten_times_larger_is_named_first(earlier: int) -> None:
    draw = np.random.default_rng(7 + earlier)
    for name in ("Conv_0", "Conv_17"):
        old = [run(noisy(draw)) for _ in range(1 + earlier)]
        new = [run(noisy(draw, {name: 10})) for _ in range(1 + earlier)]
        comparison = judge_ops(old[-1], new[-1], old[:-1], new[:-1])
        assert [change.op for change in comparison.slower] == [name]
        assert not comparison.faster
        first = next(iter(op_lines(comparison)))
        assert first.startswith(f"op slower: {name} x ")
        assert "apart" in first


@pytest.mark.parametrize(("times", "reasons"), [(100, ["ops"]), (1, []), (0.01, [])])
def test_a_comparison_fails_on_a_slower_op_if_that_is_asked(
    times: float, reasons: list[str]
) -> None:
    draw = np.random.default_rng(1)
    old, new = run(noisy(draw)), run(noisy(draw, {"Conv_5": times}))
    comparison = replace(compare(old, new), ops=judge_ops(old, new))
    assert FailOn.parse("new,ops").reasons(comparison) == reasons
    assert FailOn.parse("new").reasons(comparison) == []


def test_a_busy_computer_blames_no_single_op() -> None:
    draw = np.random.default_rng(3)
    busy = {name: [5 * cycles for cycles in runs] for name, runs in noisy(draw).items()}
    comparison = compared(noisy(draw), busy)
    assert not comparison.slower
    assert not comparison.faster


def test_what_executions_alone_show_may_be_a_change(snapshot: Snapshot) -> None:
    comparison = compared({"a": [100, 105, 110]}, {"a": [150, 160, 170]})
    assert not comparison.slower
    assert list(op_lines(comparison)) == snapshot


@given(
    st.lists(st.integers(1_000, 10**8), min_size=9, max_size=12),
    st.floats(0.4, 2.5),
    st.floats(0.001, 1000),
)
def test_a_ratio_is_that_of_the_figures_beside_it(
    cycles_of_ops: list[int], all_by: float, first_by: float
) -> None:
    """All ops took otherwise, since the computer was busier; the first one besides."""
    old = {f"op{index}": [cycles] * 3 for index, cycles in enumerate(cycles_of_ops)}
    factors = [first_by * all_by, *[all_by] * (len(cycles_of_ops) - 1)]
    new = {
        name: [max(1, round(cycles[0] * by))] * 3
        for (name, cycles), by in zip(old.items(), factors, strict=True)
    }
    for line in op_lines(compared(old, new)):
        if match := re.search(r"op (?:slower|faster): \w+ x (\S+) \(([\d,]+) to ([\d,]+) ", line):
            base, ratio = (float(match[group].replace(",", "")) for group in (2, 1))
            assert float(match[3].replace(",", "")) / base == pytest.approx(ratio, rel=0.01)
            relative = re.search(r"; x (\S+) over all runs, relative to most ops;", line)
            judged = float(relative[1]) if relative else ratio
            assert (judged > 1) == ("slower" in line)


def test_ops_that_are_not_the_same_ones(snapshot: Snapshot) -> None:
    sides: list[tuple[Ops, Ops]] = [
        ({"conv": [60], "relu": [40]}, {"conv": [0], "relu": [90]}),
        ({"conv": [0], "relu": [90]}, {"conv": [60], "relu": [40]}),
        ({"a": [10]}, {"a": [10], "b": [30]}),
        ({"a": [10], "b": [30]}, {"a": [10]}),
        # one name within another is no fusion
        ({"conv": [10], "a": [10]}, {"conv_1": [10], "a": [10]}),
    ]
    comparisons = [compared(*side) for side in sides]
    assert [line for shown in comparisons for line in op_lines(shown)] == snapshot
    # what is fused is compared as a sum, so that none of it became slower
    assert not any(shown.slower or shown.faster or shown.suspects for shown in comparisons)


def test_what_is_fused_in_both_runs_is_told_of_neither() -> None:
    both = {"conv": [0, 0, 0], "relu": [40, 41, 42]}
    assert not compared(both, both).remade
    slow = compared(both, {"conv": [0, 0, 0], "relu": [400, 410, 420]})
    assert [(change.op, change.also) for change in slow.slower] == [("relu", ("conv",))]
    assert op_counts(slow) == ["1 op slower"]


def test_without_a_profile_on_either_side_nothing_is_judged() -> None:
    some: Ops = {"a": [1, 1, 1]}
    assert judge_ops(run(some), run({})) is None
    assert judge_ops(run(some), run(some, "failed")) is None
