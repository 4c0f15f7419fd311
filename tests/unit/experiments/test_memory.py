"""Samples of memory as the probe's events tell them; whatever is no number is left out."""

from __future__ import annotations

from typing import Any

import pytest

from harness.experiments.latency import MemorySamples, memory_samples
from harness.probe.transcript import StepResult, Transcript


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
    read = memory_samples(Transcript(steps=steps))
    assert read.record() == {
        "shared_buffer_bytes": {"start": 0, "end": 70},
        "sample_rss_bytes": {"start": 100, "end": 90},
        "sample_pss_bytes": {"start": 60},
        "allocator": "rpcmem",
    }
    assert (read.growth("start", "end"), read.growth("end", "start")) == (70, -70)
    assert read.growth("start", "odd") is read.growth("odd", "start") is None


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
