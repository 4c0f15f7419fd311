"""Speed and memory of what passes in two runs, judged by what earlier runs say of noise (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from harness.answers.history.attempts import (
    FIGURES,
    SURROUNDINGS,
    Attempt,
    attempts_by_name,
    finder,
)
from harness.answers.history.noise import Array
from harness.answers.history.performance import EFFECT, Change, JudgedSpeed, SpeedVerdict, judge
from harness.answers.history.surroundings import differences
from harness.answers.history.units import known_to

_ALARMS: Final[tuple[SpeedVerdict, ...]] = ("slower", "faster")
# a step that a later run bears out is told then, if it is no older than this
_STEPS_BACK: Final = 2
_Known = TypeVar("_Known", Change, Change | None)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a case, or of all cases of a device, where `case` is None."""

    device: str
    case: str | None
    figure: str

    def __str__(self) -> str:
        return f"{self.figure} of {self.case or f'all cases on {self.device}'}"


@dataclass(frozen=True)
class Speed:
    """How figures changed, by at least `effect`.

    `base_runs` and `new_runs` are how many runs were looked at on either side. The names of changes
    and groups are `Figure`s. `around` says for what changed, or may have, how surroundings differ
    between the last run of the base and NEW.
    """

    effect: float
    base_runs: int
    new_runs: int
    judged: JudgedSpeed
    around: dict[Figure, Sequence[str]] = field(default_factory=dict)

    def told(self, verdict: SpeedVerdict) -> list[Change]:
        """What became so: first of whole devices, the furthest first."""
        return sorted((one for one in self.judged.all if one.verdict == verdict), key=_order)

    def count(self, verdict: SpeedVerdict) -> int:
        """How many became so."""
        return sum(one.verdict == verdict for one in self.judged.all)

    def _unsure(self, apart: Callable[[Change], bool]) -> list[Change]:
        """What is unsure and is told one by one, the furthest first."""
        return sorted(
            (one for one in self.judged.all if one.verdict == "unsure" and apart(one)), key=_order
        )

    @property
    def hidden(self) -> list[Change]:
        """What is as far off as is asked for, though noise hides whether it changed."""
        return self._unsure(
            lambda one: not one.suspect and one.tells is not None and one.size >= 1 + self.effect
        )

    @property
    def suspects(self) -> list[Change]:
        """What more runs may show to be a change."""
        return self._unsure(lambda one: one.suspect)


def _order(change: Change) -> tuple[bool, float]:
    return change.name.case is not None, -change.size


def judge_speed(
    befores: Sequence[Attempt],
    afters: Sequence[Attempt],
    earlier: Iterable[Sequence[Attempt]] = (),
    between: Iterable[Sequence[Attempt]] = (),
    *,
    effect: float = EFFECT,
    late: bool = False,
) -> Speed:
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
    speed = Speed(effect, base_runs, new_runs, judged)
    sides, of_new = [*around, _around(befores)], _around(afters)
    shared: list[tuple[Change, list[Any]]] = []
    for common in (one.common for one in judged.groups if one.common):
        its_cases = [row for row, name in zip(cases, groups, strict=True) if name == common.name]
        shared.append((common, its_cases))
    alone = ((one, [row]) for one, row in zip(judged.changes, cases, strict=True))
    for one, of_it in chain(alone, shared):
        if _is_told(one) or one.suspect:
            of_base = sides[first_new.get(one.name, base_runs) - base_runs - 1]
            both = ([side[row] for row in of_it] for side in (of_base, of_new))
            speed.around[one.name] = tuple(differences(*both))
    return speed


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
    groups = [
        replace(one, common=_first_told(one.common, other.common, was.common))
        for one, other, was in zip(judged.groups, earlier.groups, known.groups, strict=True)
    ]
    return JudgedSpeed(list(changes), groups)


def _first_told(now: _Known, earlier: _Known, known: _Known) -> _Known:
    """The earlier change where NEW is the first run to bear it out, and nothing else is told."""
    return earlier if _is_told(earlier) and not _is_told(known) and not _is_told(now) else now


def _is_told(change: Change | None) -> bool:
    return change is not None and change.verdict in _ALARMS
