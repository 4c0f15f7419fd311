"""Contexts that share a spill-fill buffer: how they are loaded, and what is judged of it."""

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.experiments.latency import MemorySamples
from harness.experiments.spill_fill_sharing import (
    MAX_ORDERS,
    STRATEGIES,
    SharingFigures,
    Strategy,
    judge_sharing,
    judge_undersized,
    release_orders,
    sharing_figures,
    sharing_plan,
    sharing_session,
    spill_fill_bytes,
)
from harness.models.session_plan import DeployedContext, Libraries
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, broken
from tests.unit.models.test_session_plan import CONTEXT

ANY_NEEDS = st.lists(st.integers(0, 10**9), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("strategy", "order", "group", "undersized", "size"),
    [
        ("none", (0, 1, 2), None, (), 13),
        ("naive", (0, 1, 2), 4, (1,), 4),
        ("max", (1, 0, 2), 6, (), 6),
        ("list-async", (0, 1, 2), None, (), 6),
    ],
)
def test_each_strategy(
    strategy: Strategy, order: object, group: object, undersized: object, size: int
) -> None:
    sharing = sharing_plan([4, 6, 3], strategy)
    assert (sharing.order, sharing.group_bytes, sharing.undersized) == (order, group, undersized)
    assert (sharing.expected_bytes, sharing.expected_saving_bytes) == (size, 13 - size)


@given(ANY_NEEDS, st.sampled_from(STRATEGIES))
def test_every_plan_loads_each_context_once_and_saves_no_more_than_it_can(
    needs: list[int], strategy: Strategy
) -> None:
    sharing = sharing_plan(needs, strategy)
    assert sorted(sharing.order) == list(range(len(needs)))
    assert sharing.expected_saving_bytes <= sum(needs) - max(needs) or strategy == "naive"
    assert all(needs[number] > (sharing.group_bytes or 0) for number in sharing.undersized)
    if strategy == "max":
        assert sharing.group_bytes == max(needs)
        assert not sharing.undersized
        assert needs[sharing.order[0]] == max(needs)
    if strategy == "none":
        assert sharing.expected_saving_bytes == 0


@pytest.mark.parametrize("needs", [[], [-1]])
def test_what_cannot_be_planned(needs: list[int]) -> None:
    with pytest.raises(ConfigError):
        sharing_plan(needs, "max")
    with pytest.raises(ConfigError):
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


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(STRATEGIES), st.data())
def test_a_session_executes_in_turns_and_only_what_is_loaded(
    needs: list[int], strategy: Strategy, data: st.DataObject
) -> None:
    contexts = [DeployedContext(CONTEXT, f"/{number}.bin", (), ()) for number in range(len(needs))]
    release = data.draw(st.permutations(range(len(needs))))
    sharing = sharing_plan(needs, strategy)
    plan = sharing_session(Libraries("/b", "/s"), contexts, sharing, release)
    loaded: set[int] = set()
    bound: set[int] = set()
    runs: Counter[int] = Counter()
    cleanup = next(index for index, step in enumerate(plan.steps) if step.verb == "cleanup")
    for step in plan.steps[:cleanup]:
        number = int(step.fields.get("context", -1))
        if step.verb == "context-load":
            assert int(step.fields.get("group", number)) in loaded | {number}
            loaded.add(number)
        elif step.verb == "context-load-list":
            loaded |= set(range(len(needs)))
        elif step.verb == "io-bind":
            bound.add(number)
        elif step.verb == "io-run":
            assert number in bound & loaded
            runs[number] += 1
        elif step.verb == "io-release":
            bound.remove(number)
        elif step.verb == "context-free":
            assert number not in bound
            loaded.remove(number)
    assert not loaded
    assert all(runs[number] >= 2 for number in range(len(needs)))
    assert plan.text()


NEEDS = (4_000_000, 6_000_000, 3_000_000)
SHARING = sharing_plan(NEEDS, "max")
OUTPUTS = {number: frozenset({(number + 1,)}) for number in range(3)}


def figures(executed: int, freed: int = 0, **changed: Any) -> SharingFigures:
    shared = {"before": 50, "loaded": 50 + executed, "executed": 50 + executed, "freed": 50 + freed}
    process = SharingFigures(samples=MemorySamples(shared, {}, {}, "rpcmem"), digests=OUTPUTS)
    return dataclasses.replace(process, **changed)


REFERENCE = figures(sum(NEEDS))


def judged(process: SharingFigures, reference: SharingFigures | None = REFERENCE) -> list[Check]:
    return judge_sharing(SHARING, process, reference, memory_part=0.1)


def test_what_is_promised_holds() -> None:
    checks = judged(figures(max(NEEDS)))
    assert [(check.name, check.verdict) for check in checks] == [
        ("memory_saved", "held"),
        ("memory_given_back", "held"),
        ("outputs_equal", "held"),
    ]
    assert checks[0].figures["saved_bytes"] == SHARING.expected_saving_bytes


