"""Searches beside their transcripts in transcripts.txt: each run, and the finding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from harness.bisect.driver import VersionSearch
from harness.bisect.match import Point, Question, RunAnswer, Stopped
from harness.bisect.search import AxisSpec, CornerSpec
from tests.unit.bisect.histories import World, axis, corners, names

FILE: Final = Path(__file__).with_name("transcripts.txt")
OPPOSITE: Final[dict[RunAnswer, RunAnswer]] = {"good": "bad", "bad": "good"}
Searches = Iterator[tuple[AxisSpec | CornerSpec, World]]


def transcript(spec: AxisSpec | CornerSpec, world: World) -> str:
    """The bound of a search, what it asked, and what it found."""
    search: Any = VersionSearch(spec)
    points: list[str] = []
    while isinstance(step := search.next(), Question):
        points.append("/".join(step.at))
        search.answer(step, world(step.at))
    if isinstance(step, Stopped):
        return f"{spec.most_runs} {' '.join(points)} => stopped: {step.question.why}"
    notes = "".join(
        f" | {note}" for note in (*step.notes, *(version.description for version in step.flaky))
    )
    return f"{spec.most_runs} {' '.join(points)} => {step.text}{notes}"


def axes(dice: random.Random) -> Searches:
    """Searches on one axis: claims, holes, two changes, flaky versions."""
    for number in (*range(1, 8), *[dice.randrange(8, 40) for _ in range(40)]):
        order = names(number)
        first: RunAnswer = dice.choice(["good", "bad"])
        changes = sorted(dice.sample(range(number + 1), min(number, dice.choice([1, 1, 1, 2, 3]))))
        truth: dict[Point, RunAnswer] = {
            (name,): OPPOSITE[first] if sum(i >= place for place in changes) % 2 else first
            for i, name in enumerate(order)
        }
        for name in dice.sample(order, dice.choice([0, 0, 1, number // 3])):
            truth[name,] = dice.choice(["untestable", "unknown"])
        claimed = dice.sample(order, min(2, number))
        claims: dict[str, Any] = dice.choice([{}, {"good": claimed[0]}, {"bad": claimed[-1]}])
        if dice.random() < 0.3 and number > 1:
            claims = {"good": claimed[0], "bad": claimed[1]}
        yield axis(number, repeat=dice.choice([1, 1, 2, 3]), **claims), truth.__getitem__
    for _ in range(10):
        number, k = dice.randrange(3, 12), dice.randrange(1, 3)
        order = names(number)
        shares = {(name,): 0.4 if i >= k else 0.0 for i, name in enumerate(order)}
        yield axis(number, repeat=dice.choice([5, 10])), _tossed(dice, shares)


def pairs(dice: random.Random) -> Searches:
    """Searches of two axes: every cause, holes, and whichever way the axes go."""
    for number in range(40):
        spec = corners(dice.randrange(2, 9), dice.randrange(2, 9), repeat=dice.choice([1, 1, 2]))
        (old, older), (new, newer) = spec.good, spec.bad
        ends = dice.choice([((old, older), (new, newer)), ((new, older), (old, newer))])
        spec = spec.model_copy(update={"good": ends[0], "bad": ends[1]})
        up = ends[0][0] == old
        causes = {0: dice.choice(spec.candidates[0][1:] if up else spec.candidates[0][:-1])}
        causes[1] = dice.choice(spec.candidates[1][1:])
        cause = number % 4
        holes = dice.sample([*spec.points()], dice.choice([0, 0, 0, 1, 3]))

        def world(
            point: Point,
            causes: dict[int, str] = causes,
            cause: int = cause,
            up: bool = up,
            holes: list[Point] = holes,
        ) -> RunAnswer:
            if point in holes:
                return "untestable"
            qnn = point[0] >= causes[0] if up else point[0] <= causes[0]
            ort = point[1] >= causes[1]
            return "bad" if (qnn and ort, qnn or ort, qnn, ort)[cause] else "good"

        yield spec, world


def _tossed(dice: random.Random, shares: dict[Point, float]) -> World:
    return lambda point: "bad" if dice.random() < shares[point] else "good"


GROUPS: Final[dict[str, Callable[[random.Random], Searches]]] = {"axis": axes, "pair": pairs}


def transcripts(group: str) -> list[str]:
    lines = []
    for number, (spec, world) in enumerate(GROUPS[group](random.Random(group))):
        lines.append(f"{group} {number}: {transcript(spec, world)}")
    return lines


@pytest.mark.parametrize("group", GROUPS)
def test_a_search_asks_and_finds_what_it_did(group: str) -> None:
    expected = [line for line in FILE.read_text().splitlines() if line.startswith(f"{group} ")]
    assert len(expected) > 10
    assert transcripts(group) == expected


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for group in GROUPS for line in transcripts(group)))
