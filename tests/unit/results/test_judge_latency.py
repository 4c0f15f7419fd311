"""Same latency or not: by table, and whatever the noise never wrong by more than it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.judge_latency import Latency, LatencyTolerance, same_latency

TOLERANCE = LatencyTolerance()


def verdict(own: tuple[int, ...], other: tuple[int, ...] | None) -> str:
    compared = None if other is None else Latency(other)
    check = same_latency("latency", Latency(own), compared, "the other", TOLERANCE)
    return check.verdict


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ((1000,) * 30, (1000,) * 30, "held"),
        ((1249,) * 30, (1000,) * 30, "held"),
        ((1251,) * 30, (1000,) * 30, "broken"),
        ((1000,) * 30, (1251,) * 30, "broken"),
        # the floor, and that it never hides more than half
        ((590,) * 30, (400,) * 30, "held"),
        ((610,) * 30, (400,) * 30, "broken"),
        ((160,) * 30, (100,) * 30, "broken"),
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
    own: tuple[int, ...], other: tuple[int, ...] | None, expected: str
) -> None:
    assert verdict(own, other) == expected


TIMES = st.lists(st.integers(1, 10**7), min_size=30, max_size=30).map(tuple)


@given(TIMES, TIMES)
def test_what_is_held_is_never_half_as_much_again(
    own: tuple[int, ...], other: tuple[int, ...]
) -> None:
    found = verdict(own, other)
    assert found == verdict(other, own)
    medians = sorted(Latency(one).median_us or 0 for one in (own, other))
    if found == "held":
        assert medians[1] <= 1.5 * medians[0]
    if found == "broken":
        assert medians[1] > 1.25 * medians[0]
