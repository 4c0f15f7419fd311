"""Latency, memory and growth, measured in rounds that tolerate noise of other processes.

Backends share memory with a DSP in buffers with file descriptors: DMA-BUFs on a device, memfds on a
simulated one. RSS is recorded, too, but decides nothing: thread stacks and arenas grow it by more
than any I/O.

The subject of microsoft/onnxruntime#22511.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from harness.bench.bench import Bench
from harness.core.codes import TensorMemory
from harness.models.models import Model
from harness.models.source import DeployedContext
from harness.probe.ort_plan import io_bind, ort_session_free
from harness.probe.plan import Plan, Step
from harness.probe.transcript import Transcript
from harness.results.measurements import Growth, session_growth
from harness.results.record import Check, held, undecided


@dataclass(frozen=True)
class Latency:
    """The times of one process's inferences in microseconds, in order."""

    times_us: tuple[int, ...]

    @cached_property
    def median_us(self) -> float | None:
        """Their median; None if there are none."""
        return statistics.median(self.times_us) if self.times_us else None

    @cached_property
    def spread_us(self) -> float:
        """The median distance from the median."""
        middle = self.median_us
        return statistics.median(abs(time - middle) for time in self.times_us) if middle else 0.0


@dataclass(frozen=True)
class LatencyTolerance:
    """The largest distance of two medians that count as equal.

    It is `part` of the smaller median or `floor_us`, whichever is more, but at most `most_part` of
    it. If `spreads` times the spread is more than that, the result is too noisy to tell.
    """

    part: float = 0.25
    floor_us: float = 200.0
    most_part: float = 0.5
    spreads: float = 2.0

    def allowed_us(self, smaller: float) -> float:
        """Return how far the larger median may be from this smaller one."""
        return min(self.most_part * smaller, max(self.part * smaller, self.floor_us))


def same_latency(
    name: str, latency: Latency, other: Latency | None, other_name: str, tolerance: LatencyTolerance
) -> Check:
    """Check that two latencies have the same median; `other_name` names the other in words.

    Undecided if one of them has no times, or if the noise of either would hide a difference.
    """
    if latency.median_us is None:
        return undecided(name, "there are no steady inferences")
    if other is None or other.median_us is None:
        return undecided(name, f"{other_name} gave no steady inferences to compare with")
    smaller = min(latency.median_us, other.median_us)
    most = tolerance.most_part * smaller
    allowed = tolerance.allowed_us(smaller)
    noise = tolerance.spreads * max(latency.spread_us, other.spread_us)
    difference = abs(latency.median_us - other.median_us)
    figures: dict[str, float] = {
        "median_us": latency.median_us,
        "spread_us": latency.spread_us,
        "other_median_us": other.median_us,
        "other_spread_us": other.spread_us,
        "tolerance_us": allowed,
    }
    message = f"median {latency.median_us:g} us, {other_name} {other.median_us:g} us"
    if difference > max(allowed, noise):
        return held(name, False, f"{message}; {allowed:.0f} us apart is allowed", **figures)
    if noise > most or difference > allowed:
        return undecided(
            name, f"{message}, with a spread of {noise:.0f} us: too noisy to tell", **figures
        )
    return held(name, True, f"{message}; {allowed:.0f} us apart is allowed", **figures)


def same_in_rounds(rounds: Sequence[Check], tolerance: LatencyTolerance) -> Check:
    """Combine rounds of `same_latency`, each of which compared processes of its own.

    A real difference shows in every round, even in the quickest. So one round that holds decides.
    It is broken if most rounds are, all in one direction, and the least medians of both differ as
    much. Anything else is undecided: other processes may have caused it.
    """
    last = rounds[-1]
    held_rounds = [check for check in rounds if check.verdict == "held"]
    broken = [check for check in rounds if check.verdict == "broken"]
    if held_rounds or not broken:
        return held_rounds[-1] if held_rounds else last
    timed = [check for check in rounds if check.figures]
    smallest = min(_median(check, "median_us") for check in timed)
    other_smallest = min(_median(check, "other_median_us") for check in timed)
    medians = [(_median(each, "median_us"), _median(each, "other_median_us")) for each in broken]
    directions = {own > other for own, other in medians}
    differs = abs(smallest - other_smallest) > tolerance.allowed_us(min(smallest, other_smallest))
    if directions == {smallest > other_smallest} and differs and 2 * len(broken) > len(rounds):
        return broken[-1]
    reason = f"{broken[-1].reason}; not so in every one of {len(rounds)} rounds: too noisy to tell"
    return undecided(last.name, reason, **broken[-1].figures)


def _median(check: Check, name: str) -> float:
    value = check.figures[name]
    assert isinstance(value, int | float)
    return float(value)


