"""How much figures differ from run to run, and how often a difference is no more than that (pure).

There are few runs, so that a plain bootstrap of their medians knows nothing of noise: two numbers
resampled are two numbers. Here it draws from what earlier runs say of noise, and is computed to its
limit: the exact distribution of the difference of two medians. Noise has two parts. Most runs
differ as a Student t does, on the scale of the case. Its own earlier runs tell that scale, or those
of its group where it has few. And a few of a hundred runs lie anywhere: another clock, a hot
device. So a single run proves nothing, however far off it is, and neither does a single run to
compare with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Whole: TypeAlias = NDArray[np.int64]

# Learned from one half of the models of a public history of 2,500 reruns; what they come to on the
# other half is in docs/results.md.
_ANYWHERE: Final = 0.0125
_TYPICAL_STEP: Final = 1.368
"""The median of the difference of two runs, by the scale of the t distribution of one."""
SMALLEST_SCALE: Final = 0.005
# the scale of a case weighs as much as it has steps, that of its group as much as this
_GROUP_WEIGHS: Final = 4
_FEWEST_STEPS: Final = 3
_FEWEST_GROUP_STEPS: Final = 20
_AGREES: Final = 3.0
_PART_OF_THE_WAY: Final = 3.0
_INTERVAL: Final = 0.05
_DISTANCES: Final = np.geomspace(0.01, 1e5, 200)


def false_discoveries(p: Array) -> Array:
    """For each p the rate of false discoveries among all p up to it (Benjamini-Hochberg)."""
    order = np.argsort(p)
    adjusted = p[order] * len(p) / np.arange(1, len(p) + 1)
    found = np.empty(len(p))
    found[order] = np.minimum(1, np.minimum.accumulate(adjusted[::-1])[::-1])
    return found


def counts(values: Array) -> Whole:
    """How many there are in each row."""
    return np.asarray(np.isfinite(values).sum(axis=1))


def ranked(values: Array, *, high: bool) -> Array:
    """The median of each row; of an even number the lower or the `high` one of the middle two."""
    at = (counts(values) - (not high)) // 2  # of none, -1: the last is nan, as all are
    return np.asarray(np.take_along_axis(np.sort(values, axis=1), at[:, None], axis=1)[:, 0])


def median(values: Array) -> Array:
    """The median of each row; nan of none."""
    return (ranked(values, high=False) + ranked(values, high=True)) / 2


def resolution(logs: Array, known_to: Array) -> Array:
    """The least noise of each row, of which a figure is known to a step in its own unit."""
    return np.asarray(np.fmax(SMALLEST_SCALE, known_to * np.exp(-median(logs))))


def scales(base: Array, new: Array, group: Whole, floor: Array) -> tuple[Array, Mask]:
    """The scale of the noise of each row of logarithms, and whether enough is known to say so.

    It is made of the steps from run to run, without the one from base to new: their median, so
    that a few changes in earlier runs do not count. `floor` is the least of each row.
    """
    steps = np.hstack([_steps(base), _steps(new)])
    known = counts(steps)
    raw = np.log(np.fmax(median(steps) / _TYPICAL_STEP, floor))
    told = np.bincount(group, known)
    of_group = np.zeros(len(told))
    for at in np.flatnonzero(told):
        of_group[at] = np.median(raw[(group == at) & (known > 0)])
    sums = known * raw + _GROUP_WEIGHS * of_group[group]
    found = np.exp(sums / (known + _GROUP_WEIGHS))
    enough = (known >= _FEWEST_STEPS) | (told[group] >= _FEWEST_GROUP_STEPS)
    return np.fmax(found, floor), enough


def _steps(values: Array) -> Array:
    """From each run to the next that there is, as sizes; nan for the first."""
    before = np.hstack([np.full((len(values), 1), np.nan), _filled(values)[:, :-1]])
    return np.asarray(np.abs(values - before))


def _filled(values: Array) -> Array:
    """The last run that there is at each place, this one included."""
    if np.isfinite(values).all():
        return values
    last = values.copy()
    for at in range(1, values.shape[1]):
        last[:, at] = np.where(np.isfinite(values[:, at]), values[:, at], last[:, at - 1])
    return last


def level(base: Array, new: Array, scale: Array, most: int) -> Array:
    """The last runs of the base that agree with its very last run; nan for all others.

    They show that the last run was not the odd one. So it is enough if they are nearer to it than a
    part of the way to the new runs.
    """
    last = _filled(base)[:, -1]
    near = np.fmax(_AGREES * scale, np.abs(median(new) - last) / _PART_OF_THE_WAY)
    agrees = np.abs(base - last[:, None]) <= near[:, None]
    later = np.cumsum(np.isfinite(base)[:, ::-1], axis=1)[:, ::-1]
    return np.where(agrees & (later <= most), base, np.nan)


def chance(distance: Array, base: Whole, new: Whole) -> Array:
    """How often noise alone takes the medians so far apart, in scales; 1 where there are no runs.

    The distance is that of the nearer ones of the middle runs: what a rerun confirms.
    """
    found = np.ones(len(distance))
    for one, other, alike in _alike(base, new):
        found[alike] = np.interp(distance[alike], _DISTANCES, _two_sided(one, other), left=1.0)
    return found


def half_width(base: Whole, new: Whole) -> Array:
    """How far to either side, in scales, the difference of two medians may lie (95 %)."""
    found = np.full(len(base), np.inf)
    for one, other, alike in _alike(base, new):
        found[alike] = _width(one, other)
    return found


@cache
def told_from(runs: int, p: float) -> float:
    """How far apart, in scales, medians of so many runs on either side must lie to be told."""
    unlikely = float(_DISTANCES[np.argmax(_two_sided(runs, runs) <= p)])
    return max(unlikely, _width(runs, runs))


def _alike(base: Whole, new: Whole) -> Iterator[tuple[int, int, Mask]]:
    """Each pair of numbers of runs, and the rows that have it; none of no runs."""
    for one, other in {*zip(base.tolist(), new.tolist(), strict=True)}:
        if one and other:
            yield one, other, (base == one) & (new == other)


@cache
def _two_sided(base: int, new: int) -> Array:
    return 2 * _beyond(base, base // 2 + 1, new, (new + 1) // 2)


@cache
def _width(base: int, new: int) -> float:
    ranks = (base + 1) // 2, (new + 1) // 2
    both = _beyond(base, ranks[0], new, ranks[1]) + _beyond(new, ranks[1], base, ranks[0])
    return float(_DISTANCES[np.argmax(both <= _INTERVAL)])


def _beyond(base: int, base_rank: int, new: int, new_rank: int) -> Array:
    """How often noise takes one order statistic so far above another, for each distance."""
    logistic = 1 / (1 + np.exp(-np.linspace(-30, 30, 601)))
    weights = logistic * logistic[::-1]
    low, high = np.zeros_like(logistic), np.ones_like(logistic)
    for _ in range(60):  # the quantile of the order statistic: halves find it to the last bit
        middle = (low + high) / 2
        is_below = _at_least(base_rank, base, middle) < logistic
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    inside = (low - _ANYWHERE / 2) / (1 - _ANYWHERE)
    quantile = np.copysign(1e9, inside)
    usual = np.abs(inside - 0.5) < 0.5
    likely = inside[usual]
    quantile[usual] = (2 * likely - 1) / np.sqrt(2 * likely * (1 - likely))
    apart = _DISTANCES[:, None] + quantile
    # as noise, Student's t has two degrees of freedom: its distribution needs no special function
    nearer = _ANYWHERE / 2 + (1 - _ANYWHERE) * (1 + apart / np.hypot(apart, math.sqrt(2))) / 2
    found: Array = (1 - _at_least(new_rank, new, nearer)) @ (weights / weights.sum())
    return found


def _at_least(rank: int, runs: int, chance: Array) -> Array:
    """How often at least `rank` of so many runs do what each does by this chance."""
    ways = (
        math.comb(runs, n) * chance**n * (1 - chance) ** (runs - n) for n in range(rank, runs + 1)
    )
    return np.asarray(sum(ways))
