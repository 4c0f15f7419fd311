"""Whether two processes are as fast as each other, or too noisy to tell (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.verdict.results.checks import Check, held, undecided


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
