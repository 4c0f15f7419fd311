"""Latency, memory and growth, measured in rounds that tolerate noise of other processes.

Backends share memory with a DSP in buffers with file descriptors: DMA-BUFs on a device, memfds on a
simulated one. RSS is recorded, too, but decides nothing: thread stacks and arenas grow it by more
than any I/O.

The subject of microsoft/onnxruntime#22511.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from harness.bench.bench import Bench
from harness.core.engine import CASE_TIMEOUT_S
from harness.core.error_codes import TensorMemory
from harness.models.builtin_models import Model
from harness.models.session_plan import DeployedContext
from harness.probe.ort_plan import io_bind, ort_session_free
from harness.probe.plan import Step
from harness.probe.transcript import Transcript
from harness.results.latency import nearest_rank
from harness.results.probe_figures import Growth, session_growth
from harness.results.record import Check, held, undecided


@dataclass(frozen=True)
class Latency:
    """The times of one process's inferences in microseconds, in order.

    `repeated_us` is how much slower the median of another process like it was, if there was one.
    """

    times_us: tuple[int, ...]
    repeated_us: float = 0.0

    @cached_property
    def p50_us(self) -> float | None:
        """Their median; None if there are none."""
        return nearest_rank(self.times_us, 0.5) if self.times_us else None

    @cached_property
    def spread_us(self) -> float:
        """The median distance from the median."""
        middle = self.p50_us
        return statistics.median(abs(time - middle) for time in self.times_us) if middle else 0.0


PART: Final = 0.25
FLOOR_US: Final = 200.0
MOST_PART: Final = 0.5
"""Two medians count as equal within this part of the smaller one, or within the floor, whichever
is more, but at most within this largest part of it."""
_SPREADS: Final = 2.0


def same_latency(
    name: str, latency: Latency, other: Latency | None, other_name: str, part: float = PART
) -> Check:
    """Check that two latencies have the same median; `other_name` names the other in words.

    `part` of the smaller one is tolerated. Undecided if one of them has no times, or if the noise
    of either would hide a difference: twice its spread, or what processes of it differ by.
    """
    if latency.p50_us is None:
        return undecided(name, "no inference is in the steady state")
    if other is None or other.p50_us is None:
        return undecided(name, f"no inference of {other_name} is in the steady state")
    smaller = min(latency.p50_us, other.p50_us)
    most = MOST_PART * smaller
    allowed = min(most, max(part * smaller, FLOOR_US))
    spread = _SPREADS * max(latency.spread_us, other.spread_us)
    noise = max(spread, latency.repeated_us, other.repeated_us)
    difference = abs(latency.p50_us - other.p50_us)
    figures: dict[str, float] = {
        "p50_us": latency.p50_us,
        "spread_us": latency.spread_us,
        "other_p50_us": other.p50_us,
        "other_spread_us": other.spread_us,
        "tolerance_us": allowed,
    }
    message = (
        f"p50 {latency.p50_us:g} us, {other_name} {other.p50_us:g} us "
        f"(allowed difference: {allowed:.0f} us)"
    )
    if difference > max(allowed, noise):
        return held(name, False, message, **figures)
    if noise > most or difference > allowed:
        return undecided(name, f"{message}: the noise of {noise:.0f} us hides it", **figures)
    return held(name, True, message, **figures)


def quickest(processes: Iterable[Latency]) -> Latency:
    """Return the latency of the process with the least median: load only makes others slower.

    The next one tells how well it is repeated: where another program shares a core, processes are
    of two speeds.
    """
    timed = sorted(
        (latency for latency in processes if latency.times_us),
        key=lambda latency: latency.p50_us or 0.0,
    )
    if len(timed) < 2:
        return timed[0] if timed else Latency(())
    best, other = timed[:2]
    return replace(best, repeated_us=(other.p50_us or 0.0) - (best.p50_us or 0.0))


def settled(measure: Callable[[int], list[Check]], disturbed: Mapping[str, int]) -> list[Check]:
    """Measure again while a check that other processes can disturb is broken, or too noisy to tell.

    `measure` gets the number of earlier rounds, `disturbed` has the most rounds of such checks by
    their names. One round in which such a check holds decides, else the last one. Any other check
    is broken if it is in one round.
    """
    rounds = [measure(0)]
    while any(
        len(rounds) < disturbed.get(check.name, 0)
        and (check.verdict == "broken" or (check.verdict == "unseen" and check.figures))
        for check in rounds[-1]
    ):
        rounds.append(measure(len(rounds)))
    checks = []
    for name in (check.name for check in rounds[-1]):
        of_name = [check for checks in rounds for check in checks if check.name == name]
        last = {check.verdict: check for check in of_name}
        order = ("held",) if name in disturbed else ("broken", "held")
        checks.append(next((last[verdict] for verdict in order if verdict in last), of_name[-1]))
    return checks


_DSP_ALLOCATORS = ("rpcmem", "dma-heap")


@dataclass(frozen=True)
class MemorySamples:
    """The memory samples of one process by their labels.

    `allocator` is the source of this device's shared buffers. A backend's buffers are `visible` if
    it has an allocator for a DSP, or if some were seen.
    """

    shared_bytes: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    pss_bytes: Mapping[str, int]
    allocator: str | None

    @property
    def visible(self) -> bool:
        """Return whether shared buffers can be measured on this target."""
        return self.allocator in _DSP_ALLOCATORS or any(self.shared_bytes.values())

    def growth(self, start: str, end: str) -> int | None:
        """Return by how many bytes shared buffers grew between samples; None if one is missing."""
        if start not in self.shared_bytes or end not in self.shared_bytes:
            return None
        return self.shared_bytes[end] - self.shared_bytes[start]

    def record(self) -> dict[str, object]:
        """Return the samples as entries in a record's measurements."""
        return {
            "shared_buffer_bytes": dict(self.shared_bytes),
            "sample_rss_bytes": dict(self.rss_bytes),
            "sample_pss_bytes": dict(self.pss_bytes),
            "allocator": self.allocator,
        }


