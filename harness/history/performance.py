"""Whether a figure of a case changed, or is as noisy as it always was (pure).

What a run measured is one sample, a median of what its process measured: samples within a process
are no runs.

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
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from harness.core.outgoing_text import counted
from harness.diagnosis.error import Part
from harness.history.attempts import (
    FIGURES,
    SURROUNDINGS,
    Attempt,
    attempts_by_name,
    finder,
    known_to,
)
from harness.history.surroundings import differences
from harness.results.record import as_json

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


RunFigures: TypeAlias = Array | Sequence[Sequence[float | None]]
SpeedVerdict = Literal["slower", "faster", "unsure", "same"]
"""For a size of memory, slower means more and faster means less."""
EFFECT: Final = 0.1
"""Changes by less are not told, if nothing else is said."""
MOST_RUNS: Final = 5
"""So many runs of either side are looked at, the last ones."""

_ALARM: Final = 0.003
_SUSPECT: Final = 0.03
_FALSE_DISCOVERIES: Final = 0.005
_FEWEST_CASES: Final = 8
_TOGETHER: Final = 0.75
_LARGEST: Final = 600.0
_SIZES: Final = (1e-100, 1e100)
"""What is outside of these is no measurement in any unit, and its ratios could not be told."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is known of a change. `ratio` is new by base, `low` to `high` where it lies (95 %).

    `more_new` and `more_base` say how many more runs of either side, like those there are, should
    settle it. They are None if no earlier runs tell its noise, or five of either side would not do.
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
    """Whether it is unsure, and would be a change if more runs said the same."""
    tells: float | None = None
    """The smallest ratio that five runs of either side tell from its noise; None: not known."""

    @property
    def size(self) -> float:
        """How many times more or less it is."""
        return max(self.ratio, 1 / self.ratio)


def interval(change: Any) -> str:
    """Where the ratio of a change lies, and by how many runs."""
    runs = f"{change.base_runs} + {counted(change.new_runs, 'run')}"
    high = np.inf if change.high is None else change.high
    return f"{change.low or 0:.3g} to {high:.3g}, {runs}"


@dataclass(frozen=True, slots=True)
class JudgedSpeed:
    """`changes` in the order of the rows, each without what its group has in common.

    `common` has that of each group, in the order of their first rows; None where there is nothing.
    """

    changes: Sequence[Change]
    common: Sequence[Change | None]

    @property
    def all(self) -> list[Change]:
        """What whole groups have in common, and each row."""
        return [*(one for one in self.common if one is not None), *self.changes]


def judge(
    names: Sequence[Any],
    groups: Sequence[Hashable],
    base: RunFigures,
    new: RunFigures,
    effect: float = EFFECT,
    known_to: Sequence[float] | None = None,
) -> JudgedSpeed:
    """Judges changes of at least `effect` (0.1 is 10 %) of figures, one in each row.

    `base` and `new` have the runs in their columns, the oldest first; nan or None where a run has
    not got a figure. `known_to` is the smallest step of each row's figures in their own unit, 1 of
    whole microseconds; None if they are as fine as numbers are. So units make no difference. What
    moves together in a group is told once. Of a hundred unchanged cases at most one is called
    slower or faster, however many runs there are. If no case changed, at most one comparison in 200
    calls any case so, however many cases there are.
    """
    if not names:
        return JudgedSpeed((), ())
    base, new = _logs(base), _logs(new)
    known_groups = {name: at for at, name in enumerate(dict.fromkeys(groups))}
    group = np.array([known_groups[one] for one in groups])
    least = resolution(np.hstack([base, new]), np.array(known_to or [0.0] * len(names)))
    scale, known = scales(base, new, group, least)
    moved, lines = new.copy(), {}
    by_group = np.argsort(group, kind="stable")
    for at, rows in enumerate(np.split(by_group, np.flatnonzero(np.diff(group[by_group])) + 1)):
        of_base = median(level(base[rows], new[rows], scale[rows], MOST_RUNS))[:, None]
        shifts = median(new[rows] - of_base)
        if _together(shifts, effect):
            lines[at] = median(np.hstack([base[rows], new[rows]]).T - of_base.T)
            moved[rows] -= lines[at][base.shape[1] :]
    told = list(known_groups)
    shared = _of_lines([told[at] for at in lines], list(lines.values()), base.shape[1], effect)
    return JudgedSpeed(
        _changes(names, base, moved, scale, known, effect),
        [shared.get(name) for name in told],
    )


