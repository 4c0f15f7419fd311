"""What the tests of this folder let a search loose on, and how they drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.bisect.answers import Answer, Place, Question
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.grid_search import GridSearch
from harness.bisect.search import Search
from harness.bisect.specs import AxisSpec, GridSpec

World = Callable[[Place], Answer]


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

    def world(at: Place) -> Answer:
        i = order.index(at[0])
        return "untestable" if i in holes else first if i < k else other

    return world


def drive(search: Search, world: World) -> tuple[Finding, list[Place]]:
    asked: list[Place] = []
    while isinstance(question := search.next(), Question):
        asked.append(question.at)
        search.answer(question, world(question.at))
    assert isinstance(question, Finding), question
    return question, asked


def drive_grid(search: GridSearch, world: World) -> tuple[GridFinding, list[Place]]:
    asked: list[Place] = []
    while isinstance(question := search.next(), Question):
        asked.append(question.at)
        search.answer(question, world(question.at))
    assert isinstance(question, GridFinding), question
    return question, asked
