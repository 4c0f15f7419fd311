"""Tests of figures of cases for changes beyond their usual noise (pure).

A run is one sample, the median of what its process measured: samples within a process are not
independent.

There are few runs, so that a plain bootstrap of their medians says nothing about noise: two numbers
resampled are two numbers. Instead it draws from the noise of earlier runs, and is computed in the
limit: the exact distribution of the difference of two medians. Noise has two parts. Most runs
differ as a Student t does, on the scale of the case, which is estimated from its own earlier runs,
or from those of its group where it has few. And a few of a hundred runs lie anywhere: another
clock, a hot device. So a single run proves nothing, however far off it is, and neither does a
single run to compare with.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from harness.core.json_record import Part
from harness.core.outgoing_text import counted
from harness.history.attempts import (
    FIGURES,
    SURROUNDINGS,
    Attempt,
    attempts_by_name,
    finder,
    resolution_of,
)
from harness.history.environment_differences import differences
from harness.results.record import as_json

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Whole: TypeAlias = NDArray[np.int64]

# Fitted to one half of the models of a public history of 2,500 reruns;
# docs/explanation/concepts.md has the results for the other half.
_ANYWHERE: Final = 0.0125
_TYPICAL_STEP: Final = 1.368
"""The median difference of two runs, relative to the scale of the t distribution of one."""
SMALLEST_SCALE: Final = 0.005
# the weight of the scale of a group; that of a case is its number of steps
_GROUP_WEIGHS: Final = 4
_FEWEST_STEPS: Final = 3
_FEWEST_GROUP_STEPS: Final = 20
_AGREES: Final = 3.0
_PART_OF_THE_WAY: Final = 3.0
_INTERVAL: Final = 0.05
_DISTANCES: Final = np.geomspace(0.01, 1e5, 200)


def false_discoveries(p: Array) -> Array:
    """Return for each p the rate of false discoveries among all p up to it (Benjamini-Hochberg)."""
    order = np.argsort(p)
    adjusted = p[order] * len(p) / np.arange(1, len(p) + 1)
    rates = np.empty(len(p))
    rates[order] = np.minimum(1, np.minimum.accumulate(adjusted[::-1])[::-1])
    return rates


def counts(values: Array) -> Whole:
    """Return the number of values in each row."""
    return np.asarray(np.isfinite(values).sum(axis=1))


def ranked(values: Array, *, high: bool) -> Array:
    """Return the median of each row; of an even number the lower or higher of the middle two."""
    index = (counts(values) - (not high)) // 2  # -1 without values: the last is nan, as all are
    return np.asarray(np.take_along_axis(np.sort(values, axis=1), index[:, None], axis=1)[:, 0])


def median(values: Array) -> Array:
    """Return the median of each row; nan without values."""
    return (ranked(values, high=False) + ranked(values, high=True)) / 2


def resolution(logs: Array, steps: Array) -> Array:
    """Return the least noise of each row, whose figure is read in `steps` of its own unit."""
    return np.asarray(np.fmax(SMALLEST_SCALE, steps * np.exp(-median(logs))))


def scales(base: Array, new: Array, group: Whole, floor: Array) -> tuple[Array, Mask]:
    """Return the scale of the noise of each row of logarithms, and whether enough runs show it.

    It is the median of the steps from run to run, without the one from base to new, so that a few
    changes in earlier runs do not count. `floor` is the least scale of each row.
    """
    steps = np.hstack([_steps(base), _steps(new)])
    known = counts(steps)
    raw = np.log(np.fmax(median(steps) / _TYPICAL_STEP, floor))
    group_steps = np.bincount(group, known)
    of_group = np.zeros(len(group_steps))
    for index in np.flatnonzero(group_steps):
        of_group[index] = np.median(raw[(group == index) & (known > 0)])
    sums = known * raw + _GROUP_WEIGHS * of_group[group]
    estimate = np.exp(sums / (known + _GROUP_WEIGHS))
    enough = (known >= _FEWEST_STEPS) | (group_steps[group] >= _FEWEST_GROUP_STEPS)
    return np.fmax(estimate, floor), enough


def _steps(values: Array) -> Array:
    """Return the absolute difference of each run from the one before; nan for the first."""
    before = np.hstack([np.full((len(values), 1), np.nan), _filled(values)[:, :-1]])
    return np.asarray(np.abs(values - before))


def _filled(values: Array) -> Array:
    """Replace missing values by the last ones before them."""
    if np.isfinite(values).all():
        return values
    last = values.copy()
    for i in range(1, values.shape[1]):
        last[:, i] = np.where(np.isfinite(values[:, i]), values[:, i], last[:, i - 1])
    return last


def level(base: Array, new: Array, scale: Array, most: int) -> Array:
    """Return the last runs of the base that agree with its very last run; nan for all others.

    They show that the last run is no outlier. For that it is enough if they are nearer to it than
    a third of the way to the new runs.
    """
    last = _filled(base)[:, -1]
    near = np.fmax(_AGREES * scale, np.abs(median(new) - last) / _PART_OF_THE_WAY)
    agrees = np.abs(base - last[:, None]) <= near[:, None]
    later = np.cumsum(np.isfinite(base)[:, ::-1], axis=1)[:, ::-1]
    return np.where(agrees & (later <= most), base, np.nan)


def chance(distance: Array, base: Whole, new: Whole) -> Array:
    """Return how often noise alone separates medians so far, in scales; 1 where there are no runs.

    Of an even number of runs, the nearer ones of the middle runs count: a rerun confirms these.
    """
    p = np.ones(len(distance))
    for base_runs, new_runs, alike in _alike(base, new):
        p[alike] = np.interp(distance[alike], _DISTANCES, _two_sided(base_runs, new_runs), left=1.0)
    return p


def half_width(base: Whole, new: Whole) -> Array:
    """Return half the width, in scales, of the 95 % interval of the difference of two medians."""
    widths = np.full(len(base), np.inf)
    for base_runs, new_runs, alike in _alike(base, new):
        widths[alike] = _width(base_runs, new_runs)
    return widths


@cache
def detectable_distance(runs: int, p: float) -> float:
    """Return the least distance, in scales, at which medians of so many runs differ for sure."""
    unlikely = float(_DISTANCES[np.argmax(_two_sided(runs, runs) <= p)])
    return max(unlikely, _width(runs, runs))


def _alike(base: Whole, new: Whole) -> Iterator[tuple[int, int, Mask]]:
    """Yield each pair of positive numbers of runs, and the rows that have it."""
    for base_runs, new_runs in {*zip(base.tolist(), new.tolist(), strict=True)}:
        if base_runs and new_runs:
            yield base_runs, new_runs, (base == base_runs) & (new == new_runs)


@cache
def _two_sided(base: int, new: int) -> Array:
    return 2 * _beyond(base, base // 2 + 1, new, (new + 1) // 2)


@cache
def _width(base: int, new: int) -> float:
    ranks = (base + 1) // 2, (new + 1) // 2
    both = _beyond(base, ranks[0], new, ranks[1]) + _beyond(new, ranks[1], base, ranks[0])
    return float(_DISTANCES[np.argmax(both <= _INTERVAL)])


def _beyond(base: int, base_rank: int, new: int, new_rank: int) -> Array:
    """Return the chance that noise alone takes an order statistic so far above another, for each
    distance."""
    logistic = 1 / (1 + np.exp(-np.linspace(-30, 30, 601)))
    weights = logistic * logistic[::-1]
    low, high = np.zeros_like(logistic), np.ones_like(logistic)
    for _ in range(60):  # the quantile of the order statistic, bisected to the last bit
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
    p: Array = (1 - _at_least(new_rank, new, nearer)) @ (weights / weights.sum())
    return p


def _at_least(rank: int, runs: int, chance: Array) -> Array:
    """Return the chance that at least `rank` of so many runs hit, of which each has `chance`."""
    ways = (
        math.comb(runs, n) * chance**n * (1 - chance) ** (runs - n) for n in range(rank, runs + 1)
    )
    return np.asarray(sum(ways))


RunFigures: TypeAlias = Array | Sequence[Sequence[float | None]]
SpeedVerdict = Literal["slower", "faster", "unsure", "same"]
"""For a size of memory, slower means more and faster means less."""
EFFECT: Final = 0.1
"""By default, smaller changes are not reported."""
MOST_RUNS: Final = 5
"""The number of last runs of either side that are compared."""

_ALARM: Final = 0.003
_SUSPECT: Final = 0.03
_FALSE_DISCOVERIES: Final = 0.005
_FEWEST_CASES: Final = 8
_TOGETHER: Final = 0.75
_LARGEST: Final = 600.0
_SIZES: Final = (1e-100, 1e100)
"""The bounds of measurements in any unit, whose ratios can still be computed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A possible change. `ratio` is new by base, `low` to `high` its 95 % interval.

    `more_new` and `more_base` are the numbers of more runs, like these, that should settle it.
    They are None if no earlier runs show its noise, or if five runs of either side would not do.
    """

    name: Any
    verdict: SpeedVerdict
    ratio: float
    low: float
    high: float
    p: float
    base_runs: int
    new_runs: int
    more_new: int | None = 0
    more_base: int | None = 0
    suspect: bool = False
    """True if it is unsure, but would be a change if more runs confirmed it."""
    tells: float | None = None
    """The smallest ratio that five runs of either side can detect; None if unknown."""

    @property
    def size(self) -> float:
        return max(self.ratio, 1 / self.ratio)


def interval(change: Any) -> str:
    """Return the interval of a change's ratio and its numbers of runs, in words."""
    runs = f"{change.base_runs} + {counted(change.new_runs, 'run')}"
    high = np.inf if change.high is None else change.high
    return f"{change.low or 0:.3g} to {high:.3g}, {runs}"


