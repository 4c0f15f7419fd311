"""Samples of a process's memory, and what grew between them (pure).

Backends keep what they share with a DSP in buffers that a file descriptor stands for: DMA-BUFs on
a device, memfds where a stand-in has neither. RSS is kept beside it, but decides nothing: thread
stacks and arenas grow it by more than any I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.contexts.context.session_plan import DeployedContext
from harness.ground.facts.memory_types import TensorMemory
from harness.probe.memory_steps import io_bind
from harness.probe.plan import Step
from harness.probe.transcript import Transcript

_DSP_ALLOCATORS = ("rpcmem", "dma-heap")


@dataclass(frozen=True)
class MemorySamples:
    """The samples of one process by their labels.

    `allocator` is where this device's shared buffers come from. `visible` tells whether a
    backend's buffers can be seen: it has an allocator for a DSP, or they were seen.
    """

    shared_bytes: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    pss_bytes: Mapping[str, int]
    allocator: str | None

    @property
    def visible(self) -> bool:
        """Whether shared buffers say anything on this target."""
        return self.allocator in _DSP_ALLOCATORS or any(self.shared_bytes.values())

    def growth(self, start: str, end: str) -> int | None:
        """By how many bytes shared buffers grew between two samples; None if one is missing."""
        if start not in self.shared_bytes or end not in self.shared_bytes:
            return None
        return self.shared_bytes[end] - self.shared_bytes[start]

    def record(self) -> dict[str, object]:
        """The samples as they stand in a record's measurements."""
        return {
            "shared_buffer_bytes": dict(self.shared_bytes),
            "sample_rss_bytes": dict(self.rss_bytes),
            "sample_pss_bytes": dict(self.pss_bytes),
            "allocator": self.allocator,
        }


def memory_samples(transcript: Transcript) -> MemorySamples:
    """What the `memory-sample` steps of a process said; whatever is no number is left out."""
    shared: dict[str, int] = {}
    rss: dict[str, int] = {}
    pss: dict[str, int] = {}
    allocator: str | None = None
    for step in transcript.steps:
        label = step.data.get("label")
        if step.verb != "memory-sample" or not step.ok or not isinstance(label, str):
            continue
        for name, into in (("shared", shared), ("rss", rss), ("pss", pss)):
            value = step.data.get(f"{name}_bytes")
            if type(value) is int and value >= 0:
                into[label] = value
        said = step.data.get("allocator")
        allocator = said if isinstance(said, str) else allocator
    return MemorySamples(shared, rss, pss, allocator)


def bind(number: int, deployed: DeployedContext, memory: TensorMemory = "raw") -> Step:
    """Gives the graph of a context, which has one, buffers for its inputs and outputs."""
    return io_bind(
        number,
        memory,
        inputs=deployed.inputs,
        expected=deployed.expected,
        graph=deployed.only_graph(),
    )
