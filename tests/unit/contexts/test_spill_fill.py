"""Plans for shared spill-fill: orders, sizes, savings, and the sessions made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contexts.compile import Context
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import DeployedContext, Libraries
from harness.contexts.spill_fill import (
    MAX_ORDERS,
    STRATEGIES,
    Strategy,
    release_orders,
    sharing_plan,
    sharing_session,
    spill_fill_bytes,
)
from harness.errors import ConfigError

NEEDS = st.lists(st.integers(0, 10**9), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("strategy", "order", "group", "undersized", "expected"),
    [
        ("none", (0, 1, 2), None, (), 13),
        ("naive", (0, 1, 2), 4, (1,), 4),
        ("max", (1, 0, 2), 6, (), 6),
        ("list-async", (0, 1, 2), None, (), 6),
    ],
)
def test_each_strategy(
    strategy: Strategy,
    order: tuple[int, ...],
    group: int | None,
    undersized: tuple[int, ...],
    expected: int,
) -> None:
    made = sharing_plan([4, 6, 3], strategy)
    assert (made.order, made.group_bytes, made.undersized) == (order, group, undersized)
    assert (made.expected_bytes, made.expected_saving_bytes) == (expected, 13 - expected)


@given(NEEDS, st.sampled_from(STRATEGIES))
def test_every_plan_loads_each_context_once_and_says_what_it_means(
    needs: list[int], strategy: Strategy
) -> None:
    made = sharing_plan(needs, strategy)
    assert sorted(made.order) == list(range(len(needs)))
    assert made.expected_saving_bytes <= sum(needs) - max(needs) or strategy == "naive"
    assert all(needs[at] > (made.group_bytes or 0) for at in made.undersized)
    assert any(str(sum(needs)) in line for line in made.lines())
    if strategy == "max":
        assert made.group_bytes == max(needs)
        assert not made.undersized
        assert needs[made.head] == max(needs)
    if strategy == "none":
        assert made.expected_saving_bytes == 0


@given(NEEDS)
def test_the_naive_order_is_as_good_as_the_best_only_if_the_largest_comes_first(
    needs: list[int],
) -> None:
    naive, best = sharing_plan(needs, "naive"), sharing_plan(needs, "max")
    assert (not naive.undersized) == (needs[0] == max(needs))
    assert naive.expected_bytes <= best.expected_bytes


@pytest.mark.parametrize("needs", [[], [-1]])
def test_what_cannot_be_planned(needs: list[int]) -> None:
    with pytest.raises(ConfigError):
        sharing_plan(needs, "max")
    with pytest.raises(ConfigError, match="no strategy 'best'"):
        sharing_plan([1], "best")  # type: ignore[arg-type]


def test_the_largest_graph_of_a_context_counts() -> None:
    graphs = [{"spill_fill_bytes": 3}, {"spill_fill_bytes": 9}, {}]
    assert spill_fill_bytes({"graphs": graphs}) == 9
    assert spill_fill_bytes({}) == 0


@given(st.integers(1, 6))
def test_orders_of_release_differ_and_are_bounded(contexts: int) -> None:
    orders = release_orders(contexts)
    assert 1 <= len(orders) <= MAX_ORDERS
    assert len(set(orders)) == len(orders)
    assert all(sorted(order) == list(range(contexts)) for order in orders)


def deployed(number: int) -> DeployedContext:
    context = Context(
        path=Path("x"),
        sha256="",
        size=1,
        model=ModelSpec("tiny"),
        compiler="2.51.0",
        htp_arch=73,
        inputs=(),
        expected=(),
        tolerance=0.0,
        metadata={},
        memory_bytes=0,
    )
    return DeployedContext(context, f"/{number}.bin", (), ())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(STRATEGIES), st.data())
def test_a_session_executes_in_turns_and_only_what_is_loaded(
    needs: list[int], strategy: Strategy, data: st.DataObject
) -> None:
    contexts = [deployed(number) for number in range(len(needs))]
    release = data.draw(st.permutations(range(len(needs))))
    sharing = sharing_plan(needs, strategy)
    plan = sharing_session(Libraries("/b", "/s"), contexts, sharing, release)
    loaded: set[int] = set()
    bound: set[int] = set()
    runs: Counter[int] = Counter()
    cleanup = next(at for at, step in enumerate(plan.steps) if step.verb == "cleanup")
    for step in plan.steps[:cleanup]:
        at = int(step.fields.get("context", -1))
        if step.verb == "context-load":
            assert int(step.fields.get("group", at)) in loaded | {at}
            loaded.add(at)
        elif step.verb == "context-load-list":
            loaded |= set(range(len(needs)))
        elif step.verb == "io-bind":
            bound.add(at)
        elif step.verb == "io-run":
            assert at in bound & loaded
            runs[at] += 1
        elif step.verb == "io-release":
            bound.remove(at)
        elif step.verb == "context-free":
            assert at not in bound
            loaded.remove(at)
    assert not loaded
    assert all(runs[at] >= 2 for at in range(len(needs)))
    assert plan.text()