def least_told(runs: Sequence[Sequence[float]], known_to: float = 0.0) -> float | None:
    """The smallest ratio that five runs of either side tell from the noise of the first row.

    Each row has runs between which nothing changed, so that it tells noise, too. None if there are
    too few.
    """
    columns = max(map(len, runs), default=0)
    rows = [[*row, *[None] * (columns - len(row))] for row in runs]
    nothing: list[list[float | None]] = [[None]] * len(rows)
    names, steps = range(len(rows)), [known_to] * len(rows)
    changes = judge(names, [""] * len(rows), rows, nothing, 0.0, steps).changes
    return changes[0].tells if changes else None


def _logs(values: RunFigures) -> Array:
    """Logarithms; nan of what is no size at all."""
    sizes = np.asarray(values, dtype=np.float64)
    sizes = sizes if sizes.size else np.full((len(values), 1), np.nan)
    with np.errstate(all="ignore"):
        inside = (sizes >= _SIZES[0]) & (sizes <= _SIZES[1])
        return np.asarray(np.log(np.where(inside, sizes, np.nan)))


def _together(shifts: Array, effect: float) -> bool:
    """Whether most cases of a group moved to one side, and about as far."""
    moved = shifts[np.isfinite(shifts)]
    if len(moved) < _FEWEST_CASES:
        return False
    middle = float(np.median(moved))
    along = np.mean(moved * np.sign(middle) > abs(middle) / 2)
    return abs(middle) > np.log1p(effect) / 2 and bool(along >= _TOGETHER)


def _of_lines(
    names: Sequence[Hashable], lines: Sequence[Array], base_runs: int, effect: float
) -> dict[Hashable, Change]:
    """What whole groups did from run to run, each judged by its own earlier runs."""
    if not names:
        return {}
    base, new = np.split(np.array(lines), [base_runs], axis=1)
    floor = np.full(len(names), SMALLEST_SCALE)
    scale, known = scales(base, new, np.arange(len(names)), floor)
    return {one.name: one for one in _changes(names, base, new, scale, known, effect)}


