"""Whether a figure of a case changed, or is as noisy as it always was (pure).

What a run measured is one sample, a median of what its process measured: samples within a process
are no runs. `noise.py` tells how far runs are apart when nothing changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from harness.answers.history.noise import (
    SMALLEST_SCALE,
    Array,
    Mask,
    Whole,
    chance,
    counts,
    false_discoveries,
    half_width,
    level,
    median,
    ranked,
    resolution,
    scales,
    told_from,
)
from harness.ground.errors.outgoing_text import counted

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
