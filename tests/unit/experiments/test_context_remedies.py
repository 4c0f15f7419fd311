"""Remedies for contexts that do not fit: their options, what a process of one does, its figures."""

from __future__ import annotations

from typing import Any

import pytest

from harness.bench.case_session import TargetFailure
from harness.core.context_options import checked_options
from harness.experiments.context_remedies import (
    REMEDIES,
    output_digests,
    remedy_figures,
    remedy_plan,
    tried_options,
)
from harness.models.session_plan import schedule, session_plan
from harness.probe.transcript import StepResult, Transcript
from tests.unit.models.test_session_plan import LIBRARIES, TWO

GRAPH = {"io_bytes": 56 << 20, "const_bytes": 3 << 20, "spill_fill_bytes": 5}
LARGER = {"io_bytes": 2 << 20, "const_bytes": 64 << 20, "spill_fill_bytes": 9}


@pytest.mark.parametrize("name", REMEDIES)
def test_each_remedy_has_valid_options_that_fill_what_a_user_writes(name: str) -> None:
    remedy = REMEDIES[name]
    options = tried_options(remedy, [{"graphs": [GRAPH, LARGER]}], 66)
    assert checked_options(options) == options
    lines = remedy.lines({**options, "window": 8, "processes": 3})
    assert "qnn" in lines
    assert not set("{}") & set("".join(lines.values()))


def test_options_depend_on_the_contexts() -> None:
    metadata = [{"graphs": [GRAPH]}, {"graphs": [LARGER]}]
    tried = {name: tried_options(REMEDIES[name], metadata, 66) for name in REMEDIES}
    assert tried["spill-fill"] == {"spill_fill_group": 9}
    assert tried["reused-io-limit"] == {"reused_io_limit_mb": 4}
    assert tried["memory-limit-hint"] == {"memory_limit_hint_mb": 67, "persistent_binary": 1}
    assert tried_options(REMEDIES["reused-io-limit"], metadata, 2) == {"reused_io_limit_mb": 56}


def test_a_remedy_that_does_nothing_for_these_contexts_is_unsupported() -> None:
    with pytest.raises(TargetFailure) as caught:
        tried_options(REMEDIES["spill-fill"], [{"graphs": [{"io_bytes": 1}]}], 2)
    assert caught.value.verdict.outcome == "unsupported"


def steps_of(share: bool, chosen: set[int]) -> list[tuple[str, str]]:
    plan = session_plan(LIBRARIES, [TWO], schedule(9, "resident"))
    steps = remedy_plan(plan, chosen, share=share).steps
    shown = ("execute", "io-bind", "io-run", "io-release", "memory-sample", "context-load")
    fields = [(step.verb, {**step.fields}) for step in steps if step.verb in shown]
    return [(verb, field.get("label") or field["context"]) for verb, field in fields]


def test_contexts_execute_that_are_chosen_and_the_first_of_them_twice() -> None:
    steps = steps_of(False, {0, 8})
    assert (steps[0], steps[-1]) == (("memory-sample", "before"), ("memory-sample", "executed"))
    assert steps[1:10] == [("context-load", str(number)) for number in range(9)]
    # the graph that has expected outputs executes once, the other one twice
    assert [context for verb, context in steps if verb == "execute"] == ["0"] * 3 + ["8"] * 2


def test_shared_buffers_are_registered_with_each_context_and_graph() -> None:
    steps = steps_of(True, {0})
    of_first = [verb for verb, context in steps if context == "0"]
    bound = ["io-bind", "io-run"], ["io-release", "io-bind", "io-run", "io-run"]
    assert of_first == ["context-load", *bound[0], *bound[1]]
    of_last = [verb for verb, context in steps if context == "8"]
    assert of_last == ["context-load", "io-bind", "io-release", "io-bind"]


def step(verb: str, context: int | None, us: int | None = None, **data: Any) -> StepResult:
    return StepResult(
        0, verb, context=context, begun=True, ended=True, code=0, duration_us=us, data=data
    )


def ran(*outputs: int, grown: int = 5, allocator: str = "memfd") -> Transcript:
    """Two contexts with the same graph, of which the second executes twice."""
    samples = {"rss_bytes": 1, "shared_bytes": 0, "allocator": allocator}
    after = {"rss_bytes": 1 + grown, "shared_bytes": 70 * (allocator == "rpcmem")}
    runs = [
        step("execute", context, us, graph="g", digests=[digest])
        for (context, us), digest in zip([(0, 9), (1, 5), (1, 3)], outputs, strict=False)
    ]
    before = step("memory-sample", None, label="before", **samples)
    loads = step("context-load", 0, 10), step("context-load", 1, 11)
    done = step("memory-sample", None, label="executed", **{**samples, **after})
    return Transcript(steps=[before, *loads, *runs, done])


def test_figures_of_a_remedy() -> None:
    baseline = output_digests([(0, ran(7, 8))], 2)
    figures = remedy_figures([(0, ran(7, 8, 8))], baseline, 2)
    assert figures == {
        "loaded": 2,
        "executed": 2,
        "outputs_equal": True,
        "load_us": 21,
        "first_us": 7,
        "steady_us": 3,
        "memory_bytes": 5,
    }
    assert remedy_figures([(0, ran(7, 9))], baseline, 2)["outputs_equal"] is False
    assert remedy_figures([(0, ran(allocator="rpcmem"))], {}, 2)["memory_bytes"] == 70
    nothing = remedy_figures([], baseline, 2)
    assert (nothing["outputs_equal"], nothing["load_us"], nothing["memory_bytes"]) == (None,) * 3


def test_processes_have_a_part_of_the_contexts_each() -> None:
    baseline = output_digests([(0, ran(7, 8))], 2)
    figures = remedy_figures([(0, ran(7, 8)), (1, ran(8, 7)), (2, ran(7, 8))], baseline, 2)
    assert (figures["loaded"], figures["executed"], figures["memory_bytes"]) == (6, 6, 15)
    assert figures["outputs_equal"] is True
