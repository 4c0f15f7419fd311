"""Same latency or not: by table, and whatever the noise never wrong by more than it says."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.experiments.latency import (
    Latency,
    quickest,
    same_latency,
)
from tests.properties import reached, reaches


def verdict(first: tuple[int, ...], other: tuple[int, ...] | None) -> str:
    compared = None if other is None else Latency(other)
    check = same_latency("latency", Latency(first), compared, "the other")
    return check.verdict


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ((1000,) * 30, (1000,) * 30, "held"),
        ((1249,) * 30, (1000,) * 30, "held"),
        ((1251,) * 30, (1000,) * 30, "broken"),
        ((1000,) * 30, (1251,) * 30, "broken"),
        # the floor, and that it never hides more than half
        ((590,) * 30, (400,) * 30, "held"),
        ((610,) * 30, (400,) * 30, "broken"),
        ((160,) * 30, (100,) * 30, "broken"),
        # just as far apart as is allowed, by the part, the floor and the most
        ((1250,) * 30, (1000,) * 30, "held"),
        ((700,) * 30, (500,) * 30, "held"),
        ((701,) * 30, (500,) * 30, "broken"),
        ((150,) * 30, (100,) * 30, "held"),
        # twice the spread hides what is no further apart, and half of it, everything
        ((750, 1000, 1250) * 10, (1000,) * 30, "held"),
        ((740, 1000, 1260) * 10, (1000,) * 30, "unseen"),
        ((1100, 1300, 1500) * 10, (1000,) * 30, "unseen"),
        ((1100, 1400, 1700) * 10, (1000,) * 30, "unseen"),
        ((1200, 1400, 1600) * 10, (1000,) * 30, "unseen"),
        ((1201, 1401, 1601) * 10, (1000,) * 30, "broken"),
        # what was once taken for the same: half as long, within four times the spread
        ((1257,) * 30, (1400, 2418, 3438) * 10, "unseen"),
        ((1000, 2000, 3000) * 10, (1000, 2000, 3000) * 10, "unseen"),
        ((9000, 9300, 9600) * 10, (1000, 1300, 1600) * 10, "broken"),
        ((), (1000,), "unseen"),
        ((1000,), (), "unseen"),
        ((1000,), None, "unseen"),
    ],
)
def test_medians_are_compared(
    first: tuple[int, ...], other: tuple[int, ...] | None, expected: str
) -> None:
    assert verdict(first, other) == expected


# around one time, as what is measured is: of 30 times at random nothing can be said
TIMES = st.tuples(
    st.integers(1, 10**7), st.lists(st.integers(-20, 20), min_size=30, max_size=30)
).map(lambda pair: tuple(pair[0] + pair[0] * percent // 100 for percent in pair[1]))


@reaches(0.3)
@given(TIMES, TIMES)
def test_what_is_held_is_never_half_as_much_again(
    first: tuple[int, ...], other: tuple[int, ...]
) -> None:
    outcome = verdict(first, other)
    assert outcome == verdict(other, first)
    medians = sorted(Latency(times_us).median_us or 0 for times_us in (first, other))
    if outcome != "unseen":
        reached()
    if outcome == "held":
        assert medians[1] <= 1.5 * medians[0]
    if outcome == "broken":
        assert medians[1] > 1.25 * medians[0]


def test_the_quickest_process_counts() -> None:
    slow, quick = Latency((2000, 2000, 2000)), Latency((1000, 1010))
    assert quickest([slow, Latency(()), quick]) is quick
    assert quickest([]) == Latency(())


def test_times_and_their_spread() -> None:
    latency = Latency((5, 1, 2, 9))
    assert (latency.median_us, latency.spread_us) == (3.5, 2)
    assert (Latency(()).median_us, Latency(()).spread_us) == (None, 0)
