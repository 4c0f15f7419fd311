"""What the tests of this folder let a search loose on, and how they drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.bisect.answers import Answer, Point, Question
from harness.bisect.axis_search import AxisSearch
from harness.bisect.findings import AxisFinding, GridFinding
from harness.bisect.grid_search import GridSearch
from harness.bisect.search import AxisSpec, GridSpec

World = Callable[[Point], Answer]


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


def changing(
    number: int, k: int, first: Answer = "good", holes: frozenset[int] = frozenset()
) -> World:
    """The first k candidates answer `first`, the others the opposite, holes nothing."""
    other: Answer = "bad" if first == "good" else "good"
    order = names(number)

    def world(at: Point) -> Answer:
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
