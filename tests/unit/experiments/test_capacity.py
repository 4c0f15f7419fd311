"""The search for the largest number that fits, and what is concluded from several sizes."""

import math

import pytest
from hypothesis import given, strategies as st

from harness.experiments.capacity import (
    SizePoint,
    conclude,
    largest_that_fits,
    repeat_loads,
    settled_limit,
)
from tests.properties import reached, reaches


@given(st.integers(0, 600), st.integers(1, 512), st.integers(-3, 3))
def test_finds_the_true_number_whatever_the_hint_says(true: int, cap: int, lie: int) -> None:
    tried: list[int] = []

    def attempt(number: int) -> int:
        tried.append(number)
        return number if number <= true else min(true + lie, number - 1)

    fits, refused_at = largest_that_fits(attempt, cap)
    assert fits == min(true, cap)
    assert refused_at == (true + 1 if true < cap else None)
    assert len(tried) <= 2 * math.ceil(math.log2(cap + 1)) + 4


def test_an_honest_hint_saves_the_bisection() -> None:
    tried: list[int] = []

    def attempt(number: int) -> int:
        tried.append(number)
        return min(number, 57)

    assert largest_that_fits(attempt, 512) == (57, 58)
    assert tried == [1, 512, 57, 58], "asked for all, and twice where the hint says"


def point(
    size: int, fits: int, refused: bool = True, sequential: tuple[int, int] = (9, 9)
) -> SizePoint:
    return SizePoint(
        label=f"{size}",
        bytes_per_context=size,
        estimate_source="library",
        fits=fits,
        refused_at=fits + 1 if refused else None,
        sequential_loads=sequential[0],
        sequential_tried=sequential[1],
    )


@reaches(0.5)
@given(
    st.integers(2_000_000_000, 5_000_000_000),
    st.lists(st.integers(1_000_000, 90_000_000), min_size=2, max_size=5, unique=True),
)
def test_a_budget_in_bytes_is_found_within_its_own_uncertainty(
    budget: int, sizes: list[int]
) -> None:
    points = [point(size, budget // size) for size in sizes]
    limit = conclude(points)
    if limit.kind == "count":
        # Sizes so near each other that the same number of each fits: nothing tells them apart.
        assert len({p.fits for p in points}) == 1
        return
    reached()
    assert limit.kind == "bytes"
    assert limit.budget_bytes is not None
    assert limit.uncertainty_bytes is not None
    assert abs(limit.budget_bytes - budget) <= limit.uncertainty_bytes
    assert limit.uncertainty_bytes <= min(sizes)


@given(
    st.integers(3, 60),
    st.lists(st.integers(1_000_000, 9_000_000), min_size=2, max_size=4, unique=True),
)
def test_a_count_is_a_count(count: int, sizes: list[int]) -> None:
    limit = conclude([point(size, count) for size in sizes])
    assert (limit.kind, limit.count) == ("count", count)


@pytest.mark.parametrize(
    ("points", "kind"),
    [
        ([point(10, 100, refused=False), point(20, 100, refused=False)], "none"),
        ([point(10, 100, refused=False), point(20, 60)], "bytes"),
        ([point(10, 60), point(20, 60, sequential=(60, 70))], "leak"),
        ([point(10, 90), point(20, 10)], "mixed"),
        ([point(10, 33), point(20, 16), point(30, 11)], "bytes"),
        ([point(10, 3), point(10, 3)], "unclear"),
        ([point(10, 3, refused=False)], "none"),
        ([point(10, 3, sequential=(3, 5))], "leak"),
    ],
)
def test_kinds(points: list[SizePoint], kind: str) -> None:
    assert conclude(points).kind == kind


def test_one_size_cannot_tell() -> None:
    alone = conclude([point(10, 3)])
    assert (alone.kind, alone.count) == ("unclear", 3)
    with pytest.raises(ValueError, match="nothing"):
        conclude([])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [([9], (9, 9)), ([7, 18], (18, 18)), ([7, 7], (7, 18)), ([0, 16], (16, 18))],
)
def test_a_refusal_in_turn_is_looked_at_again(
    answers: list[int], expected: tuple[int, int]
) -> None:
    remaining = iter(answers)
    assert repeat_loads(lambda number: next(remaining), 9) == expected
    assert list(remaining) == []


def test_what_nothing_explains_is_measured_again() -> None:
    mixed, clear = [point(10, 90), point(20, 10)], [point(10, 33), point(20, 16)]
    for rounds, kind in (([clear], "bytes"), ([mixed, clear], "bytes"), ([mixed, mixed], "mixed")):
        remaining = iter(rounds)
        limit, points = settled_limit(lambda remaining=remaining: next(remaining))
        assert (limit.kind, points, list(remaining)) == (kind, rounds[-1], [])
