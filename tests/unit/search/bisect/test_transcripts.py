"""What searches ask and find, as it is kept in transcripts.txt: to the letter, reasons and all.

A log is gone on with by later versions, so that a search that asks otherwise is told here. Where it
is meant to: `python -m tests.unit.search.bisect.test_transcripts` writes them anew.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from harness.search.bisect.answers import Point, Question, RunAnswer, Stopped
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.findings import draw
from harness.search.bisect.grid_search import GridSearch
from harness.search.bisect.search import AxisSpec, GridSpec
from tests.unit.search.bisect.histories import World, axis, grid, names

FILE: Final = Path(__file__).with_name("transcripts.txt")
OPPOSITE: Final[dict[RunAnswer, RunAnswer]] = {"good": "bad", "bad": "good"}


def plain(value: Any) -> Any:
    """The same, its numbers as exact as every computer reckons them."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if is_dataclass(value) and not isinstance(value, type):
        return [[one.name, plain(getattr(value, one.name))] for one in fields(value)]
    if isinstance(value, dict):
        return [[plain(key), plain(one)] for key, one in value.items()]
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


def transcript(spec: AxisSpec | GridSpec, world: World, cost: Callable[[Point], float]) -> str:
    """What it asked and what it found; a hash stands for its reasons and all that it tells."""
    search: Any
    if isinstance(spec, AxisSpec):
        search = AxisSearch(spec, cost=cost)
    else:
        search = GridSearch(spec, cost=cost)
    asked: list[str] = []
    told: list[Any] = [plain(search.spec.bound())]
    while isinstance(question := search.next(), Question):
        asked.append("/".join(question.at))
        told.append(plain(question))
        search.answer(question, world(question.at))
    told.append(plain(question))
    if isinstance(spec, GridSpec) and not isinstance(question, Stopped):
        told.append(draw(spec, question))
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:12]
    shown = asked if len(asked) <= 30 else [*asked[:30], f"and {len(asked) - 30} more"]
    return f"{digest} {' '.join(shown)} => {question}"


