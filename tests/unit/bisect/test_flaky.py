"""Flaky answers: as right as the confidence promises, within the bound, near the ideal."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bisect.answers import Answer, Point, Repeat, Tally, least_change
from harness.bisect.axis_search import AxisSearch
from harness.bisect.flaky import (
    ALARMS,
    HIDES,
    WEIGHTS,
    WORST,
    chances_bad,
    errors_at_worst,
)
from harness.bisect.rates import REGRESSION, Rates
from harness.bisect.search import AxisSpec, Bound, ideal_flaky_runs
from tests.unit.bisect.histories import World, axis, changing, drive, fewest_runs, names

NUMBER = 8
REPEATS: tuple[Repeat, ...] = ("auto", "rate:25%", "rate:10%")
LONGER = 4.5
"""So many times as long as any search needs that knew the rates, and nearly where to look."""
Show = Callable[..., None]


def flaky(world: World, seed: str, hides: float, alarms: float) -> World:
    chance = random.Random(seed)

    def shown(at: Point) -> Answer:
        answer = world(at)
        if answer == "bad":
            return "good" if chance.random() < hides else "bad"
        if answer == "good":
            return "bad" if chance.random() < alarms else "good"
        return answer

    return shown


def seeds(show: Show, number: int, hides: float, alarms: float) -> tuple[int, int, float]:
    """Right answers, wrong ones and the mean number of runs; a range or "undecided" is neither.

    What is searched for is no greater than what there is: that nothing changes is wrong.
    """
    rise = 1 - hides - alarms
    repeat = next(one for one in REPEATS if rise >= (least_change(one) or 1) - 1e-9)
    right, wrong, runs = 0, 0, 0
    for seed in range(number):
        k, first = 1 + seed % (NUMBER - 1), "bad" if seed % 3 == 2 else "good"
        world = flaky(changing(NUMBER, k, first), f"{hides} {alarms} {seed}", hides, alarms)  # type: ignore[arg-type]
        search = AxisSearch(axis(NUMBER, repeat=repeat))
        found, asked = drive(search, world)
        assert len(asked) <= search.bound.runs
        runs += len(asked)
        so = found.direction == ("regression" if first == "good" else "fix")
        if found.kind == "undecided":
            continue
        true = so and (found.before or "") < names(NUMBER)[k] <= (found.after or "")
        right += true and found.kind == "change"
        wrong += not true
    show(
        f"hides {hides:.1%}, alarms {alarms:.1%}, --repeat {repeat}",
        right=f"{right} of {number}",
        wrong=wrong,
        mean_runs=round(runs / number, 1),
        fewest_of_any_search=round(fewest_runs(alarms, 1 - hides, 0.99), 1),
        bound=axis(NUMBER, repeat=repeat).bound().runs,
    )
    return right, wrong, runs / number


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("hides", "share"),
    [(0.10, 0.0), (0.10, 0.5), (0.25, 0.0), (0.25, 0.5), (0.35, 0.0), (0.35, 0.5)],
)
def test_a_hundred_seeds(hides: float, share: float, show_figures: Show) -> None:
    right, wrong, runs = seeds(show_figures, 100, hides, hides * share)
    assert right >= 97
    assert wrong <= 1
    assert runs < LONGER * fewest_runs(hides * share, 1 - hides, 0.99)


def test_good_versions_that_fail_as_often_or_more(show_figures: Show) -> None:
    """No more is wrong than is stated, of these hundred together; each pair has 300 every night."""
    right, wrong = 0, 0
    for hides, alarms in ((0.10, 0.10), (0.25, 0.25), (0.35, 0.35), (0.10, 0.35), (0.0, 0.35)):
        true, false, runs = seeds(show_figures, 20, hides, alarms)
        right, wrong = right + true, wrong + false
        assert runs < LONGER * fewest_runs(alarms, 1 - hides, 0.99)
    assert wrong <= 1
    assert right >= 97


def test_an_exact_test_is_repeated_little() -> None:
    for first, k in itertools.product(("good", "bad"), range(1, NUMBER)):
        found, asked = drive(AxisSearch(axis(NUMBER, repeat="auto")), changing(NUMBER, k, first))  # type: ignore[arg-type]
        assert found.after == names(NUMBER)[k]
        assert len(asked) <= 16
    for first in ("good", "bad"):
        found, asked = drive(AxisSearch(axis(NUMBER, repeat="auto")), lambda _, all=first: all)  # type: ignore[misc]
        assert (found.kind, found.verdict) == ("no-change", first)
        assert len(asked) <= 28


def test_claims_do_not_lower_the_error_that_is_promised() -> None:
    """What was said steers the search; against claims that are wrong it stays as sure."""
    right = 0
    for seed in range(40):
        k = 1 + seed % (NUMBER - 1)
        spec = axis(NUMBER, repeat="auto", good=names(NUMBER)[0], bad=names(NUMBER)[-1])
        found, _ = drive(AxisSearch(spec), flaky(changing(NUMBER, k, "bad"), f"c{seed}", 0.2, 0.2))
        right += (found.direction, found.after) == ("fix", names(NUMBER)[k])
    assert right == 40


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 14),
    st.integers(0, 14),
    st.sampled_from(["good", "bad"]),
    st.frozensets(st.integers(0, 13), max_size=6),
    st.floats(0, 0.39),
    st.floats(0, 0.39),
    st.integers(0, 2**32),
)
def test_any_history_and_rate_ends_within_the_bound_and_is_honest(
    number: int,
    k: int,
    first: Answer,
    holes: frozenset[int],
    hides: float,
    alarms: float,
    seed: int,
) -> None:
    order = names(number)
    truth = changing(number, min(k, number), first, holes)
    search = AxisSearch(axis(number, repeat="auto", confidence=0.9999, max_runs=400))
    found, asked = drive(search, flaky(truth, str(seed), hides, alarms))
    assert len(asked) <= 400
    assert len(asked) <= search.bound.limit(wasted=sum(truth(at) == "untestable" for at in asked))
    # at this confidence, a wrong answer in some 40 examples is a bug and no accident
    left = [name for i, name in enumerate(order) if i not in holes]
    older, newer = (
        [name for name in left if truth((name,)) == verdict]
        for verdict in (first, "bad" if first == "good" else "good")
    )
    if found.kind in ("change", "range"):
        assert older
        assert newer
        assert found.before is not None
        assert found.after is not None
        assert order.index(found.before) <= order.index(older[-1])
        assert order.index(newer[0]) <= order.index(found.after)
    elif found.kind == "no-change":
        assert not (older and newer)
    else:
        assert found.notes


def rates(tallies: list[Tally]) -> Rates:
    return Rates.of(tallies, [1.0] * (len(tallies) - 1), [None] * len(tallies))


def test_two_changes_are_noticed() -> None:
    world = {name: "bad" if i in (4, 5, 6) else "good" for i, name in enumerate(names(12))}
    known = [Tally(good=6) if answer == "good" else Tally(bad=6) for answer in world.values()]
    assert not rates(known).one_change
    assert rates([Tally(good=1) if i < 5 else Tally(bad=1) for i in range(12)]).one_change
    found, _ = drive(AxisSearch(axis(12, repeat="auto")), lambda at: world[at[0]])  # type: ignore[arg-type,return-value]
    assert (found.kind, found.one_change) == ("undecided", False)
    assert "the answers fit no single change" in found.notes[0]
    assert "failed: 2.1" in found.notes[1]


def test_the_table_of_rates_is_a_prior() -> None:
    assert float(WEIGHTS.sum()) == pytest.approx(1)
    assert float(HIDES.max()) == WORST
    assert {(a, b) for a, b in zip(HIDES, ALARMS, strict=True)} == {
        (b, a) for a, b in zip(HIDES, ALARMS, strict=True)
    }


def test_the_error_is_that_of_the_worst_rates() -> None:
    """Half of the answers contradict: the average over the rates would be surer than the worst."""
    tallies = [Tally(good=9, bad=3), Tally(good=9, bad=3), Tally(good=3, bad=9), Tally(bad=12)]
    weighed = rates(tallies)
    assert weighed.likeliest() == (REGRESSION, 2)
    assert 1 - weighed.error((REGRESSION, 2)) < weighed.chances[REGRESSION, 1]
    taken, _, sure = weighed.most(0.99)
    assert (REGRESSION, 2) in taken
    assert sure >= 0.99
    assert all(error <= 1 for error in errors_at_worst(tallies))
    assert errors_at_worst([]) == []


def test_unconnected_places_share_the_rates() -> None:
    alone = chances_bad([Tally(good=2)])[0]
    beside_flaky = chances_bad([Tally(good=2), Tally(good=7, bad=8)])[0]
    assert beside_flaky > alone
    assert chances_bad([]) == []
    assert chances_bad([Tally()])[0] == pytest.approx(0.5)


def axis_bound(candidates: int, **given: Any) -> Bound:
    names = tuple(str(number) for number in range(candidates))
    return AxisSpec(axis="v", candidates=names, **given).bound()


def test_bounds_grow_with_what_is_asked() -> None:
    assert axis_bound(2).runs == 2
    assert axis_bound(33).runs == 7
    assert axis_bound(33, repeat=3).runs == 21
    assert str(axis_bound(9)).startswith("at most 5 runs, and one more for each")
    flaky_runs = [axis_bound(n, repeat="auto").runs for n in (2, 8, 32)]
    assert flaky_runs == sorted(flaky_runs)
    sure = axis_bound(8, repeat="auto", confidence=0.999).runs
    assert sure > flaky_runs[1]
    assert axis_bound(8, repeat="auto", max_runs=50).limit(wasted=9) == 50
    assert ideal_flaky_runs(8, 0, 0.99) == 3
