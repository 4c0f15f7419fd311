"""Statistics of inference times: begin of the steady state, percentiles with intervals (pure).

Percentiles are order statistics by nearest rank, as MLPerf's. Their intervals hold for any
distribution: the number of times below a percentile is binomial. Correlated times count as fewer
independent ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_CONFIDENCE: Final = 0.95
_WINDOW: Final = 10
_STABLE: Final = 0.01
"""Medians that differ by at most this part count as equal."""
_BATCHES: Final = 10


@dataclass(frozen=True)
class Percentile:
    """A percentile and its confidence interval, of which an end without a bound is None.

    That is so where too few times were measured: 99 % of 300 leave three.
    """

    value: float
    low: float | None
    high: float | None


def steady_start(times: Sequence[float]) -> int:
    """Return the number of times to drop until the running median is stable.

    Stable is the first time that, like the median of the ten beginning with it, equals the median
    of the second half within 1 %, or what it varies by itself. If none of the first half is, all of
    that is dropped. Of fewer than twenty times none is.
    """
    half = len(times) // 2
    if half < _WINDOW:
        return 0
    same_one, same_ten = (_like(times[half:], count) for count in (1, _WINDOW))
    for start in range(half):
        if same_one(times[start]) and same_ten(statistics.median(times[start : start + _WINDOW])):
            return start
    return half


def is_steady(times: Sequence[float]) -> bool | None:
    """Return whether the medians of the first and the second half may be the same, within 1 %.

    None: fewer than twenty times tell nothing.
    """
    half = len(times) // 2
    if half < _WINDOW:
        return None
    parts = (percentile(part, 0.5) for part in (times[:half], times[half:]))
    lower, upper = sorted(parts, key=lambda part: part.value)
    return (lower.high or math.inf) * (1 + _STABLE) >= (upper.low or 0)


def _like(times: Sequence[float], count: int) -> Callable[[float], bool]:
    """Return a predicate that tells whether a median of `count` times equals that of `times`."""
    middle = statistics.median(times)
    spread = statistics.median(abs(time - middle) for time in times)
    # a median of n times varies by 1.25 sigma / sqrt(n), sigma being 1.48 spreads; three of that
    allowed = max(_STABLE * middle, 3 * 1.25 * 1.48 * spread / math.sqrt(count))
    return lambda median: abs(median - middle) <= allowed


def nearest_rank(times: Sequence[float], part: float) -> float:
    """Return the smallest time that at least `part` (above 0, below 1) of them do not exceed.

    Raises ValueError without times.
    """
    if not times:
        raise ValueError("a percentile needs times")
    return sorted(times)[math.ceil(part * len(times)) - 1]


def percentile(times: Sequence[float], part: float) -> Percentile:
    """Return `nearest_rank` with its confidence interval. Raises ValueError without times."""
    ordered, count = sorted(times), len(times)
    value = nearest_rank(ordered, part)
    independent = max(1, round(count / _inflation([time > value for time in times])))
    tail = (1 - _CONFIDENCE) / 2
    # of so many times, the fewest and most below the percentile
    low, high = (_binomial_quantile(independent, part, p) for p in (tail, 1 - tail))
    first = math.floor(low * count / independent) - 1
    last = math.ceil(high * count / independent)
    return Percentile(
        value, ordered[first] if first >= 0 else None, ordered[last] if last < count else None
    )


def _inflation(exceeds: Sequence[bool]) -> float:
    """Return how many correlated times count as one, by how much the means of batches differ."""
    mean, size = sum(exceeds) / len(exceeds), len(exceeds) // _BATCHES
    variance = mean * (1 - mean)
    if size < 2 or not variance:
        return 1.0
    batches = (exceeds[start : start + size] for start in range(0, size * _BATCHES, size))
    return max(1.0, size * statistics.variance(sum(batch) / size for batch in batches) / variance)


def _binomial_quantile(count: int, part: float, probability: float) -> int:
    """Return the least k of which at most k of `count` succeed with at least `probability`."""
    below, log = 0.0, count * math.log1p(-part)
    for number in range(count):
        below += math.exp(log)
        if below >= probability:
            return number
        log += math.log((count - number) * part / ((number + 1) * (1 - part)))
    return count
