"""Several looks at one thing: what only some of them found wrong may have been noise."""

from __future__ import annotations

from typing import Any

import pytest

from harness.experiments.memory import MemorySamples, memory_samples, over_looks
from harness.probe.transcript import StepResult, Transcript
from harness.results.checks import Check, held, undecided


def check(name: str, verdict: str, look: int) -> Check:
    if verdict == "unseen":
        return undecided(name, f"look {look}")
    return held(name, verdict == "held", f"look {look}", left_bytes=look)


@pytest.mark.parametrize(
    ("verdicts", "measured", "exact"),
    [
        (("held",), "held", "held"),
        (("unseen",), "unseen", "unseen"),
        (("broken",), "broken", "broken"),
        (("broken", "broken"), "broken", "broken"),
        (("broken", "unseen"), "broken", "broken"),
        (("unseen", "held"), "held", "held"),
        (("broken", "held"), "unseen", "broken"),
        (("held", "broken", "broken"), "unseen", "broken"),
    ],
)
def test_what_looks_say_together(verdicts: tuple[str, ...], measured: str, exact: str) -> None:
    looks = [
        [check("memory", verdict, look), check("outputs", verdict, look)]
        for look, verdict in enumerate(verdicts)
    ]
    memory, outputs = over_looks(looks, ["memory"])
    assert (memory.name, memory.verdict) == ("memory", measured)
    assert (outputs.name, outputs.verdict) == ("outputs", exact)
    if "broken" in verdicts:  # the figures of what was wrong stay
        last = max(look for look, verdict in enumerate(verdicts) if verdict == "broken")
        assert memory.figures == outputs.figures == {"left_bytes": last}
        assert memory.reason.startswith(f"look {last}")
        if memory.verdict == "unseen":
            told = f"; {verdicts.count('held')} of {len(verdicts)} looks found nothing wrong"
            assert memory.reason.endswith(told)


def test_looks_with_other_checks_are_told_apart() -> None:
    looks = [[check("a", "held", 0)], [check("b", "held", 1), check("a", "unseen", 1)]]
    found = over_looks(looks, [])
    assert [(one.name, one.verdict, one.reason) for one in found] == [
        ("b", "held", "look 1"),
        ("a", "held", "look 0"),
    ]


def sample(label: object, code: int = 0, verb: str = "memory-sample", **data: Any) -> StepResult:
    return StepResult(1, verb, begun=True, ended=True, code=code, data={"label": label} | data)


def test_the_samples_of_a_process_by_their_labels() -> None:
    steps = [
        sample("start", shared_bytes=0, rss_bytes=100, pss_bytes=60, allocator="rpcmem"),
        sample("end", shared_bytes=70, rss_bytes=90),
        sample("start", verb="execute", shared_bytes=1),
        sample("end", code=3, shared_bytes=2),
        sample(7, shared_bytes=3),
        sample("odd", shared_bytes=-1, rss_bytes=True, pss_bytes="9", allocator=None),
    ]
    found = memory_samples(Transcript(steps=steps))
    assert found.record() == {
        "shared_buffer_bytes": {"start": 0, "end": 70},
        "sample_rss_bytes": {"start": 100, "end": 90},
        "sample_pss_bytes": {"start": 60},
        "allocator": "rpcmem",
    }
    assert (found.growth("start", "end"), found.growth("end", "start")) == (70, -70)
    assert found.growth("start", "odd") is found.growth("odd", "start") is None


@pytest.mark.parametrize(
    ("allocator", "shared", "visible"),
    [
        ("rpcmem", {}, True),
        ("dma-heap", {"start": 0}, True),
        ("memfd", {"start": 0, "end": 0}, False),
        ("memfd", {"start": 0, "end": 1}, True),
        (None, {}, False),
    ],
)
def test_shared_buffers_are_seen_where_there_is_a_dsp_or_were_some(
    allocator: str | None, shared: dict[str, int], visible: bool
) -> None:
    assert MemorySamples(shared, {}, {}, allocator).visible is visible
