"""What the tests of this folder let a search loose on, and how they drive it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.search.bisect.answers import Evidence, Point, Question, RunAnswer
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.findings import AxisFinding, GridFinding
from harness.search.bisect.grid_search import GridSearch
from harness.search.bisect.grid_state import GridState
from harness.search.bisect.search import AxisSpec, GridSpec

World = Callable[[Point], RunAnswer]


def fewest_runs(before: float, after: float, confidence: float) -> float:
    """How many runs any search takes on average that is as sure as that at every pair of rates.

    Between the two rates is one from which both are equally far (in what a run tells on average
    against it: Kullback and Leibler). All answers could come from that one without a change, and no
    run, of whichever version, tells more against it than this distance, which is the capacity of a
    channel with these two rates. What tells truth from that with this confidence must have told the
    divergence of being right from being wrong (Wald; Kaufmann, Cappe and Garivier). What it takes
    to learn the rates and where the change is comes on top of it, in every search.
    """

    def apart(true: float, other: float) -> float:
        pairs = ((true, other), (1 - true, 1 - other))
        return sum(p * math.log(p / q) for p, q in pairs if p)

    low, high = sorted((before, after))
    first, last = low, high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if apart(first, middle) < apart(last, middle) else (low, middle)
    return apart(confidence, 1 - confidence) / apart(first, high)


def names(number: int) -> tuple[str, ...]:
    return tuple(f"2.{10 + i}" for i in range(number))


def axis(number: int, **given: Any) -> AxisSpec:
    return AxisSpec(axis="qnn", candidates=names(number), **given)


def grid(rows: int, columns: int, **given: Any) -> GridSpec:
    return GridSpec(
        axes=("ort", "qnn"),
        rows=tuple(f"1.{i}" for i in range(rows)),
        columns=names(columns),
        **given,
    )


def told_grid(*rows: str, **given: Any) -> GridState:
    """A grid that answered so far: g, b, n, ? for good, bad, untestable, nothing; G: good twice."""
    spec = grid(len(rows), len(rows[0]), **given)
    answers: dict[str, RunAnswer] = {"g": "good", "b": "bad", "n": "untestable"}
    evidence = Evidence()
    for at, letter in zip(spec.points(), "".join(rows), strict=True):
        for one in letter.replace("G", "gg").strip("?"):
            evidence = evidence.plus(at, answers[one])
    return GridState(spec, evidence)


def changing(
    number: int, k: int, first: RunAnswer = "good", holes: frozenset[int] = frozenset()
) -> World:
    """The first k candidates answer `first`, the others the opposite, holes nothing."""
    other: RunAnswer = "bad" if first == "good" else "good"
    order = names(number)

    def world(at: Point) -> RunAnswer:
        i = order.index(at[0])
        return "untestable" if i in holes else first if i < k else other

    return world


def drive(search: AxisSearch, world: World) -> tuple[AxisFinding, list[Point]]:
    asked: list[Point] = []
    while isinstance(question := search.next(), Question):
        asked.append(question.at)
        search.answer(question, world(question.at))
    assert isinstance(question, AxisFinding), question
    return question, asked


def drive_grid(search: GridSearch, world: World) -> tuple[GridFinding, list[Point]]:
    asked: list[Point] = []
    while isinstance(question := search.next(), Question):
        asked.append(question.at)
        search.answer(question, world(question.at))
    assert isinstance(question, GridFinding), question
    return question, asked