@dataclass(frozen=True, slots=True)
class JudgedSpeed:
    """The changes of rows, in order, each without the common change of its group.

    `common` has the common change of each group, in the order of their first rows, or None.
    """

    changes: Sequence[Change]
    common: Sequence[Change | None]

    @property
    def all(self) -> list[Change]:
        return [*(change for change in self.common if change is not None), *self.changes]


def judge(
    names: Sequence[Any],
    groups: Sequence[Hashable],
    base: RunFigures,
    new: RunFigures,
    effect: float = EFFECT,
    steps: Sequence[float] | None = None,
) -> JudgedSpeed:
    """Judge changes of at least `effect` (0.1 is 10 %) of figures, one in each row.

    `base` and `new` have the runs in their columns, the oldest first; nan or None where a run does
    not have the figure. `steps` has the smallest step of each row's figures in their own unit, as
    1 for whole microseconds; None if they are as fine as floats. So units make no difference. A
    common change of a group is reported once. Of a hundred unchanged cases at most one is called
    slower or faster, however many runs there are. If no case changed, at most one comparison in 200
    calls any case so, however many cases there are.
    """
    if not names:
        return JudgedSpeed((), ())
    base, new = _logs(base), _logs(new)
    known_groups = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    group = np.array([known_groups[name] for name in groups])
    least = resolution(np.hstack([base, new]), np.array(steps or [0.0] * len(names)))
    scale, known = scales(base, new, group, least)
    moved, lines = new.copy(), {}
    by_group = np.argsort(group, kind="stable")
    for i, rows in enumerate(np.split(by_group, np.flatnonzero(np.diff(group[by_group])) + 1)):
        of_base = median(level(base[rows], new[rows], scale[rows], MOST_RUNS))[:, None]
        shifts = median(new[rows] - of_base)
        if _together(shifts, effect):
            lines[i] = median(np.hstack([base[rows], new[rows]]).T - of_base.T)
            moved[rows] -= lines[i][base.shape[1] :]
    group_names = list(known_groups)
    shared = _of_lines([group_names[i] for i in lines], list(lines.values()), base.shape[1], effect)
    return JudgedSpeed(
        _changes(names, base, moved, scale, known, effect),
        [shared.get(name) for name in group_names],
    )