def strict(rounds: Sequence[Check]) -> Check:
    """Return the last round that broke, else the last that held, else the last."""
    broken = [check for check in rounds if check.verdict == "broken"]
    return (broken or [check for check in rounds if check.verdict == "held"] or rounds)[-1]


def agreed(rounds: Sequence[Check]) -> Check:
    """Return broken only if no round held; rounds that differ decide nothing."""
    check, held_rounds = strict(rounds), [check for check in rounds if check.verdict == "held"]
    if check.verdict != "broken" or not held_rounds:
        return check
    reason = f"{check.reason}; {len(held_rounds)} of {len(rounds)} looks found nothing wrong"
    return undecided(check.name, reason, **check.figures)


@dataclass(frozen=True)
class Disturbed:
    """The rule for a check that other processes can disturb.

    It is measured at most `most` times: while it is broken, and if it is `noisy`, also while it is
    undecided with figures. `together` combines its rounds.
    """

    together: Callable[[Sequence[Check]], Check] = agreed
    most: int = 2
    noisy: bool = False

    def doubts(self, check: Check) -> bool:
        """Return whether another round may give another result."""
        is_undecided = check.verdict == "unseen" and bool(check.figures)
        return check.verdict == "broken" or (self.noisy and is_undecided)


Rules = Mapping[str, Disturbed]
"""Rules by the names of checks; other checks are `strict`, and not measured again."""


def settled(measure: Callable[[int], list[Check]], rules: Rules) -> list[Check]:
    """Measure rounds until no check is in doubt; `measure` gets the number of earlier rounds."""
    rounds = [measure(0)]
    while in_doubt(rounds, rules):
        rounds.append(measure(len(rounds)))
    return over_rounds(rounds, rules)


def in_doubt(rounds: Sequence[Sequence[Check]], rules: Rules) -> bool:
    """Return whether another round may give another result than these."""
    last = [(check, rules[check.name]) for check in rounds[-1] if check.name in rules]
    return any(len(rounds) < rule.most and rule.doubts(check) for check, rule in last)


def over_rounds(rounds: Sequence[Sequence[Check]], rules: Rules) -> list[Check]:
    """Combine all rounds for each check of the last one."""
    merged = []
    for name in (check.name for check in rounds[-1]):
        together = rules[name].together if name in rules else strict
        merged.append(together([each for checks in rounds for each in checks if each.name == name]))
    return merged


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

LONGER_LOOK: Final[Rules] = dict.fromkeys(
    (BY_EACH, BY_ALL), Disturbed(lambda rounds: rounds[-1], noisy=True)
)


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
    rounds: list[list[Check]] = []

    def measured(before: int) -> list[Check]:
        if before:
            bench.measure(first_look=[check.model_dump() for check in rounds[0]])
            plan = _sessions(bench, model, _MORE_SESSIONS)
            observation = bench.run(plan, timeout_s=_MORE_SESSIONS_S)
        else:
            observation = bench.run(_sessions(bench, model, _SESSIONS))
        observation.check()
        growth = session_growth(observation.run.transcript.steps)
        rounds.append(judge_growth(growth, tolerance))
        return rounds[-1]

    bench.expect(*settled(measured, LONGER_LOOK))


def _sessions(bench: Bench, model: Model, number: int) -> Plan:
    ort, deployed = bench.ort(), bench.model(model)
    once = (*ort.session(0, deployed.file), ort.run(0, deployed), ort_session_free(0))
    return ort.plan(once * number, sessions=1)


def judge_growth(growth: Growth | None, tolerance: GrowthTolerance) -> list[Check]:
    """Return the checks of a process that created and released sessions.

    Undecided if the device does not report the memory of a process (None), or if noise would hide
    a leak.
    """
    if growth is None:
        reason = "there are no samples of the process's memory, or too few"
        return [undecided(name, reason) for name in (BY_EACH, BY_ALL)]
    return [
        _growth_check(BY_EACH, growth.per_round, growth.noise, tolerance.each_bytes),
        _growth_check(BY_ALL, growth.in_all, growth.came_back, tolerance.all_bytes),
    ]


def _growth_check(name: str, left_bytes: int, noise: int, most: int) -> Check:
    reason = f"{left_bytes} bytes are left, {most} are tolerated"
    figures = {"left_bytes": left_bytes, "noise_bytes": noise, "tolerance_bytes": most}
    if left_bytes - noise > most:
        return held(name, False, reason, **figures)
    if left_bytes > most or noise > most:
        return undecided(name, f"{reason}; {noise} bytes come and go: too noisy to tell", **figures)
    return held(name, True, reason, **figures)
