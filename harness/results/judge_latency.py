"""Whether two processes are as fast as each other, or too noisy to tell (pure)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property

from harness.results.checks import Check, held, unseen


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

    A part of the smaller one or `floor_us`, whichever is more, but never more than `most_part` of
    it. Where so many `spreads` are more than that, it is too noisy to tell.
    """

    part: float = 0.25
    floor_us: float = 200.0
    most_part: float = 0.5
    spreads: float = 2.0


def same_latency(
    name: str, own: Latency, other: Latency | None, of_other: str, tolerance: LatencyTolerance
) -> Check:
    """Whether the median of `own` is that of `other`, which `of_other` names for people.

    `unseen` if one of them has no times, or the noise of either would hide a difference.
    """
    if own.median_us is None:
        return unseen(name, "there are no steady inferences")
    if other is None or other.median_us is None:
        return unseen(name, f"{of_other} gave no steady inferences to compare with")
    smaller = min(own.median_us, other.median_us)
    most = tolerance.most_part * smaller
    allowed = min(most, max(tolerance.part * smaller, tolerance.floor_us))
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
        return unseen(
            name, f"{told}, with a spread of {noise:.0f} us: too noisy to tell", **figures
        )
    return held(name, True, f"{told}; {allowed:.0f} us apart is allowed", **figures)