def _logs(values: RunFigures) -> Array:
    """Return logarithms; nan for values that are no sizes."""
    sizes = np.asarray(values, dtype=np.float64)
    sizes = sizes if sizes.size else np.full((len(values), 1), np.nan)
    with np.errstate(all="ignore"):
        inside = (sizes >= _SIZES[0]) & (sizes <= _SIZES[1])
        return np.asarray(np.log(np.where(inside, sizes, np.nan)))


def _together(shifts: Array, effect: float) -> bool:
    """Return whether most cases of a group moved to one side, and about equally far."""
    moved = shifts[np.isfinite(shifts)]
    if len(moved) < _FEWEST_CASES:
        return False
    middle = float(np.median(moved))
    along = np.mean(moved * np.sign(middle) > abs(middle) / 2)
    return abs(middle) > np.log1p(effect) / 2 and bool(along >= _TOGETHER)


def _of_lines(
    names: Sequence[Hashable], lines: Sequence[Array], base_runs: int, effect: float
) -> dict[Hashable, Change]:
    """Judge the common changes of groups, each by its own earlier runs."""
    if not names:
        return {}
    base, new = np.split(np.array(lines), [base_runs], axis=1)
    floor = np.full(len(names), SMALLEST_SCALE)
    scale, known = scales(base, new, np.arange(len(names)), floor)
    return {change.name: change for change in _changes(names, base, new, scale, known, effect)}


