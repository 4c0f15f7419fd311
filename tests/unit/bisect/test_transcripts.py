"""What searches ask and find, as it is kept in transcripts.txt: to the letter, notes and all.

A log is gone on with by later versions, so that a search that asks otherwise is told here. Where it
is meant to: `python -m tests.unit.bisect.test_transcripts` writes them anew.
"""

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
    asked: list[str] = []
    while isinstance(step := search.next(), Question):
        asked.append("/".join(step.at))
        search.answer(step, world(step.at))
    if isinstance(step, Stopped):
        return f"{spec.bound().runs} {' '.join(asked)} => stopped: {step.question.why}"
    notes = "".join(
        f" | {note}" for note in (*step.notes, *(one.description for one in step.flaky))
    )
    return f"{spec.bound().runs} {' '.join(asked)} => {step.text}{notes}"


def axes(dice: random.Random) -> Searches:
    """Searches on one axis: claims, holes, two changes, flaky versions."""
    for number in (*range(1, 8), *[dice.randrange(8, 40) for _ in range(40)]):
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
        if dice.random() < 0.2:
            given["max_runs"] = dice.randrange(1, 6)
        yield axis(number, repeat=dice.choice([1, 1, 2, 3]), **given), truth.__getitem__
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
        which = number % 4
        holes = dice.sample([*spec.points()], dice.choice([0, 0, 0, 1, 3]))

        def world(
            at: Point,
            causes: dict[int, str] = causes,
            which: int = which,
            up: bool = up,
            holes: list[Point] = holes,
        ) -> RunAnswer:
            if at in holes:
                return "untestable"
            qnn = at[0] >= causes[0] if up else at[0] <= causes[0]
            ort = at[1] >= causes[1]
            return "bad" if (qnn and ort, qnn or ort, qnn, ort)[which] else "good"

        yield spec, world


def _tossed(dice: random.Random, shares: dict[Point, float]) -> World:
    return lambda at: "bad" if dice.random() < shares[at] else "good"


GROUPS: Final[dict[str, Callable[[random.Random], Searches]]] = {"axis": axes, "pair": pairs}


def made(group: str) -> list[str]:
    lines = []
    for number, (spec, world) in enumerate(GROUPS[group](random.Random(group))):
        lines.append(f"{group} {number}: {transcript(spec, world)}")
    return lines


@pytest.mark.parametrize("group", GROUPS)
def test_a_search_asks_and_finds_what_it_did(group: str) -> None:
    kept = [one for one in FILE.read_text().splitlines() if one.startswith(f"{group} ")]
    assert len(kept) > 10
    assert made(group) == kept


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for group in GROUPS for line in made(group)))
