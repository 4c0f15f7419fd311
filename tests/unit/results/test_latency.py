"""Statistics of inference times, on those of a phone and on generated ones."""

import csv
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.results.latency import PERCENTILES, is_steady, percentile, steady_start
from tests.unit.containers.made import FIELD

csv.field_size_limit(1 << 20)
with (FIELD / "phone-latencies.tsv").open() as file:
    BENCHMARKS = {row["benchmark"]: row for row in csv.DictReader(file, delimiter="\t")}


def latencies(row: dict[str, Any]) -> list[float]:
    return [float(time) for time in row["last_latencies_us"].split()]


@pytest.mark.parametrize("name", PERCENTILES)
@pytest.mark.parametrize("row", BENCHMARKS.values(), ids=BENCHMARKS)
def test_intervals_of_subsamples_of_a_phone_cover_the_percentile_of_all(
    row: dict[str, Any], name: str
) -> None:
    times, part, chosen = latencies(row), PERCENTILES[name], random.Random(7)
    whole = percentile(times, part).value
    for size in (100, 400, 1024):
        if size > len(times):
            continue
        samples = [sorted(chosen.sample(range(len(times)), size)) for _ in range(200)]
        parts = [percentile([times[index] for index in kept], part) for kept in samples]
        covering = [part for part in parts if (part.low or 0) <= whole <= (part.high or whole)]
        assert len(covering) >= 0.95 * 200
        if size == 1024:
            assert sum(part.high is not None for part in parts) >= 0.9 * 200


@pytest.mark.parametrize("row", BENCHMARKS.values(), ids=BENCHMARKS)
def test_the_last_second_of_a_phone_is_near_what_mlperf_tells_of_the_whole_minute(
    row: dict[str, Any],
) -> None:
    times = latencies(row)
    assert (steady_start(times), is_steady(times)) == (0, True)
    for name, part in PERCENTILES.items():
        assert percentile(times, part).value == pytest.approx(float(row[f"{name}_us"]), rel=0.02)


NOISE = random.Random(3)
STEADY = [NOISE.gauss(500, 8) for _ in range(400)]


@pytest.mark.parametrize(
    ("before", "least"),
    [
        ([9000.0, 700.0], 2),
        ([500 + 400 * 0.95**index for index in range(100)], 60),
        ([460 + index / 5 for index in range(150)], 100),
        ([], 0),
    ],
    ids=["cold", "warming", "drifting", "steady"],
)
def test_what_comes_before_the_steady_state_is_dropped(before: list[float], least: int) -> None:
    times = [time + NOISE.gauss(0, 4) for time in before] + STEADY
    start = steady_start(times)
    assert least <= start <= len(before) + 5
    assert is_steady(times[start:])
    assert percentile(times[start:], 0.5).value == pytest.approx(500, rel=0.005)


def test_times_that_never_settle_say_so() -> None:
    times = [500 + index + NOISE.gauss(0, 4) for index in range(400)]
    assert steady_start(times) == 200
    assert not is_steady(times[200:])
    assert [steady_start(times[:count]) for count in (0, 1, 19)] == [0, 0, 0]


def test_a_percentile_that_few_times_cannot_bound_has_no_bound() -> None:
    bounded = percentile(range(1, 1001), 0.5)
    assert bounded.value == 500
    few = percentile([3, 1, 2], 0.99)
    assert (few.value, few.low, few.high) == (3, 2, None)
    assert [percentile(range(1, count), 0.9).value for count in (2, 3, 101)] == [1, 2, 90]
    with pytest.raises(ValueError, match="needs times"):
        percentile([], 0.5)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=300),
    st.sampled_from([*PERCENTILES.values()]),
)
def test_percentiles_of_any_times_are_of_them(times: list[int], part: float) -> None:
    start = steady_start(times)
    assert 0 <= start <= len(times) // 2
    of_all = percentile(times, part)
    assert {of_all.value, of_all.low, of_all.high} <= {*times, None}
    low, high = (of_all.value if end is None else end for end in (of_all.low, of_all.high))
    assert low <= of_all.value <= high
    assert sum(time <= of_all.value for time in times) >= part * len(times)
    assert sum(time < of_all.value for time in times) < part * len(times)
    twice = percentile([2 * time for time in times], part)
    assert (twice.value, steady_start([2 * time for time in times])) == (2 * of_all.value, start)
    assert is_steady([5] * len(times)) is (True if len(times) >= 20 else None)