@pytest.mark.parametrize(
    ("process", "name"),
    [
        (figures(sum(NEEDS)), "memory_saved"),
        (figures(0), "memory_saved"),
        (figures(max(NEEDS), freed=5_000_000), "memory_given_back"),
        (figures(max(NEEDS), digests=OUTPUTS | {1: frozenset({(9,)})}), "outputs_equal"),
        (figures(max(NEEDS), digests=OUTPUTS | {1: frozenset({(2,), (9,)})}), "outputs_equal"),
        (figures(max(NEEDS), digests={}), "outputs_equal"),
    ],
)
def test_each_wrong_figure_breaks_its_check_alone(process: SharingFigures, name: str) -> None:
    assert [check.name for check in broken(judged(process))] == [name]


def test_without_sharing_there_is_nothing_to_save() -> None:
    checks = judged(REFERENCE, None)
    assert [check.name for check in checks] == ["memory_given_back", "outputs_equal"]
    assert not broken(checks)


def test_nothing_is_concluded_from_buffers_that_nobody_can_see() -> None:
    blind = MemorySamples(dict.fromkeys(("before", "executed", "freed"), 0), {}, {}, "memfd")
    process = figures(0, samples=blind)
    checks = judged(process, process)
    assert [check.verdict for check in checks] == ["unseen", "unseen", "held"]
    # one of them is enough to compare with
    assert judged(process)[0].verdict == "broken"
    missing = figures(0, samples=MemorySamples({}, {}, {}, "rpcmem"))
    assert [check.verdict for check in judged(missing)][:2] == ["unseen", "unseen"]
    # where nothing was executed no outputs are equal
    none = figures(max(NEEDS), digests={})
    assert judged(none, dataclasses.replace(REFERENCE, digests={}))[2].verdict == "unseen"


@pytest.mark.parametrize(
    ("verb", "context", "code", "verdict"),
    [
        ("context-load", 1, 1002, "held"),
        ("io-run", 1, 6001, "held"),
        ("context-load", 0, 1002, "broken"),
        ("context-load", 1, 0, "broken"),
        ("io-bind", 1, 8003, "broken"),
        ("io-run", 1, None, "broken"),
        (None, None, None, "broken"),
    ],
)
def test_the_naive_order_must_be_refused_where_it_is_too_small(
    verb: str | None, context: int | None, code: int | None, verdict: str
) -> None:
    failure = None if verb is None else StepResult(3, verb, context=context, code=code)
    process = figures(0, failure=failure)
    check = judge_undersized(sharing_plan(NEEDS, "naive"), process, None)
    assert check.verdict == verdict


@pytest.mark.parametrize(
    ("code", "message", "verdict"),
    [
        (1007, "", "unseen"),
        (6999, "", "unseen"),
        (1002, "Failed to find available PD for contextId 56", "unseen"),
        (5005, "Flatbuffer validation failed", "unseen"),
        (1002, "", "held"),
        (5010, "the group's buffer is too small", "held"),
        (5005, "Skel failed to process context binary.", "held"),
    ],
)
def test_what_would_have_met_any_context_is_no_refusal_of_its_size(
    code: int, message: str, verdict: str
) -> None:
    process = figures(0, failure=StepResult(3, "context-load", context=1, code=code))
    error = ErrorRecord.of(api="QnnContext_createFromBinary", code=code, message=message)
    check = judge_undersized(sharing_plan(NEEDS, "naive"), process, diagnosed("failed", error))
    assert check.verdict == verdict, check.reason


@pytest.mark.parametrize("io", [0, 14_000_000])
def test_buffers_that_only_the_dsp_has_are_not_counted_as_saved_or_lost(io: int) -> None:
    """A group's buffer is the client's; those of contexts without one may be the DSP's alone."""
    checks = judged(figures(io + max(NEEDS)), figures(io))
    assert (checks[0].name, checks[0].verdict) == ("memory_saved", "unseen")
    assert judged(figures(io + sum(NEEDS) + max(NEEDS)), figures(io))[0].verdict != "held"


def test_figures_out_of_a_transcript() -> None:
    def run(context: int, *digests: int) -> StepResult:
        data = {"digests": list(digests)}
        return StepResult(0, "io-run", context=context, begun=True, ended=True, code=0, data=data)

    failed = StepResult(3, "context-load", context=2, begun=True, ended=True, code=1002)
    read = sharing_figures(Transcript(steps=[run(0, 5), run(1, 6), run(0, 5), run(0, 7), failed]))
    assert read.digests == {0: frozenset({(5,), (7,)}), 1: frozenset({(6,)})}
    assert read.failure is failed
