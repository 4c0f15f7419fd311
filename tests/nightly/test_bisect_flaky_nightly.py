"""Flaky answers at many pairs of rates, long enough to see an error of one in a hundred."""

from __future__ import annotations

import pytest

from harness.search.bisect.answers import Tally
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.flaky import chances_bad, errors_at_worst
from harness.search.bisect.search import halvings
from tests.unit.search.bisect.histories import World, axis, changing, drive, names
from tests.unit.search.bisect.test_flaky import Show, flaky, seeds

pytestmark = pytest.mark.nightly
RATES = (0.0, 0.10, 0.25, 0.35)


@pytest.mark.parametrize("hides", RATES)
@pytest.mark.parametrize("alarms", RATES)
def test_the_confidence_holds_at_every_pair_of_rates(
    hides: float, alarms: float, show_figures: Show
) -> None:
    right, wrong, _ = seeds(show_figures, 300, hides, alarms)
    assert right >= 291
    assert wrong <= 3


def test_just_below_the_worst_rate_a_range_may_be_all_but_is_honest(show_figures: Show) -> None:
    _, wrong, _ = seeds(show_figures, 100, 0.39, 0.39)
    assert wrong <= 1


def runs_until_each_is_sure(number: int, world: World) -> int:
    """A plain bisection that repeats each version until it is sure, for the same 99 %."""
    tallies = [Tally()] * number
    allowed = 0.01 / (halvings(number - 1) + 2)

    def verdict(i: int) -> str:
        while True:
            tallies[i] = tallies[i].plus(world((names(number)[i],)))
            told = [known for known in range(number) if tallies[known].told]
            asked, own = [tallies[known] for known in told], told.index(i)
            if errors_at_worst(asked)[own] <= allowed:
                return "bad" if chances_bad(asked)[own] > 0.5 else "good"

    older, newer = 0, number - 1
    of_older, of_newer = verdict(older), verdict(newer)
    while of_older != of_newer and newer - older > 1:
        middle = (older + newer) // 2
        older, newer = (middle, newer) if verdict(middle) == of_older else (older, middle)
    return sum(tally.told for tally in tallies)


@pytest.mark.parametrize("number", [5, 10, 20, 40])
@pytest.mark.parametrize("hides", [0.10, 0.25, 0.35])
def test_it_takes_fewer_runs_than_repeating_each_version_until_it_is_sure(
    number: int, hides: float, show_figures: Show
) -> None:
    searched, repeated = 0, 0
    for seed in range(40):
        truth = changing(number, 1 + seed % (number - 1))
        world = flaky(truth, f"s{seed}", hides, 0.0)
        searched += len(drive(AxisSearch(axis(number, repeat="auto")), world)[1])
        repeated += runs_until_each_is_sure(number, flaky(truth, f"r{seed}", hides, 0.0))
    show_figures(f"{number}, hides {hides:.0%}", searched=searched / 40, repeated=repeated / 40)
    assert searched < 0.9 * repeated
