"""Each promise of shared spill-fill, judged from figures: kept and broken."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.contexts.spill_fill import sharing_plan
from harness.probe.transcript import StepResult, Transcript
from harness.results.checks import Check, broken
from harness.results.diagnose import diagnosed
from harness.results.judge_sharing import (
    SharingFigures,
    judge_sharing,
    judge_undersized,
    sharing_figures,
)
from harness.results.memory_figures import MemorySamples
from harness.results.record import ErrorRecord

NEEDS = (4_000_000, 6_000_000, 3_000_000)
SHARING = sharing_plan(NEEDS, "max")
OUTPUTS = {at: frozenset({(at + 1,)}) for at in range(3)}


def figures(executed: int, freed: int = 0, **changed: Any) -> SharingFigures:
    shared = {"before": 50, "loaded": 50 + executed, "executed": 50 + executed, "freed": 50 + freed}
    made = SharingFigures(
        samples=MemorySamples(shared, {}, {}, "rpcmem"),
        digests=OUTPUTS,
        failed_context=None,
        failed_verb=None,
        failed_code=None,
    )
    return dataclasses.replace(made, **changed)


REFERENCE = figures(sum(NEEDS))


def judged(made: SharingFigures, reference: SharingFigures | None = REFERENCE) -> list[Check]:
    return judge_sharing(SHARING, made, reference, memory_part=0.1)


def test_what_is_promised_holds() -> None:
    checks = judged(figures(max(NEEDS)))
    assert [(check.name, check.verdict) for check in checks] == [
        ("memory_saved", "held"),
        ("memory_given_back", "held"),
        ("outputs_equal", "held"),
    ]
    assert checks[0].figures["saved_bytes"] == SHARING.expected_saving_bytes


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (figures(sum(NEEDS)), "memory_saved"),
        (figures(0), "memory_saved"),
        (figures(max(NEEDS), freed=5_000_000), "memory_given_back"),
        (figures(max(NEEDS), digests=OUTPUTS | {1: frozenset({(9,)})}), "outputs_equal"),
        (figures(max(NEEDS), digests=OUTPUTS | {1: frozenset({(2,), (9,)})}), "outputs_equal"),
        (figures(max(NEEDS), digests={}), "outputs_equal"),
    ],
)
def test_each_wrong_figure_breaks_its_check_alone(made: SharingFigures, name: str) -> None:
    assert [check.name for check in broken(judged(made))] == [name]


def test_without_sharing_there_is_nothing_to_save() -> None:
    checks = judged(REFERENCE, None)
    assert [check.name for check in checks] == ["memory_given_back", "outputs_equal"]
    assert not broken(checks)


def test_nothing_is_concluded_from_buffers_that_nobody_can_see() -> None:
    blind = MemorySamples(dict.fromkeys(("before", "executed", "freed"), 0), {}, {}, "memfd")
    made = figures(0, samples=blind)
    checks = judged(made, made)
    assert [check.verdict for check in checks] == ["unseen", "unseen", "held"]
    # one of them is enough to compare with
    assert judged(made)[0].verdict == "broken"
    missing = figures(0, samples=MemorySamples({}, {}, {}, "rpcmem"))
    assert [check.verdict for check in judged(missing)][:2] == ["unseen", "unseen"]


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
    made = figures(0, failed_verb=verb, failed_context=context, failed_code=code)
    check = judge_undersized(sharing_plan(NEEDS, "naive"), made, None)
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
    made = figures(0, failed_verb="context-load", failed_context=1, failed_code=code)
    error = ErrorRecord.of(api="QnnContext_createFromBinary", code=code, message=message)
    check = judge_undersized(sharing_plan(NEEDS, "naive"), made, diagnosed("failed", error))
    assert check.verdict == verdict, check.reason


def test_where_nothing_was_executed_no_outputs_are_equal() -> None:
    none = figures(max(NEEDS), digests={})
    assert judged(none, dataclasses.replace(REFERENCE, digests={}))[2].verdict == "unseen"


def test_what_was_not_seen_without_sharing_cannot_be_saved() -> None:
    checks = judged(figures(0), figures(1_000_000))
    assert (checks[0].name, checks[0].verdict) == ("memory_saved", "unseen")


def test_figures_out_of_a_transcript() -> None:
    def run(context: int, *digests: int) -> StepResult:
        return StepResult(
            0,
            "io-run",
            context=context,
            begun=True,
            ended=True,
            code=0,
            data={"digests": list(digests)},
        )

    failed = StepResult(3, "context-load", context=2, begun=True, ended=True, code=1002)
    found = sharing_figures(Transcript(steps=[run(0, 5), run(1, 6), run(0, 5), run(0, 7), failed]))
    assert found.digests == {0: frozenset({(5,), (7,)}), 1: frozenset({(6,)})}
    assert (found.failed_verb, found.failed_context, found.failed_code) == ("context-load", 2, 1002)
