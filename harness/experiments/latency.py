"""Rounds beside other processes: latencies, samples of memory, and growth, or too noisy to tell.

Backends keep what they share with a DSP in buffers that a file descriptor stands for: DMA-BUFs on
a device, memfds where a stand-in has neither. RSS is kept beside it, but decides nothing: thread
stacks and arenas grow it by more than any I/O.

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
    """The times of one process's inferences in microseconds, in the order they were made."""

    times_us: tuple[int, ...]

    @cached_property
    def median_us(self) -> float | None:
        """Their median; None if there are none."""
        return statistics.median(self.times_us) if self.times_us else None

    @cached_property
    def spread_us(self) -> float:
        """The median distance from the median."""
        middle = self.median_us
        return statistics.median(abs(one - middle) for one in self.times_us) if middle else 0.0


@dataclass(frozen=True)
class LatencyTolerance:
    """How far two medians may be apart and still count as the same.

    By a part of the smaller median or `floor_us`, whichever is more, but never by more than
    `most_part` of it. If so many `spreads` are more than that, it is too noisy to tell.
    """

    part: float = 0.25
    floor_us: float = 200.0
    most_part: float = 0.5
    spreads: float = 2.0

    def allowed_us(self, smaller: float) -> float:
        """How far the larger median may be from this smaller one."""
        return min(self.most_part * smaller, max(self.part * smaller, self.floor_us))


def same_latency(
    name: str, own: Latency, other: Latency | None, of_other: str, tolerance: LatencyTolerance
) -> Check:
    """Whether the median of `own` is that of `other`, which `of_other` names for people.

    Undecided if one of them has no times, or the noise of either would hide a difference.
    """
    if own.median_us is None:
        return undecided(name, "there are no steady inferences")
    if other is None or other.median_us is None:
        return undecided(name, f"{of_other} gave no steady inferences to compare with")
    smaller = min(own.median_us, other.median_us)
    most = tolerance.most_part * smaller
    allowed = tolerance.allowed_us(smaller)
    noise = tolerance.spreads * max(own.spread_us, other.spread_us)
    apart = abs(own.median_us - other.median_us)
    figures: dict[str, float] = {
        "median_us": own.median_us,
        "spread_us": own.spread_us,
        "other_median_us": other.median_us,
        "other_spread_us": other.spread_us,
        "tolerance_us": allowed,
    }
    told = f"median {own.median_us:g} us, {of_other} {other.median_us:g} us"
    if apart > max(allowed, noise):
        return held(name, False, f"{told}; {allowed:.0f} us apart is allowed", **figures)
    if noise > most or apart > allowed:
        return undecided(
            name, f"{told}, with a spread of {noise:.0f} us: too noisy to tell", **figures
        )
    return held(name, True, f"{told}; {allowed:.0f} us apart is allowed", **figures)


def same_in_rounds(rounds: Sequence[Check], tolerance: LatencyTolerance) -> Check:
    """What rounds of `same_latency` say together; each compared processes of its own.

    What is slower by nature is so in every round, also in the quickest. So one round that holds
    decides. It is broken if most rounds are, all in one direction, and the least medians of both
    differ as much. Anything between is undecided: other processes may have caused it.
    """
    last = rounds[-1]
    kept = [check for check in rounds if check.verdict == "held"]
    told = [check for check in rounds if check.verdict == "broken"]
    if kept or not told:
        return kept[-1] if kept else last
    timed = [check for check in rounds if check.figures]
    own = min(_median(check, "median_us") for check in timed)
    other = min(_median(check, "other_median_us") for check in timed)
    ways = {_median(one, "median_us") > _median(one, "other_median_us") for one in told}
    differs = abs(own - other) > tolerance.allowed_us(min(own, other))
    if ways == {own > other} and differs and 2 * len(told) > len(rounds):
        return told[-1]
    why = f"{told[-1].reason}; not so in every one of {len(rounds)} rounds: too noisy to tell"
    return undecided(last.name, why, **told[-1].figures)


def _median(check: Check, name: str) -> float:
    value = check.figures[name]
    assert isinstance(value, int | float)
    return float(value)


def strict(rounds: Sequence[Check]) -> Check:
    """What broke once is broken; else what held once holds. The last round that says so counts."""
    broken = [check for check in rounds if check.verdict == "broken"]
    return (broken or [check for check in rounds if check.verdict == "held"] or rounds)[-1]