def _changes(
    names: Sequence[Hashable], base: Array, new: Array, scale: Array, known: Mask, effect: float
) -> list[Change]:
    last = new[:, -MOST_RUNS:]
    every, base = base, level(base, last, scale, MOST_RUNS)
    runs, new_runs = counts(base), counts(last)
    runs += _borne_out(np.where(np.isfinite(base), np.nan, every), last, runs, effect)
    shift = np.nan_to_num(median(last) - median(base))
    up = ranked(last, high=False) - ranked(base, high=True)
    down = ranked(base, high=False) - ranked(last, high=True)
    apart = np.nan_to_num(np.where(shift > 0, up, down) / scale)
    judged = known & (runs > 0) & (new_runs > 0)
    p = np.where(judged, chance(apart, runs, new_runs), 1.0)
    needed = np.full(len(p), _ALARM)
    if judged.any():
        adjusted = false_discoveries(p[judged])
        # the p below which this change would be reported
        needed[judged] = np.minimum(_ALARM, _FALSE_DISCOVERIES * p[judged] / adjusted)
    far = np.abs(shift) >= np.log1p(effect)
    width = half_width(runs, new_runs) * scale
    clear = far & (np.abs(shift) > width)
    alarm = judged & clear & (p <= needed)
    same = judged & ~alarm & (np.abs(shift) + width < np.log1p(effect))
    is_unsure = judged & ~alarm & ~same
    more_new, more_base = _more(is_unsure, far, shift, apart, scale, runs, new_runs, needed, effect)
    settles = judged & (more_new >= 0)
    suspect = is_unsure & clear & settles & (p <= _SUSPECT)
    changes = []
    least = np.fmax(np.log1p(effect), scale * detectable_distance(MOST_RUNS, _ALARM))
    detectable = np.exp(np.fmin(least, _LARGEST))
    sides = np.exp(np.array([shift, shift - width, shift + width])).T
    for row, side in enumerate(sides):
        ratio, low, high = side.tolist()
        if np.isinf(width[row]):
            low, high = 0.0, np.inf  # most cases of most runs: shared objects
        verdict: SpeedVerdict = "same" if same[row] else "unsure"
        if alarm[row]:
            verdict = "slower" if shift[row] > 0 else "faster"
        changes.append(
            Change(
                name=names[row],
                verdict=verdict,
                ratio=ratio,
                low=low,
                high=high,
                p=float(p[row]) if judged[row] else 1.0,
                base_runs=int(runs[row]),
                new_runs=int(new_runs[row]),
                more_new=int(more_new[row]) if settles[row] else None,
                more_base=int(more_base[row]) if settles[row] else None,
                suspect=bool(suspect[row]),
                tells=float(detectable[row]) if known[row] else None,
            )
        )
    return changes


def _borne_out(older: Array, new: Array, runs: Whole, effect: float) -> Whole:
    """Return the correction of the number of base runs by earlier runs at another level.

    If one or two runs of the base were outliers, new runs would be back at the level before.
    """
    older = older[:, -MOST_RUNS:]
    known = counts(older) > 1
    away = np.abs(median(new) - median(older)) > np.log1p(effect) / 2
    return np.where(known & away & (runs == 1), 1, np.where(known & ~away & (runs == 2), -1, 0))