def _changes(
    names: Sequence[Hashable],
    base: Array,
    new: Array,
    scale: Array,
    known: Mask,
    effect: float,
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
        # what p has to be for this one to be among those that are told
        needed[judged] = np.minimum(_ALARM, _FALSE_DISCOVERIES * p[judged] / adjusted)
    far = np.abs(shift) >= np.log1p(effect)
    width = half_width(runs, new_runs) * scale
    clear = far & (np.abs(shift) > width)
    alarm = judged & clear & (p <= needed)
    same = judged & ~alarm & (np.abs(shift) + width < np.log1p(effect))
    unsure = judged & ~alarm & ~same
    more_new, more_base = _more(unsure, far, shift, apart, scale, runs, new_runs, needed, effect)
    settles = judged & (more_new >= 0)
    suspect = unsure & clear & settles & (p <= _SUSPECT)
    found = []
    least = np.fmax(np.log1p(effect), scale * told_from(MOST_RUNS, _ALARM))
    tells = np.exp(np.fmin(least, _LARGEST))
    sides = np.exp(np.array([shift, shift - width, shift + width])).T
    for at, side in enumerate(sides):
        ratio, low, high = side.tolist()
        if np.isinf(width[at]):
            low, high = 0.0, np.inf  # of most cases of most runs: shared
        verdict: SpeedVerdict = "same" if same[at] else "unsure"
        if alarm[at]:
            verdict = "slower" if shift[at] > 0 else "faster"
        found.append(
            Change(
                name=names[at],
                verdict=verdict,
                ratio=ratio,
                low=low,
                high=high,
                p=float(p[at]) if judged[at] else 1.0,
                base_runs=int(runs[at]),
                new_runs=int(new_runs[at]),
                more_new=int(more_new[at]) if settles[at] else None,
                more_base=int(more_base[at]) if settles[at] else None,
                suspect=bool(suspect[at]),
                tells=float(tells[at]) if known[at] else None,
            )
        )
    return found


def _borne_out(older: Array, new: Array, runs: Whole, effect: float) -> Whole:
    """How many more runs, or fewer, bear it out because of earlier runs at another level.

    Were one or two runs of the base the odd ones, new runs would be back where others were before.
    """
    older = older[:, -MOST_RUNS:]
    known = counts(older) > 1
    away = np.abs(median(new) - median(older)) > np.log1p(effect) / 2
    return np.where(known & away & (runs == 1), 1, np.where(known & ~away & (runs == 2), -1, 0))


def _more(
    unsure: Mask,
    far: Mask,
    shift: Array,
    apart: Array,
    scale: Array,
    runs: Whole,
    new_runs: Whole,
    needed: Array,
    effect: float,
) -> tuple[Whole, Whole]:
    """The fewest more runs, new and of the base, that settle it; 0 if sure, -1 if too many."""
    more = np.tile(np.where(unsure, -1, 0), (2, 1))
    for new, base in sorted(
        product(range(MOST_RUNS), repeat=2), key=lambda one: (sum(one), one[1])
    ):
        fits = (runs + base <= MOST_RUNS) & (new_runs + new <= MOST_RUNS)
        left = np.flatnonzero((more[0] < 0) & fits)
        of_base, of_new = runs[left] + base, new_runs[left] + new
        told = chance(apart[left], of_base, of_new) <= needed[left]
        width = half_width(of_base, of_new) * scale[left]
        told &= np.abs(shift[left]) > width
        settles = np.where(far[left], told, abs(shift[left]) + width < np.log1p(effect))
        more[:, left[settles]] = [[new], [base]]
    return more[0], more[1]


_ALARMS: Final[tuple[SpeedVerdict, ...]] = ("slower", "faster")
# a step that a later run bears out is told then, if it is no older than this
_STEPS_BACK: Final = 2
_Known = TypeVar("_Known", Change, Change | None)


LimitOrNull = Annotated[float | None, BeforeValidator(as_json)]
"""Null where there is none."""


class Figure(NamedTuple):
    """A figure of a case, or of all cases of a device, where `case` is None."""

    device: str
    case: str | None
    figure: str


class SpeedRow(Part):
    """A figure of a case, or of all cases of a device (`case` is null), that changed or may have.

    `ratio` is new by base, and lies between `low` and `high` (null: there is no bound). `more_new`
    and `more_base` say how many more runs should settle it; null if not known. `tells` is the
    smallest ratio that five runs of either side tell from its noise. `surroundings` are those that
    differ between the last run of the base and NEW, in words.
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
    more_new: int | None
    more_base: int | None
    tells: float | None = None
    surroundings: tuple[str, ...] = ()


class SpeedCompared(Part):
    """Speed and memory of what passes in both runs; listed is what changed by `effect` or more, of
    whole devices before cases, the furthest first.

    `base_runs` and `new_runs` are how many runs were looked at. `same` and `unsure` are numbers of
    figures; of the unsure, `suspects` may well be changes, and of `hidden` noise hides whether they
    are. Of `unknown` nobody knows how many more runs would settle it.
    """

    effect: float
    base_runs: int
    new_runs: int
    slower: tuple[SpeedRow, ...]
    faster: tuple[SpeedRow, ...]
    suspects: tuple[SpeedRow, ...]
    hidden: tuple[SpeedRow, ...] = ()
    same: int
    unsure: int
    unknown: int


def alike(shape: type[Part], *sources: object) -> dict[str, Any]:
    """The values that `sources` have for a shape's fields; of several the last counts."""
    return {
        name: getattr(source, name)
        for source in sources
        for name in shape.model_fields
        if hasattr(source, name)
    }


def listed_as(change: Change, effect: float) -> str:
    """In which list of `SpeedCompared` a change is; empty if it is only counted."""
    if change.verdict != "unsure":
        return change.verdict if _is_told(change) else ""
    if change.suspect:
        return "suspects"
    return "hidden" if change.tells is not None and change.size >= 1 + effect else ""


def judge_speed(
    befores: Sequence[Attempt],
    afters: Sequence[Attempt],
    earlier: Iterable[Sequence[Attempt]] = (),
    between: Iterable[Sequence[Attempt]] = (),
    *,
    effect: float = EFFECT,
    late: bool = False,
) -> SpeedCompared:
    """What became of speed and memory of the same cases in BASE and NEW, which passed in both.

    `earlier` are runs before BASE, `between` those after it that are like NEW, the oldest first;
    each is read once. `late` also tells a change that came with BASE, or with a run before it, if
    only NEW bears it out: one run alone never does.
    """
    base, around = [], deque[list[Any]](maxlen=_STEPS_BACK)
    for run in earlier:
        met = _met(befores, run)
        base.append(_sampled(met))
        around.append(_around(met))
    base.append(_sampled(befores))
    new = [*(_sampled(_met(afters, run)) for run in between), _sampled(afters)]
    values = np.stack([*base, *new], axis=2)
    measured = [np.isfinite(part).any(axis=2) for part in np.split(values, [len(base)], axis=2)]
    cases, figures = np.nonzero(measured[0] & measured[1])
    runs = values[cases, figures]
    base_runs, new_runs = len(base), len(new)
    del base, new, values, measured
    names = [
        Figure(one.device or "", one.case, FIGURES[figure])
        for one, figure in zip((afters[row] for row in cases.tolist()), figures, strict=True)
    ]
    of_all = cache(lambda device, figure: Figure(device, None, figure))
    groups = [of_all(one.device, one.figure) for one in names]
    steps = [known_to(one.figure) for one in names]

    def split(at: int, upto: int | None = None) -> JudgedSpeed:
        return judge(names, groups, runs[:, :at], runs[:, at:upto], effect, steps)

    judged = split(base_runs)
    first_new: dict[Any, int] = {}
    if late:
        for at in range(base_runs - 1, 0, -1)[:_STEPS_BACK]:
            earlier_split = split(at)
            if any(map(_is_told, earlier_split.all)):
                known = set(map(id, judged.all))
                judged = _later(judged, earlier_split, split(at, -1))
                first_new |= {one.name: at for one in judged.all if id(one) not in known}
    sides, of_new = [*around, _around(befores)], _around(afters)
    rows_of: dict[Any, list[Any]] = {}
    for row, group in zip(cases, groups, strict=True):
        rows_of.setdefault(group, []).append(row)
    alone = ((one, [row]) for one, row in zip(judged.changes, cases, strict=True))
    shared = ((one, rows_of[one.name]) for one in judged.common if one is not None)
    found = [one for one in chain(shared, alone) if listed_as(one[0], effect)]
    listed: dict[str, list[SpeedRow]] = {"slower": [], "faster": [], "suspects": [], "hidden": []}
    for change, rows in sorted(found, key=lambda one: _order(one[0])):
        name = listed_as(change, effect)
        of_base = sides[first_new.get(change.name, base_runs) - base_runs - 1]
        both = ([side[row] for row in rows] for side in (of_base, of_new))
        fields = alike(SpeedRow, change.name, change)
        fields["surroundings"] = tuple(differences(*both)) if name != "hidden" else ()
        listed[name].append(SpeedRow(**fields))
    unsure = [one for one in judged.all if one.verdict == "unsure"]
    return SpeedCompared(
        effect=effect,
        base_runs=base_runs,
        new_runs=new_runs,
        same=sum(one.verdict == "same" for one in judged.all),
        unsure=len(unsure),
        unknown=sum(one.more_new is None for one in unsure),
        **{name: tuple(rows) for name, rows in listed.items()},
    )


def _order(change: Change) -> tuple[bool, float]:
    return change.name.case is not None, -change.size


def _met(cases: Sequence[Attempt], run: Sequence[Attempt]) -> list[Attempt | None]:
    """The cases as they ended in a run."""
    find = finder(attempts_by_name(run))
    return [met.last if (met := find(case)) else None for case in cases]


def _around(found: Sequence[Attempt | None]) -> list[Mapping[str, Any]]:
    said = (one.measurements.get(SURROUNDINGS) if one else None for one in found)
    unknown: Mapping[str, Any] = {}
    return [one if isinstance(one, Mapping) else unknown for one in said]


def _sampled(found: Sequence[Attempt | None]) -> Array:
    sampled = np.full((len(found), len(FIGURES)), np.nan)
    for row, one in zip(sampled, found, strict=True):
        if one is not None and one.outcome == "passed":
            row[:] = [one.figures.get(figure, np.nan) for figure in FIGURES]
    return sampled


def _later(judged: JudgedSpeed, earlier: JudgedSpeed, known: JudgedSpeed) -> JudgedSpeed:
    """What is told, and what came before BASE and was not told before NEW."""
    changes = map(_first_told, judged.changes, earlier.changes, known.changes)
    common = map(_first_told, judged.common, earlier.common, known.common)
    return JudgedSpeed(list(changes), list(common))


def _first_told(now: _Known, earlier: _Known, known: _Known) -> _Known:
    """The earlier change where NEW is the first run to bear it out, and nothing else is told."""
    return earlier if _is_told(earlier) and not _is_told(known) and not _is_told(now) else now


def _is_told(change: Change | None) -> bool:
    return change is not None and change.verdict in _ALARMS
