"""Speed and memory of what passes in two runs, judged by what earlier runs say of noise (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import numpy as np
from pydantic import BeforeValidator

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
from harness.verdict.failure.error import Part
from harness.verdict.results.json_value import as_json

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
