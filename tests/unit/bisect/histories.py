"""Worlds for the searches of these tests, and functions that drive them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.bisect.bad_condition import Point, Question, RunAnswer
from harness.bisect.result import AxisFinding, CornersFinding
from harness.bisect.search import AxisSpec, CornerSpec, Task
from harness.bisect.version_search import VersionSearch

World = Callable[[Point], RunAnswer]


def names(number: int) -> tuple[str, ...]:
    return tuple(f"2.{10 + i}" for i in range(number))


def axis(number: int, **options: Any) -> AxisSpec:
    return AxisSpec(axis="qnn", candidates=names(number), **options)


def changing(
    number: int, k: int, first: RunAnswer = "good", holes: frozenset[int] = frozenset()
) -> World:
    """The first k candidates answer `first`, the others the opposite, holes nothing."""
    other: RunAnswer = "bad" if first == "good" else "good"
    order = names(number)

    def world(point: Point) -> RunAnswer:
        i = order.index(point[0])
        return "untestable" if i in holes else first if i < k else other

    return world


def drive(search: VersionSearch, world: World) -> tuple[Any, list[Point]]:
    """Return the finding of a search to its end, and the points that it asked for."""
    points: list[Point] = []
    while isinstance(step := search.next(), Question):
        assert step.number == len(points) + 1
        points.append(step.at)
        search.answer(step, world(step.at))
    assert isinstance(step, AxisFinding | CornersFinding), step
    return step, points


def corners(first: int, second: int, **options: Any) -> CornerSpec:
    """Corners of QNN and ORT; the good pair is the older one unless `given` says otherwise."""
    orts = tuple(f"1.{20 + i}" for i in range(second))
    qnns = names(first)
    ends: dict[str, Any] = {"good": (qnns[0], orts[0]), "bad": (qnns[-1], orts[-1])}
    return CornerSpec(axes=("qnn", "ort"), candidates=(qnns, orts), **(ends | options))


def task(search: AxisSpec | CornerSpec, **options: Any) -> Task:
    """The task of a bisection that nobody runs."""
    fields: dict[str, Any] = {
        "case": "x.py::x",
        "devices": ("sim",),
        "target": "linux-x64",
        "backend": "htp",
        "lab": Path("no.yaml"),
        "folder": Path(),
    }
    return Task(search=search, **(fields | options))
