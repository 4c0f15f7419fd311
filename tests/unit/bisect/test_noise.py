"""Flaky answers: as right as the confidence promises, within the bound, near the ideal."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bisect.answers import Answer, Place, Tally
from harness.bisect.bounds import axis_bound, ideal_noisy_runs
from harness.bisect.history import histories
from harness.bisect.noise import ALARMS, HIDES, WEIGHTS, WORST, chances_bad
from harness.bisect.search import Search
from tests.unit.bisect.histories import World, axis, changing, drive, names

NUMBER = 8


def flaky(world: World, seed: str, hides: float, alarms: float) -> World:
    chance = random.Random(seed)

    def shown(at: Place) -> Answer:
        answer = world(at)
        if answer == "bad":
            return "good" if chance.random() < hides else "bad"
        if answer == "good":
            return "bad" if chance.random() < alarms else "good"
        return answer

    return shown


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("hides", [0.10, 0.25, 0.35])
def test_a_hundred_seeds(hides: float, share: float) -> None:
    right, runs = 0, 0
    for seed in range(100):
        k = 1 + seed % (NUMBER - 1)
        world = flaky(changing(NUMBER, k), f"{hides} {share} {seed}", hides, hides * share)
        search = Search(axis(NUMBER, repeat="auto"))
        found, asked = drive(search, world)
        assert len(asked) <= search.bound.runs
        runs += len(asked)
        right += found.kind == "change" and found.after == names(NUMBER)[k]
    ideal = ideal_noisy_runs(NUMBER, hides, 0.99)
    print(
        f"hides {hides:.0%}, alarms {hides * share:.1%}: {right} of 100 right, "
        f"{runs / 100:.1f} runs on average; ideal if both are {hides:.0%}: {ideal:.1f}"
    )
    assert right >= 97


def test_a_steady_test_is_repeated_little() -> None:
    for k in range(1, NUMBER):
        found, asked = drive(Search(axis(NUMBER, repeat="auto")), changing(NUMBER, k))
        assert found.after == names(NUMBER)[k]
        assert len(asked) <= 12
    for first in ("good", "bad"):
        found, asked = drive(Search(axis(NUMBER, repeat="auto")), lambda _, all=first: all)  # type: ignore[misc]
        assert (found.kind, found.verdict) == ("no-change", first)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 14),
    st.integers(0, 14),
    st.sampled_from(["good", "bad"]),
    st.frozensets(st.integers(0, 13), max_size=6),
    st.floats(0, 0.39),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_any_history_and_rate_ends_within_the_bound_and_is_honest(
    number: int,
    k: int,
    first: Answer,
    holes: frozenset[int],
    hides: float,
    share: float,
    seed: int,
) -> None:
    order = names(number)
    truth = changing(number, min(k, number), first, holes)
    search = Search(axis(number, repeat="auto", confidence=0.9999, max_runs=400))
    found, asked = drive(search, flaky(truth, str(seed), hides, hides * share))
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


def test_two_changes_are_noticed() -> None:
    world = {name: "bad" if i in (4, 5, 6) else "good" for i, name in enumerate(names(12))}
    known = [Tally(good=6) if answer == "good" else Tally(bad=6) for answer in world.values()]
    assert not histories(known, [1.0] * 11, [None] * 12).one_change
    steady = [Tally(good=1) if i < 5 else Tally(bad=1) for i in range(12)]
    assert histories(steady, [1.0] * 11, [None] * 12).one_change


def test_the_table_of_rates_is_a_prior() -> None:
    assert float(WEIGHTS.sum()) == pytest.approx(1)
    assert float(HIDES.max()) == WORST
    assert (ALARMS <= HIDES).all()


def test_unconnected_places_share_the_rates() -> None:
    alone = chances_bad([Tally(good=2)])[0]
    beside_flaky = chances_bad([Tally(good=2), Tally(good=7, bad=8)])[0]
    assert beside_flaky > alone
    assert chances_bad([]) == []
    assert chances_bad([Tally()])[0] == pytest.approx(0.5)


def test_bounds_grow_with_what_is_asked() -> None:
    assert axis_bound(2).runs == 2
    assert axis_bound(33).runs == 7
    assert axis_bound(33, repeat=3).runs == 21
    assert str(axis_bound(9)).startswith("at most 5 runs, and one more for each")
    noisy = [axis_bound(n, repeat="auto").runs for n in (2, 8, 32)]
    assert noisy == sorted(noisy)
    sure = axis_bound(8, repeat="auto", confidence=0.999).runs
    assert sure > noisy[1]
    assert axis_bound(8, repeat="auto", max_runs=50).limit(wasted=9) == 50
    assert ideal_noisy_runs(8, 0, 0.99) == 3
    with pytest.raises(ValueError, match="no candidates"):
        axis_bound(0)