def _more(
    is_unsure: Mask,
    far: Mask,
    shift: Array,
    apart: Array,
    scale: Array,
    runs: Whole,
    new_runs: Whole,
    needed: Array,
    effect: float,
) -> tuple[Whole, Whole]:
    """Return the fewest more runs, new and base, that settle it; 0 if sure, -1 if too many."""
    more = np.tile(np.where(is_unsure, -1, 0), (2, 1))
    for new, base in sorted(
        product(range(MOST_RUNS), repeat=2), key=lambda pair: (sum(pair), pair[1])
    ):
        fits = (runs + base <= MOST_RUNS) & (new_runs + new <= MOST_RUNS)
        rest = np.flatnonzero((more[0] < 0) & fits)
        of_base, of_new = runs[rest] + base, new_runs[rest] + new
        is_clear = chance(apart[rest], of_base, of_new) <= needed[rest]
        width = half_width(of_base, of_new) * scale[rest]
        is_clear &= np.abs(shift[rest]) > width
        settles = np.where(far[rest], is_clear, abs(shift[rest]) + width < np.log1p(effect))
        more[:, rest[settles]] = [[new], [base]]
    return more[0], more[1]


# the number of runs back to which a change is reported once a later run confirms it
_STEPS_BACK: Final = 2


LimitOrNull = Annotated[float | None, BeforeValidator(as_json)]
"""Null without a limit."""


class Figure(NamedTuple):
    """A figure of a case, or of all cases of a device if `case` is None."""

    device: str
    case: str | None
    figure: str


class SpeedRow(Part):
    """A figure of a case, or of all cases of a device (`case` is null), that changed or may have.

    `ratio` is new by base, and lies between `low` and `high` (null: there is no bound).
    `surroundings` are the differences in surroundings between the last run of the base and NEW, in
    words.
    """

    device: str
    case: str | None
    figure: str
    verdict: SpeedVerdict
    ratio: float
    low: LimitOrNull
    high: LimitOrNull
    p: float
    base_runs: int
    new_runs: int
    surroundings: tuple[str, ...] = ()


class SpeedCompared(Part):
    """Speed and memory of cases that pass in both runs. Changes by `effect` or more are listed:
    those of whole devices before those of cases, the largest first.

    `base_runs` and `new_runs` are the numbers of runs compared. `same` and `unsure` are numbers of
    figures; of the unsure, `suspects` may be changes, and of a number of others, `hidden`, noise
    hides whether they are.
    """

    effect: float
    base_runs: int
    new_runs: int
    slower: tuple[SpeedRow, ...]
    faster: tuple[SpeedRow, ...]
    suspects: tuple[SpeedRow, ...]
    hidden: int = 0
    same: int
    unsure: int


def alike(shape: type[Part], *sources: object) -> dict[str, Any]:
    """Return the values of the fields of `shape` that `sources` have; the last source wins."""
    return {
        name: getattr(source, name)
        for source in sources
        for name in shape.model_fields
        if hasattr(source, name)
    }


def _listed_as(change: Change) -> str:
    """Return the name of the list of `SpeedCompared` for a change; empty if it is only counted."""
    if change.verdict == "unsure":
        return "suspects" if change.suspect else ""
    return change.verdict if _is_alarm(change) else ""


