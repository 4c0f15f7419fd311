"""Distances of runs by chance: against a slow, plain model of it, and rows by hand."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from harness.history import speed_changes

NAN = math.nan
FREEDOM, ANYWHERE = 2, 1 / 80  # as docs/explanation/concepts.md says


def rows(*of: list[float]) -> Any:
    return np.array(of, dtype=float)


def test_a_figure_is_no_better_known_than_by_its_unit_and_half_a_percent() -> None:
    logs = np.log(rows([100, 100, 100], [1000, NAN, NAN], [4, 4, 8]))
    values = speed_changes.resolution(logs, rows([1, 1, 1])[0])
    np.testing.assert_allclose(values, [0.01, 0.005, 0.25])
    values = speed_changes.resolution(rows([NAN], [math.log(4)]), rows([1, 0.5])[0])
    np.testing.assert_allclose(values, [0.005, 0.125])


# --- the scale of a case's noise


def scale_of(
    base: list[list[float]], new: list[list[float]], group: list[int], floor: float = 1e-6
) -> tuple[list[float], list[bool]]:
    """In typical steps: of a case that always steps by 0.1 it is 0.1."""
    least = np.full(len(base), floor / 1.368)
    scale, enough = speed_changes.scales(rows(*base), rows(*new), np.array(group), least)
    return (scale * 1.368).tolist(), enough.tolist()


def steps(*sizes: float) -> list[float]:
    """Runs that are so far from each other, up and down."""
    return np.cumsum([0, *(size * (-1) ** index for index, size in enumerate(sizes))]).tolist()


@pytest.mark.parametrize(
    ("base", "new", "scale", "enough"),
    [
        (steps(0.1, 0.1), [5.0], 0.1, False),  # the way from base to new is no noise
        (steps(0.1, 0.1, 0.1), [5.0], 0.1, True),
        (steps(0.1, 0.1), [5.0, 5.1], 0.1, True),
        (steps(0.1, 0.3, 0.2, 0.1, 0.9), [5.0], 0.2, True),
        ([0.0, NAN, 0.1, NAN, NAN, 0.4], [5.0, NAN], 0.2, False),
        ([NAN, NAN, 0.0, NAN, 0.1, 0.0], [NAN, 5.0, 5.1], 0.1, True),
        ([0.0, 0.1], [5.0], 0.1, False),
        (steps(0.1, 0.1, 0.1), [NAN], 0.1, True),
        ([NAN], [5.0], 1.368, False),
        (steps(1e-9, 1e-9, 1e-9), [5.0], 1e-6, True),
    ],
)
def test_a_case_alone_is_as_noisy_as_its_own_middle_step(
    base: list[float], new: list[float], scale: float, enough: bool
) -> None:
    noise = scale_of([base], [new], [0])
    assert noise == ([pytest.approx(scale)], [enough])


def test_a_case_with_few_steps_is_partly_as_noisy_as_the_middle_one_of_its_group() -> None:
    """With four it is halfway, in logarithms; with none it is as noisy as its group."""
    four, many, none = [0.1] * 4, [0.4] * 8, [NAN] * 9
    base = [[*steps(*four), *[NAN] * 4], steps(*many), steps(*many), none, steps(*[3.0] * 8)]
    base += [[*steps(0.1), *[NAN] * 7], steps(*[3.0] * 8)]
    scale, enough = scale_of(base, [[9.0]] * 7, [0, 0, 0, 0, 1, 0, 1], 0.001)
    # the middle of 0.1, 0.4, 0.4 and, of the last one, 0.1: between both; the other group is none
    middle = math.sqrt(0.1 * 0.4)
    halfway = math.sqrt(0.1 * middle)
    with_many = (0.4**8 * middle**4) ** (1 / 12)
    with_one = (0.1 * middle**4) ** (1 / 5)
    assert scale == pytest.approx([halfway, with_many, with_many, middle, 3.0, with_one, 3.0])
    assert enough == [True] * 7


@pytest.mark.parametrize(("others", "enough"), [(19, False), (20, True)])
def test_twenty_steps_of_a_group_tell_the_noise_of_a_case_that_has_none(
    others: int, enough: bool
) -> None:
    base = [steps(*[0.2] * others), [NAN] * (others + 1)]
    assert scale_of(base, [[9.0]] * 2, [0, 0])[1] == [True, enough]
    assert scale_of(base, [[9.0]] * 2, [0, 1])[1] == [True, False]


def test_the_scale_that_runs_were_drawn_with_is_found_again() -> None:
    drawn = 0.03 * stats.t(FREEDOM).rvs((1, 60_000), random_state=1)
    scale, _ = speed_changes.scales(drawn, rows([NAN]), np.array([0]), np.array([0.005]))
    assert scale[0] == pytest.approx(0.03, rel=0.02)


# --- which runs of the base count


@pytest.mark.parametrize(
    ("base", "new", "most", "expected"),
    [
        ([1, 0, 1, 1], [1], 9, [1, NAN, 1, 1]),
        ([1, 1, 1, 1], [1], 2, [NAN, NAN, 1, 1]),
        ([1, 1, NAN, 1, NAN], [1], 2, [NAN, 1, NAN, 1, NAN]),
        # three scales of 1/4 are near enough, and no more
        ([0.25, 1.75, 0.2, 1.8, 1], [1], 9, [0.25, 1.75, NAN, NAN, 1]),
        # and so is a third of the way to the new runs
        ([3, -1, 3.25, -1.25, 1], [7, 7, 7], 9, [3, -1, NAN, NAN, 1]),
        ([2, -2, 2.25, -2.25, 0], [-6, NAN], 9, [2, -2, NAN, NAN, 0]),
        ([0.75, 0.8, 0], [NAN], 9, [0.75, NAN, 0]),
        # what does not agree is one of the last, too
        ([1, 1, 9, 9, 1], [1], 3, [NAN, NAN, NAN, NAN, 1]),
        ([1], [5], 5, [1]),
        ([NAN, NAN], [5], 5, [NAN, NAN]),
    ],
)
def test_what_agrees_with_the_last_run_is_its_level(
    base: list[float], new: list[float], most: int, expected: list[float]
) -> None:
    level = speed_changes.level(rows(base), rows(new), np.array([0.25]), most)
    np.testing.assert_array_equal(level, rows(expected))


# --- how far medians are apart by chance

GRID = np.sinh(np.linspace(-20, 20, 2001))


@cache
def at_most(runs: int, rank: int, shift: float = 0.0) -> Any:
    """Return how often one of so many runs, in order, is at most each place of the shifted grid."""
    at_most_once = ANYWHERE / 2 + (1 - ANYWHERE) * special.stdtr(FREEDOM, GRID + shift)
    return special.bdtrc(rank - 1, runs, at_most_once)  # of so many, at least the rank


def above(runs: tuple[int, int], ranks: tuple[int, int], distance: float) -> float:
    """Return how often one of new runs is so far above one of the base, added up place by place."""
    base = at_most(runs[0], ranks[0])
    new = 1 - at_most(runs[1], ranks[1], distance)
    between = np.diff(base) @ ((new[1:] + new[:-1]) / 2)
    return float(base[0] * new[0] + between + (1 - base[-1]) * new[-1])


def apart(runs: tuple[int, int], distance: float) -> float:
    """Return how often the nearer ones of the middle runs are so far apart, to either side."""
    return min(1, 2 * above(runs, (runs[0] // 2 + 1, (runs[1] + 1) // 2), distance))


def off(runs: tuple[int, int], distance: float) -> float:
    """Return how often the lower ones of the middle runs are."""
    low, lower = (runs[0] + 1) // 2, (runs[1] + 1) // 2
    return above(runs, (low, lower), distance) + above(runs[::-1], (lower, low), distance)


RUNS = [(1, 1), (1, 2), (2, 1), (2, 2), (5, 1), (2, 3), (3, 2), (4, 3), (4, 5), (5, 5)]


def test_noise_alone_takes_medians_so_far_apart_so_often() -> None:
    distances = [0.3, 4.0, 400.0]
    pairs = [(runs, distance) for runs in RUNS for distance in distances]
    base, new = np.array([runs for runs, _ in pairs]).T
    chances = speed_changes.chance(np.array([distance for _, distance in pairs]), base, new)
    assert chances.tolist() == pytest.approx([apart(*pair) for pair in pairs], rel=0.03)


def test_where_there_are_no_runs_or_no_distance_all_is_chance() -> None:
    distance = np.array([9.0, 9.0, 9.0, 0.0, -3.0, 0.001, 1.0])
    base, new = np.array([[0, 1, 0, 3, 3, 3, 3], [1, 0, 0, 3, 3, 3, 3]])
    chances = speed_changes.chance(distance, base, new)
    assert chances[:6].tolist() == [1.0] * 6
    assert 0 < chances[6] < 1
    assert np.isinf(speed_changes.half_width(base, new)).tolist() == [True] * 3 + [False] * 4


def test_an_interval_leaves_out_one_in_twenty() -> None:
    base, new = np.array(RUNS).T
    for runs, width in zip(RUNS, speed_changes.half_width(base, new).tolist(), strict=True):
        assert off(runs, width) <= 0.0501, runs
        assert off(runs, width / 1.09) > 0.0499, runs


@pytest.mark.parametrize("p", [0.001, 0.003, 0.02])
def test_what_can_be_told_is_what_chance_and_interval_let_through(p: float) -> None:
    detectable = speed_changes.detectable_distance(5, p)
    assert apart((5, 5), detectable) <= 1.01 * p
    assert apart((5, 5), detectable / 1.09) > 0.99 * p
    every = speed_changes.half_width(np.array([5]), np.array([5]))[0]
    assert speed_changes.detectable_distance(5, 0.4) == every, (
        "the interval has to leave out 1, whatever p is"
    )
