"""The next runs of a minimization, and the smallest way known meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bisect.match import Evidence, Question, RunAnswer, Stopped
from harness.reduce.driver import MinimizeSearch, Minimum
from harness.reduce.subject import Minimizing, Way
from tests.unit.reduce.test_driver import subject

Rule = Callable[[Way, int], RunAnswer]


def searched(folder: Path, order: tuple[int, ...], rule: Rule, **more: int) -> tuple[Minimum, int]:
    """Return the result, and the number of runs."""
    search = MinimizeSearch(Minimizing(subject=subject(folder, order), **more), Evidence())  # type: ignore[arg-type]
    number = 0
    while isinstance(step := search.next(), Question):
        assert step.number == search.evidence.runs + 1
        number += 1
        search.answer(step, rule(Way.from_point(step.at), number))
    assert isinstance(step, Minimum)
    assert step == search.known()
    return step, number


def two(way: Way, number: int) -> RunAnswer:
    """Two of the second kind are needed, in either order."""
    return "bad" if way.order.count(1) > 1 else "untestable"


@pytest.mark.parametrize(
    ("order", "rule", "expected", "runs"),
    [
        ((1, 1), two, Minimum(Way((1, 1), "sequential"), True, True), 7),
        ((0, 1), two, Minimum(Way((0, 1), "resident"), False), 10),
        (
            (0, 1),
            lambda way, number: "bad" if way.order[-2:] == (0, 1) else "good",
            Minimum(Way((0, 1), "sequential"), True, True),
            8,
        ),
    ],
)
def test_what_is_found(
    tmp_path: Path, order: tuple[int, ...], rule: Rule, expected: Minimum, runs: int
) -> None:
    assert searched(tmp_path, order, rule) == (expected, runs)


@pytest.mark.parametrize(("often", "runs_of_each"), [(1, 1), (2, 12), (4, 17), (10, 20)])
def test_what_fails_less_often_is_asked_more_often(
    tmp_path: Path, often: int, runs_of_each: int
) -> None:
    """So often that a failure is overlooked in 1 % of all cases at most.

    What fails in every second run did in one of the first three.
    """
    ways: list[Way] = []

    def now_and_then(way: Way, number: int) -> RunAnswer:
        ways.append(way)
        return "bad" if len(way.order) == 2 and ways.count(way) % often == 0 else "good"

    searched(tmp_path, (0, 0), now_and_then)
    assert ways.count(Way((0,), "sequential")) == runs_of_each


def test_each_is_run_as_often_as_was_said(tmp_path: Path) -> None:
    whole = Minimum(Way((1, 1), "sequential"), minimal=True)
    assert searched(tmp_path, (1, 1), two, repeat=2) == (whole, 2 + 1 + 2 + 1)


def test_a_lab_that_fails_again_and_again_stops_it(tmp_path: Path) -> None:
    search = MinimizeSearch(Minimizing(subject=subject(tmp_path, (0,))), Evidence())
    for _ in range(3):
        step = search.next()
        assert isinstance(step, Question)
        search.answer(step, "unknown")
    assert isinstance(search.next(), Stopped)
    search.resume()
    assert isinstance(search.next(), Question)


def test_a_way_is_found_again_by_what_a_log_calls_it() -> None:
    way = Way((0, 12, 3), "window")
    assert way.point == ("window", "0,12,3")
    assert Way.from_point(way.point) == way
    for point in (("window", ""), ("all", "1"), ("window",)):
        with pytest.raises(ValueError, match=r"."):
            Way.from_point(point)