def judge_speed(
    befores: Sequence[Attempt],
    afters: Sequence[Attempt],
    earlier: Iterable[Sequence[Attempt]] = (),
    between: Iterable[Sequence[Attempt]] = (),
    *,
    effect: float = EFFECT,
    late: bool = False,
) -> SpeedCompared:
    """Judge speed and memory of the same cases in BASE and NEW, which passed in both.

    `earlier` are runs before BASE, `between` those after it that are like NEW, the oldest first;
    each is read once. `late` also reports a change that came with BASE, or with a run before it,
    if NEW is the first to confirm it: one run alone never does.
    """
    base, base_surroundings = [], deque[list[Any]](maxlen=_STEPS_BACK)
    for run in earlier:
        attempts = _last_attempts(befores, run)
        base.append(_sampled(attempts))
        base_surroundings.append(_surroundings(attempts))
    base.append(_sampled(befores))
    new = [*(_sampled(_last_attempts(afters, run)) for run in between), _sampled(afters)]
    values = np.stack([*base, *new], axis=2)
    measured = [np.isfinite(part).any(axis=2) for part in np.split(values, [len(base)], axis=2)]
    cases, figures = np.nonzero(measured[0] & measured[1])
    runs = values[cases, figures]
    base_runs, new_runs = len(base), len(new)
    del base, new, values, measured
    names = [
        Figure(attempt.device or "", attempt.case, FIGURES[figure])
        for attempt, figure in zip((afters[row] for row in cases.tolist()), figures, strict=True)
    ]
    of_all = cache(lambda device, figure: Figure(device, None, figure))
    groups = [of_all(name.device, name.figure) for name in names]
    steps = [resolution_of(name.figure) for name in names]

    def split(start: int, stop: int | None = None) -> JudgedSpeed:
        return judge(names, groups, runs[:, :start], runs[:, start:stop], effect, steps)

    judged = split(base_runs)
    first_new: dict[Any, int] = {}
    if late:
        for first in range(base_runs - 1, 0, -1)[:_STEPS_BACK]:
            earlier_split = split(first)
            if any(map(_is_alarm, earlier_split.all)):
                ids = set(map(id, judged.all))
                judged = _later(judged, earlier_split, split(first, -1))
                first_new |= {change.name: first for change in judged.all if id(change) not in ids}
    sides, of_new = [*base_surroundings, _surroundings(befores)], _surroundings(afters)
    rows_of: dict[Any, list[Any]] = {}
    for row, group in zip(cases, groups, strict=True):
        rows_of.setdefault(group, []).append(row)
    alone = ((change, [row]) for change, row in zip(judged.changes, cases, strict=True))
    shared = ((change, rows_of[change.name]) for change in judged.common if change is not None)
    changes = [change for change in chain(shared, alone) if _listed_as(change[0])]
    listed: dict[str, list[SpeedRow]] = {"slower": [], "faster": [], "suspects": []}
    changes.sort(key=lambda entry: (entry[0].name.case is not None, -entry[0].size))
    for change, rows in changes:
        of_base = sides[first_new.get(change.name, base_runs) - base_runs - 1]
        both = ([side[row] for row in rows] for side in (of_base, of_new))
        fields = alike(SpeedRow, change.name, change)
        fields["surroundings"] = tuple(differences(*both))
        listed[_listed_as(change)].append(SpeedRow(**fields))
    unsure_changes = [change for change in judged.all if change.verdict == "unsure"]
    return SpeedCompared(
        effect=effect,
        base_runs=base_runs,
        new_runs=new_runs,
        same=sum(change.verdict == "same" for change in judged.all),
        unsure=len(unsure_changes),
        hidden=sum(
            not change.suspect and change.tells is not None and change.size >= 1 + effect
            for change in unsure_changes
        ),
        **{name: tuple(rows) for name, rows in listed.items()},
    )


def _last_attempts(cases: Sequence[Attempt], run: Sequence[Attempt]) -> list[Attempt | None]:
    find = finder(attempts_by_name(run))
    return [attempts.last if (attempts := find(case)) else None for case in cases]


def _surroundings(attempts: Sequence[Attempt | None]) -> list[Mapping[str, Any]]:
    values = (attempt.measurements.get(SURROUNDINGS) if attempt else None for attempt in attempts)
    unknown: Mapping[str, Any] = {}
    return [value if isinstance(value, Mapping) else unknown for value in values]


def _sampled(attempts: Sequence[Attempt | None]) -> Array:
    sampled = np.full((len(attempts), len(FIGURES)), np.nan)
    for row, attempt in zip(sampled, attempts, strict=True):
        if attempt is not None and attempt.outcome == "passed":
            row[:] = [attempt.figures.get(figure, np.nan) for figure in FIGURES]
    return sampled


def _later(judged: JudgedSpeed, earlier: JudgedSpeed, known: JudgedSpeed) -> JudgedSpeed:
    """Add the changes that came with BASE or before, and that NEW is the first to confirm."""

    def later(now: Any, then: Any, before: Any) -> Any:
        return now if not _is_alarm(then) or _is_alarm(before) or _is_alarm(now) else then

    return JudgedSpeed(
        [*map(later, judged.changes, earlier.changes, known.changes)],
        [*map(later, judged.common, earlier.common, known.common)],
    )


def _is_alarm(change: Change | None) -> bool:
    return change is not None and change.verdict in ("slower", "faster")
