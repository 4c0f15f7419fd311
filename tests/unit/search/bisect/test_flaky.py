"""Flaky answers: as right as the confidence promises, within the bound, near the ideal."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from harness.search.bisect.answers import Point, Repeat, RunAnswer, Tally, least_change
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.flaky import (
    ALARMS,
    HIDES,
    WEIGHTS,
    WORST,
    chances_bad,
    entropy,
    errors_at_worst,
    log_likelihoods,
    log_sum,
)
from harness.search.bisect.rates import REGRESSION, Rates
from harness.search.bisect.search import AxisSpec, Bound, ideal_flaky_runs
from tests.unit.search.bisect.histories import World, axis, changing, drive, fewest_runs, names

NUMBER = 8
REPEATS: tuple[Repeat, ...] = ("auto", "rate:25%", "rate:10%")
LONGER = 4.5
"""So many times as long as any search needs that knew the rates, and nearly where to look."""
Show = Callable[..., None]


def flaky(world: World, seed: str, hides: float, alarms: float) -> World:
    chance = random.Random(seed)

    def shown(at: Point) -> RunAnswer:
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
        assert len(asked) <= search.spec.bound().runs
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


@pytest.mark.slow
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
    for seed in range(20):
        k = 1 + seed % (NUMBER - 1)
        spec = axis(NUMBER, repeat="auto", good=names(NUMBER)[0], bad=names(NUMBER)[-1])
        found, _ = drive(AxisSearch(spec), flaky(changing(NUMBER, k, "bad"), f"c{seed}", 0.2, 0.2))
        right += (found.direction, found.after) == ("fix", names(NUMBER)[k])
    assert right == 20


@settings(max_examples=15, deadline=None)
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
    first: RunAnswer,
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
    assert len(asked) <= search.spec.bound().limit(
        wasted=sum(truth(at) == "untestable" for at in asked)
    )
    # at this confidence, a wrong answer in some 15 examples is a bug and no accident
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
    taken, sure = weighed.most(0.99)
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


STEPS = [step * 0.05 for step in range(1, 9)]
EXPECTED = (
    {(0.0, 0.0): 0.3}
    | {(rate, 0.0): 0.7 * 0.25 / 8 for rate in STEPS}
    | {(0.0, rate): 0.7 * 0.10 / 8 for rate in STEPS}
    | {(hides, alarms): 0.7 * 0.65 / 64 for hides in STEPS for alarms in STEPS}
)
"""What is expected of each pair of rates before any run."""
TALLIES = [
    [Tally()],
    [Tally(good=1)],
    [Tally(bad=1)],
    [Tally(good=4)],
    [Tally(good=3, bad=3)],
    [Tally(good=9, bad=1), Tally(bad=6)],
    [Tally(good=5), Tally(), Tally(good=1, bad=4)],
    [Tally(good=2, bad=1), Tally(good=1, bad=2), Tally(good=6), Tally(bad=7)],
]


def test_the_table_is_what_is_said_of_it() -> None:
    table = {
        (round(float(hides), 9), round(float(alarms), 9)): float(weight)
        for hides, alarms, weight in zip(HIDES, ALARMS, WEIGHTS, strict=True)
    }
    assert len(table) == len(WEIGHTS) == 81
    assert table == pytest.approx(
        {tuple(round(one, 9) for one in k): w for k, w in EXPECTED.items()}
    )


def fits(tally: Tally, fails: float) -> float:
    """How likely these runs are where one fails in this share."""
    return fails**tally.bad * (1 - fails) ** tally.good


def any_verdict(tallies: list[Tally], hides: float, alarms: float) -> float:
    """How likely all runs are, where a point is as likely good as bad."""
    return math.prod((fits(one, alarms) + fits(one, 1 - hides)) / 2 for one in tallies)


@pytest.mark.parametrize("tallies", TALLIES)
def test_chances_and_errors_are_those_of_all_pairs_of_rates(tallies: list[Tally]) -> None:
    """Summed up one by one, without a logarithm."""
    evidence = sum(weight * any_verdict(tallies, *at) for at, weight in EXPECTED.items())
    chances, errors = [], []
    for i, tally in enumerate(tallies):
        others = tallies[:i] + tallies[i + 1 :]
        if_bad = {at: any_verdict(others, *at) * fits(tally, 1 - at[0]) for at in EXPECTED}
        if_good = {at: any_verdict(others, *at) * fits(tally, at[1]) for at in EXPECTED}
        chances.append(sum(EXPECTED[at] * chance / 2 for at, chance in if_bad.items()) / evidence)
        worst = min(max(if_bad.values()), max(if_good.values()))
        errors.append(min(1.0, worst / evidence))
    assert chances_bad(tallies) == pytest.approx(chances)
    assert errors_at_worst(tallies) == pytest.approx(errors)


def test_a_contradiction_tells_nothing_and_no_error_is_above_1() -> None:
    assert errors_at_worst([Tally(good=3, bad=3)]) == [1.0]


def test_so_many_runs_that_their_likelihood_is_no_number_tell_what_they_say() -> None:
    many = [Tally(good=9000, bad=1000), Tally(good=1000, bad=9000)]
    assert chances_bad(many) == pytest.approx([0.0, 1.0])
    assert errors_at_worst(many) == pytest.approx([0.0, 0.0])


def test_the_worst_rates_of_the_table_are_those_that_bounds_are_reckoned_with() -> None:
    at = list(zip(HIDES, ALARMS, strict=True)).index((WORST, WORST))
    if_good, if_bad = log_likelihoods([Tally(good=1)])
    assert math.exp(if_good[0, at]) == pytest.approx(0.6)
    assert math.exp(if_bad[0, at]) == pytest.approx(0.4)


def test_likelihoods_are_of_a_tally_and_a_pair_of_rates() -> None:
    tallies = [Tally(good=2, bad=1), Tally(bad=3)]
    if_good, if_bad = log_likelihoods(tallies)
    assert if_good.shape == if_bad.shape == (2, 81)
    for row, tally in enumerate(tallies):
        for at in range(81):
            if ALARMS[at] and HIDES[at]:
                good, bad = fits(tally, ALARMS[at]), fits(tally, 1 - HIDES[at])
                assert (math.exp(if_good[row, at]), math.exp(if_bad[row, at])) == pytest.approx(
                    (good, bad)
                )


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([0.0], 0.0),
        ([math.log(2), math.log(3), math.log(5)], math.log(10)),
        ([-1000.0, -1000.0], -1000 + math.log(2)),  # too small for exp
        ([1000.0, 1000.0, 0.0], 1000 + math.log(2)),  # too great for it
    ],
)
def test_the_logarithm_of_a_sum(values: list[float], total: float) -> None:
    assert log_sum(np.array(values)) == pytest.approx(total)


@pytest.mark.parametrize(
    ("chance", "bits"), [(0.0, 0.0), (1.0, 0.0), (0.5, 1.0), (0.25, 0.8112781), (0.9, 0.4689956)]
)
def test_the_entropy_of_an_answer(chance: float, bits: float) -> None:
    assert float(entropy(np.array(chance))) == pytest.approx(bits, abs=1e-7)
    both = entropy(np.array([chance, 1 - chance]))
    assert list(both) == pytest.approx([bits, bits], abs=1e-7)


def axis_bound(candidates: int, **given: Any) -> Bound:
    names = tuple(str(number) for number in range(candidates))
    return AxisSpec(axis="v", candidates=names, **given).bound()


def test_bounds_grow_with_what_is_asked() -> None:
    assert axis_bound(2).runs == 2
    assert axis_bound(33).runs == 7
    assert axis_bound(33, repeat=3).runs == 21
    assert str(axis_bound(9)).startswith("at most 5 runs, plus one for each")
    flaky_runs = [axis_bound(n, repeat="auto").runs for n in (2, 8, 32)]
    assert flaky_runs == sorted(flaky_runs)
    sure = axis_bound(8, repeat="auto", confidence=0.999).runs
    assert sure > flaky_runs[1]
    assert axis_bound(8, repeat="auto", max_runs=50).limit(wasted=9) == 50
    assert ideal_flaky_runs(8, 0, 0.99) == 3
