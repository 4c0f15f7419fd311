"""Speed and memory of what passes in two runs, judged by what earlier runs say of noise (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from harness.history.brief import Brief
from harness.history.comparison import Attempts, Comparison, attempts_by_name, finder
from harness.history.performance import EFFECT, Change, Group, Judged, Series, Verdict, judge
from harness.results.record import is_figure

FIGURES: Final = ("load_us", "execute_us", "create_us", "run_us", "rss_bytes.peak")
"""What is judged of each case: of lists, the median."""
_ALARMS: Final[tuple[Verdict, ...]] = ("slower", "faster")
# a step that a later run bears out is told then, if it is no older than this
_STEPS_BACK: Final = 2
_Told = TypeVar("_Told", Change, Change | None)


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

    `base_runs` and `new_runs` are how many runs were looked at on either side. The names of
    changes and groups are `Figure`s.
    """

    effect: float
    base_runs: int
    new_runs: int
    changes: Sequence[Change]
    groups: Sequence[Group]

    def told(self, verdict: Verdict) -> list[Change]:
        """What became so, first that of whole devices, the furthest first."""
        shared = [one.common for one in self.groups if one.common is not None]
        found = [one for one in (*shared, *self.changes) if one.verdict == verdict]
        return sorted(found, key=_order)

    @property
    def suspects(self) -> list[Change]:
        """What more runs may show to be a change."""
        return [one for one in self.told("unsure") if one.suspect]


def _order(change: Change) -> tuple[bool, float]:
    far = max(change.ratio, 1 / change.ratio)
    return change.name.case is not None, -far


def sample(measurements: Mapping[str, Any], figure: str) -> float | None:
    """What a run measured, as one number; None if that is no size."""
    value: Any = measurements
    for part in figure.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, list):
        numbers = [one for one in value if _is_size(one)]
        return float(statistics.median(numbers)) if numbers and len(numbers) == len(value) else None
    return float(value) if _is_size(value) else None


def _is_size(value: object) -> bool:
    return is_figure(value) and value > 0


def with_speed(
    found: Comparison,
    earlier: Iterable[Sequence[Brief]] = (),
    between: Iterable[Sequence[Brief]] = (),
    *,
    effect: float = EFFECT,
    late: bool = False,
) -> Comparison:
    """The comparison with what became of speed and memory where both runs passed.

    `earlier` are runs before BASE, `between` those after it that are like NEW, the oldest first;
    each is read once. `late` also tells a change that came with BASE, or a run before it, which
    only NEW bears out: one run alone never does. Raises ConfigError without scipy.
    """
    passing = [pair for pair in found["passing"] if pair.before and pair.after]
    rows: list[list[list[float | None]]] = [[[] for _ in FIGURES] for _ in passing]
    befores, afters = [one.before for one in passing], [one.after for one in passing]
    base_runs = _add(rows, befores, earlier) + _add(rows, befores, [befores])
    new_runs = _add(rows, afters, between) + _add(rows, afters, [afters])
    names, values = [], []
    for brief, row in zip(afters, rows, strict=True):
        assert brief is not None
        device = brief.device.name if brief.device else ""
        for figure, series in zip(FIGURES, row, strict=True):
            if any(series[:base_runs]) and any(series[base_runs:]):
                names.append(Figure(device, brief.case, figure))
                values.append(series)
    judged = _split(names, values, base_runs, effect)
    if late:
        for at in range(base_runs - 1, max(base_runs - 1 - _STEPS_BACK, 0), -1):
            known = _split(names, [one[:-1] for one in values], at, effect)
            judged = _later(judged, _split(names, values, at, effect), known)
    return replace(found, speed=Speed(effect, base_runs, new_runs, judged.changes, judged.groups))


def _add(
    rows: list[list[list[float | None]]],
    cases: Sequence[Brief | None],
    runs: Iterable[Sequence[Brief | None]],
) -> int:
    """Adds what each run measured of each case; how many runs there were."""
    number = 0
    for run in runs:
        number += 1
        find = finder(attempts_by_name(one for one in run if one is not None))
        for case, row in zip(cases, rows, strict=True):
            met: Attempts | None = find(case) if case is not None else None
            passed = met is not None and met.last.outcome == "passed"
            for figure, series in zip(FIGURES, row, strict=True):
                series.append(
                    sample(met.last.measurements, figure) if passed and met is not None else None
                )
    return number


def _split(
    names: Sequence[Figure], values: Sequence[Sequence[float | None]], at: int, effect: float
) -> Judged:
    return judge(
        [
            Series(name, replace(name, case=None), series[:at], series[at:])
            for name, series in zip(names, values, strict=True)
        ],
        effect,
    )


def _later(judged: Judged, earlier: Judged, known: Judged) -> Judged:
    """What is told, and what came before BASE but was not told before NEW."""
    changes = [
        one if one.verdict in _ALARMS else _first_told(one, other, was)
        for one, other, was in zip(judged.changes, earlier.changes, known.changes, strict=True)
    ]
    groups = [
        replace(one, common=_first_told(one.common, other.common, was.common))
        for one, other, was in zip(judged.groups, earlier.groups, known.groups, strict=True)
    ]
    return Judged(changes, groups)


def _first_told(now: _Told, earlier: _Told, known: _Told) -> _Told:
    """The earlier change where NEW is the first run to bear it out."""
    told = earlier is not None and earlier.verdict in _ALARMS
    return earlier if told and (known is None or known.verdict not in _ALARMS) else now