def memory_samples(transcript: Transcript) -> MemorySamples:
    """Return the results of the `memory-sample` steps of a process, ignoring malformed ones."""
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
        name_of_allocator = step.data.get("allocator")
        allocator = name_of_allocator if isinstance(name_of_allocator, str) else allocator
    return MemorySamples(shared, rss, pss, allocator)


def bind(number: int, deployed: DeployedContext, memory: TensorMemory = "raw") -> Step:
    """Return the step that binds buffers for inputs and outputs to a context's only graph."""
    return io_bind(
        number,
        memory,
        inputs=deployed.inputs,
        expected=deployed.expected,
        graph=deployed.only_graph(),
    )


# Eight of them are the start; the rest are four threes, or 24 if that was not enough.
_SESSIONS: Final = 20
_MORE_SESSIONS: Final = 80
_MORE_SESSIONS_S: Final = 900.0
BY_EACH: Final = "memory_left_by_each"
BY_ALL: Final = "memory_left_by_all"


@dataclass(frozen=True)
class GrowthTolerance:
    """The memory that rounds of the same work may leave behind, after the first few (bytes).

    `each_bytes`: most rounds, each by itself. `all_bytes`: all rounds together.
    """

    each_bytes: int
    all_bytes: int


def measure_growth(bench: Bench, model: Model, tolerance: GrowthTolerance) -> None:
    """Create, run and release sessions of a model, and check the memory that they leave behind.

    If they seem to leave too much, or too little to distinguish it from noise, four times as many
    are made in another process, whose result counts: a leak of each session shows again, a single
    event does not. Raises TargetFailure if a process fails or a check does not hold.
    """

    def look(sessions: int, timeout_s: float = CASE_TIMEOUT_S) -> list[Check]:
        ort, deployed = bench.ort(), bench.model(model)
        once = (*ort.session(0, deployed.file), ort.run(0, deployed), ort_session_free(0))
        observation = bench.run(ort.plan(once * sessions, sessions=1), timeout_s=timeout_s)
        observation.check()
        return judge_growth(session_growth(observation.run.transcript.steps), tolerance)

    checks = look(_SESSIONS)
    if any(check.verdict != "held" and check.figures for check in checks):
        bench.measure(first_look=[check.model_dump() for check in checks])
        checks = look(_MORE_SESSIONS, _MORE_SESSIONS_S)
    bench.expect(*checks)


def judge_growth(growth: Growth | None, tolerance: GrowthTolerance) -> list[Check]:
    """Return the checks of a process that created and released sessions.

    Undecided if the device does not report the memory of a process (None), or if noise would hide
    a leak.
    """
    if growth is None:
        reason = "the process's memory has too few samples"
        return [undecided(name, reason) for name in (BY_EACH, BY_ALL)]
    return [
        _growth_check(BY_EACH, growth.per_round, growth.noise, tolerance.each_bytes),
        _growth_check(BY_ALL, growth.in_all, growth.came_back, tolerance.all_bytes),
    ]


def _growth_check(name: str, left_bytes: int, noise: int, most: int) -> Check:
    reason = f"memory grew by {left_bytes:,} bytes (allowed: {most:,})"
    figures = {"left_bytes": left_bytes, "noise_bytes": noise, "tolerance_bytes": most}
    if left_bytes - noise > most:
        return held(name, False, reason, **figures)
    if left_bytes > most or noise > most:
        return undecided(name, f"{reason}: the noise of {noise:,} bytes hides it", **figures)
    return held(name, True, reason, **figures)