def agreed(rounds: Sequence[Check]) -> Check:
    """Broken if each round that could tell broke it; rounds that differ decide nothing."""
    told, kept = strict(rounds), [check for check in rounds if check.verdict == "held"]
    if told.verdict != "broken" or not kept:
        return told
    why = f"{told.reason}; {len(kept)} of {len(rounds)} looks found nothing wrong"
    return undecided(told.name, why, **told.figures)


@dataclass(frozen=True)
class Disturbed:
    """How a check is taken that other processes can make wrong.

    It is measured at most `most` times: while it is broken, and if it is `noisy`, also while its
    figures decide nothing. `together` says what its rounds come to.
    """

    together: Callable[[Sequence[Check]], Check] = agreed
    most: int = 2
    noisy: bool = False

    def doubts(self, check: Check) -> bool:
        """Whether another round may come to another answer."""
        unsure = check.verdict == "unseen" and bool(check.figures)
        return check.verdict == "broken" or (self.noisy and unsure)


Rules = Mapping[str, Disturbed]
"""By the names of checks; any other is not measured again for its own sake, and is `strict`."""


def settled(measure: Callable[[int], list[Check]], rules: Rules) -> list[Check]:
    """What rounds come to; `measure` makes a round, and is told how many were before it."""
    rounds = [measure(0)]
    while in_doubt(rounds, rules):
        rounds.append(measure(len(rounds)))
    return over_rounds(rounds, rules)


def in_doubt(rounds: Sequence[Sequence[Check]], rules: Rules) -> bool:
    """Whether another round may come to another answer than these."""
    last = [(check, rules[check.name]) for check in rounds[-1] if check.name in rules]
    return any(len(rounds) < rule.most and rule.doubts(check) for check, rule in last)


def over_rounds(rounds: Sequence[Sequence[Check]], rules: Rules) -> list[Check]:
    """For each check of the last round what all rounds together say of it."""
    found = []
    for name in (check.name for check in rounds[-1]):
        together = rules[name].together if name in rules else strict
        found.append(together([one for checks in rounds for one in checks if one.name == name]))
    return found


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


# Eight of them are the start; the rest are four threes, or 24 where that was not enough to tell.
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
    """What rounds of the same work may leave behind, once the first few are over (bytes).

    `each_bytes`: most of them, each by itself. `all_bytes`: all of them together.
    """

    each_bytes: int
    all_bytes: int


def measure_growth(bench: Bench, model: Model, tolerance: GrowthTolerance) -> None:
    """Makes, runs and releases sessions of a model, and checks what they leave behind.

    Sessions that seem to leave too much, or leave too little to tell it from what comes and goes by
    itself, are made again in a process of its own, four times as many. What these show counts: what
    each session loses, these lose, too, and what happens once does not happen again. Raises
    TargetFailure if a process fails or a check does not hold.
    """
    looks: list[list[Check]] = []

    def measured(before: int) -> list[Check]:
        if before:
            bench.measure(first_look=[check.model_dump() for check in looks[0]])
            plan = _sessions(bench, model, _MORE_SESSIONS)
            observation = bench.run(plan, timeout_s=_MORE_SESSIONS_S)
        else:
            observation = bench.run(_sessions(bench, model, _SESSIONS))
        observation.check()
        growth = session_growth(observation.run.transcript.steps)
        looks.append(judge_growth(growth, tolerance))
        return looks[-1]

    bench.expect(*settled(measured, LONGER_LOOK))


def _sessions(bench: Bench, model: Model, number: int) -> Plan:
    ort, deployed = bench.ort(), bench.model(model)
    once = (*ort.session(0, deployed.file), ort.run(0, deployed), ort_session_free(0))
    return ort.plan(once * number, sessions=1)


def judge_growth(growth: Growth | None, tolerance: GrowthTolerance) -> list[Check]:
    """The checks of a process that made and released sessions.

    Undecided if the device does not tell the memory of a process (None), or if what comes and goes
    would hide a leak.
    """
    if growth is None:
        why = "there are no samples of the process's memory, or too few"
        return [undecided(name, why) for name in (BY_EACH, BY_ALL)]
    return [
        _left(BY_EACH, growth.per_round, growth.noise, tolerance.each_bytes),
        _left(BY_ALL, growth.in_all, growth.came_back, tolerance.all_bytes),
    ]


def _left(name: str, left: int, noise: int, most: int) -> Check:
    reason = f"{left} bytes are left, {most} are tolerated"
    told = {"left_bytes": left, "noise_bytes": noise, "tolerance_bytes": most}
    if left - noise > most:
        return held(name, False, reason, **told)
    if left > most or noise > most:
        return undecided(name, f"{reason}; {noise} bytes come and go: too noisy to tell", **told)
    return held(name, True, reason, **told)