def axes(dice: random.Random) -> Iterator[tuple[AxisSpec, dict[Point, RunAnswer]]]:
    """Searches on one axis that believe answers: claims, priors, holes, two changes."""
    for number in (*range(1, 8), *[dice.randrange(8, 40) for _ in range(70)]):
        order = names(number)
        first: RunAnswer = dice.choice(["good", "bad"])
        changes = sorted(dice.sample(range(number + 1), min(number, dice.choice([1, 1, 1, 2, 3]))))
        truth: dict[Point, RunAnswer] = {
            (name,): OPPOSITE[first] if sum(i >= at for at in changes) % 2 else first
            for i, name in enumerate(order)
        }
        for name in dice.sample(order, dice.choice([0, 0, 1, number // 3])):
            truth[name,] = dice.choice(["untestable", "unknown"])
        said = dice.sample(order, min(2, number))
        given: dict[str, Any] = dice.choice([{}, {"good": said[0]}, {"bad": said[-1]}])
        if dice.random() < 0.3 and number > 1:
            given = {"good": said[0], "bad": said[1]}
        if dice.random() < 0.4:
            given["prior"] = {name: dice.choice([0.2, 3.0, 9.0]) for name in order[::2]}
        if dice.random() < 0.2:
            given["max_runs"] = dice.randrange(1, 6)
        yield axis(number, repeat=dice.choice([1, 1, 2, 3]), **given), truth


def grids(dice: random.Random) -> Iterator[tuple[GridSpec, dict[Point, RunAnswer]]]:
    """Grids that are monotone, or nearly; holes, checks, what was told of them."""
    for number in range(140):
        spec = grid(
            dice.randrange(1, 6),
            dice.randrange(1, 7),
            checks=dice.randrange(4),
            every=dice.random() < 0.1,
            newer=dice.choice([None, None, (True, True), (False, False), (True, False)]),
            max_runs=dice.choice([None, None, None, 3, 6]),
            repeat=dice.choice([1, 1, 1, 2]),
        )
        rows, columns = spec.rows[:: dice.choice([1, -1])], spec.columns[:: dice.choice([1, -1])]
        starts = sorted((dice.randint(0, len(columns)) for _ in rows), reverse=True)
        truth: dict[Point, RunAnswer] = {
            (row, column): "good" if j >= start else "bad"
            for row, start in zip(rows, starts, strict=True)
            for j, column in enumerate(columns)
        }
        points = list(truth)
        for at in dice.sample(points, dice.choice([0, 0, 0, 1, len(points) // 4])):
            truth[at] = "untestable"
        if number % 8 == 0:  # all are alike as far as can be seen, or nothing can be tested
            truth = dict.fromkeys(truth, dice.choice(["good", "bad"]))
            for row in (spec.rows[0], spec.rows[-1]):
                truth[row, spec.columns[0]] = truth[row, spec.columns[-1]] = "untestable"
        if dice.random() < 0.15:
            odd = dice.choice(points)
            truth[odd] = OPPOSITE.get(truth[odd], "good")
        yield spec, truth


def believed(searches: Iterator[tuple[Any, dict[Point, RunAnswer]]]) -> Iterator[str]:
    for number, (spec, truth) in enumerate(searches):
        seconds = {at: float(1 + i * 7 % 5) for i, at in enumerate(truth)}
        cost = seconds.__getitem__ if number % 2 else lambda _: 1.0
        yield transcript(spec, truth.__getitem__, cost)


def flaky(dice: random.Random) -> Iterator[str]:
    """Searches for rates, on one axis and two."""
    for number in range(24):
        repeat = dice.choice(["auto", "auto", "rate:10%", "rate:20%", "rate:30%", "rate:40%"])
        order, rates = names(dice.randrange(1, 9)), (dice.choice([0, 0.1, 0.5]), 0.9)
        k = dice.randrange(len(order) + 1)
        way = dice.choice([1, -1])
        shares = {(n,): rates[::way][int(i >= k)] for i, n in enumerate(order)}
        if number % 4 == 0:  # no failure at all, or one version alone that fails
            shares = dict.fromkeys(shares, 0.0) | {(dice.choice(order),): dice.choice([0, 0.9])}
        given: dict[str, Any] = {"max_runs": dice.choice([12, 40, 120, None])}
        if number % 3 == 0:
            given |= {dice.choice(["good", "bad"]): dice.choice(order)}
        if number % 5 == 0:
            given["prior"] = {name: dice.choice([0.2, 3.0, 9.0]) for name in order[::2]}
        spec = axis(len(order), repeat=repeat, **given)
        yield transcript(spec, _tossed(dice, shares), lambda _: 1.0)
    for _ in range(6):
        two = grid(dice.randrange(1, 4), dice.randrange(2, 4), repeat="auto", max_runs=90)
        row, column = dice.choice(two.rows), dice.choice(two.columns)
        shares = {at: 0.05 if at[0] >= row and at[1] >= column else 0.8 for at in two.points()}
        yield transcript(two, _tossed(dice, shares), lambda _: 1.0)


def _tossed(dice: random.Random, shares: dict[Point, float]) -> World:
    return lambda at: "bad" if dice.random() < shares[at] else "good"


GROUPS: Final[dict[str, Callable[[random.Random], Iterator[str]]]] = {
    "axis": lambda dice: believed(axes(dice)),
    "grid": lambda dice: believed(grids(dice)),
    "flaky": flaky,
}


def made(group: str) -> list[str]:
    found = GROUPS[group](random.Random(group))
    return [f"{group} {number}: {one}" for number, one in enumerate(found)]


@pytest.mark.parametrize("group", GROUPS)
def test_a_search_asks_and_finds_what_it_did(group: str) -> None:
    kept = [one for one in FILE.read_text().splitlines() if one.startswith(f"{group} ")]
    assert len(kept) > 10
    assert made(group) == kept


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for group in GROUPS for line in made(group)))
