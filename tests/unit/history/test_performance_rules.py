"""Rows of runs are judged as the rules say, spelt out here for one row at a time, in plain Python.

How far apart runs are by chance is `performance.py`'s, and has tests of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_high, median_low
from typing import Any

import numpy as np
import pytest

from harness.history import performance
from harness.history.performance import Change, judge

MOST, ALARM, SUSPECT, DISCOVERIES = 5, 0.003, 0.03, 0.005


def once(value: Any) -> Any:
    return np.asarray(value).tolist()[0]


@dataclass
class Row:
    """A row before it is judged beside others; values are logarithms."""

    base: list[float]
    new: list[float]
    effect: float

    def __post_init__(self) -> None:
        base, new = np.array([self.base]), np.array([self.new])
        scale, known = performance.scales(base, new, np.array([0]), np.array([0.005]))
        self.scale, self.known = once(scale), once(known)
        last = self.last = [value for value in self.new[-MOST:] if not math.isnan(value)]
        level_values = once(performance.level(base, np.array([self.new[-MOST:]]), scale, MOST))
        level = [value for value in level_values if not math.isnan(value)]
        self.runs = len(level)
        self.least = math.log1p(self.effect)
        before = self._others(level_values)
        if len(before) >= 2 and last:
            is_away = abs(median(last) - median(before)) > self.least / 2
            self.runs += int(is_away and self.runs == 1) - int(not is_away and self.runs == 2)
        self.judged = self.known and self.runs > 0 and len(last) > 0
        self.shift = median(last) - median(level) if level and last else 0.0
        apart = 0.0
        if self.shift > 0:
            apart = median_low(last) - median_high(level)
        elif level and last:
            apart = median_low(level) - median_high(last)
        self.apart = apart / self.scale
        self.p = self.chance(0, 0) if self.judged else 1.0

    def _others(self, level: Sequence[float]) -> list[float]:
        """Of the last five runs of the base, those of another level."""
        pairs = list(zip(self.base, level, strict=True))[-MOST:]
        return [value for value, same in pairs if math.isnan(same) and not math.isnan(value)]

    def chance(self, base: int, new: int) -> float:
        sides = np.array([self.runs + base]), np.array([len(self.last) + new])
        return float(once(performance.chance(np.array([self.apart]), *sides)))

    def width(self, base: int, new: int) -> float:
        sides = np.array([self.runs + base]), np.array([len(self.last) + new])
        return float(once(performance.half_width(*sides))) * self.scale

    def verdict(self, base: int, new: int, needed: float) -> str:
        """Return the verdict with so many more runs."""
        size, width = abs(self.shift), self.width(base, new)
        if size >= self.least and size > width and self.chance(base, new) <= needed:
            return "slower" if self.shift > 0 else "faster"
        return "same" if size + width < self.least else "unsure"

    def more(self, needed: float) -> tuple[int, int] | None:
        """The fewest runs more that settle it, rather new ones."""
        tries = sorted(
            (base + new, base, new)
            for base in range(MOST)
            for new in range(MOST)
            if self.runs + base <= MOST and len(self.last) + new <= MOST
        )
        for _, base, new in tries:
            if self.verdict(base, new, needed) != "unsure":
                return new, base
        return None


def adjusted(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg: the least false discovery rate at which each would be told."""
    order = sorted(range(len(p)), key=lambda index: p[index])
    rates, least = [0.0] * len(p), 1.0
    for rank in range(len(p), 0, -1):
        index = order[rank - 1]
        least = rates[index] = min(least, p[index] * len(p) / rank)
    return rates


def by_the_rules(rows: Sequence[Row]) -> list[dict[str, Any]]:
    judged = [row for row in rows if row.judged]
    rates = dict(zip(map(id, judged), adjusted([row.p for row in judged]), strict=True))
    expected = []
    for row in rows:
        needed = ALARM
        if row.judged:
            needed = min(ALARM, DISCOVERIES * row.p / rates[id(row)])
        verdict = row.verdict(0, 0, needed) if row.judged else "unsure"
        more = (0, 0) if verdict != "unsure" else row.more(needed)
        if not row.judged:
            more = None
        width = row.width(0, 0)
        is_sure = abs(row.shift) >= row.least and abs(row.shift) > width
        suspect = verdict == "unsure" and more is not None and is_sure and row.p <= SUSPECT
        expected.append(
            {
                "verdict": verdict,
                "p": row.p,
                "ratio": math.exp(row.shift),
                "low": math.exp(row.shift - width),
                "high": math.inf if width == math.inf else math.exp(row.shift + width),
                "base_runs": row.runs,
                "new_runs": len(row.last),
                "more_new": None if more is None else more[0],
                "more_base": None if more is None else more[1],
                "suspect": suspect,
                "tells": (
                    math.exp(
                        min(
                            600,
                            max(
                                row.least, row.scale * performance.detectable_distance(MOST, ALARM)
                            ),
                        )
                    )
                    if row.known
                    else None
                ),
            }
        )
    return expected


def drawn(base: int, new: int, number: int = 60) -> list[list[list[float]]]:
    """Runs of all sorts: quiet and noisy, odd ones, gaps, changes of many sizes."""
    rng = np.random.default_rng(base)
    drawn_rows = []
    for _ in range(number):
        scale = rng.choice([0.006, 0.01, 0.03, 0.2])
        sides = [scale * rng.standard_t(2, columns) for columns in (base, new)]
        sides[1] += rng.choice([0, 0.05, 0.1, 0.15, 0.2, 0.4, 1.0]) * rng.choice([-1, 1])
        for side in sides:
            side[rng.random(len(side)) < 0.08] += rng.choice([-0.7, 0.3])
            side[rng.random(len(side)) < 0.1] = math.nan
        if rng.random() < 0.3:  # the level changed within the base, or its last runs were odd
            sides[0][-int(rng.integers(1, 3)) :] += rng.choice([-0.4, 0.15, 0.3])
        drawn_rows.append([side.tolist() for side in sides])
    return drawn_rows


def sizes(rows: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[None if math.isnan(value) else math.exp(value) for value in row] for row in rows]


@pytest.mark.parametrize("effect", [0.1, 0.3])
def test_rows_of_all_sorts_are_judged_by_the_rules(effect: float) -> None:
    kinds: set[tuple[str, bool, bool]] = set()
    for shape in [(8, 3), (6, 2), (4, 5), (9, 1), (3, 7), (1, 2)]:
        bases, news = zip(*drawn(*shape), strict=True)
        names = range(len(bases))
        changes = judge(names, names, sizes(bases), sizes(news), effect).changes
        rows = [Row(base, new, effect) for base, new in zip(bases, news, strict=True)]
        for change, expected in zip(changes, by_the_rules(rows), strict=True):
            same_as(change, expected)
            kinds.add((change.verdict, change.suspect, change.more_new is None))
    assert {verdict for verdict, *_ in kinds} == {"slower", "faster", "same", "unsure"}
    assert ("unsure", True, False) in kinds
    assert ("unsure", False, True) in kinds


def same_as(change: Change, expected: dict[str, Any]) -> None:
    for field, value in expected.items():
        if isinstance(value, float):
            assert getattr(change, field) == pytest.approx(value, rel=1e-9), (
                field,
                change,
                expected,
            )
        else:
            assert getattr(change, field) == value, (field, change, expected)
