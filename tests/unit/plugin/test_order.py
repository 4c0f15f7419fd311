"""In which order workers of pytest-xdist get cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, settings, strategies as st

from harness.plugin.plugin import dealt, ordered
from tests.properties import reached, reaches

DEVICES = ("a", "b", "c", "d")


def shares_of(order: Sequence[int], workers: int) -> list[list[int]]:
    """What `--dist worksteal` gives each worker at first."""
    left, shares = list(order), list[list[int]]()
    for number in range(workers):
        room = len(left) // (workers - number)
        shares.append(left[:room])
        del left[:room]
    return shares


def test_what_few_devices_fit_comes_first_then_what_takes_long_then_by_file() -> None:
    cases = {0: DEVICES, 1: DEVICES, 2: ("a",), 3: DEVICES, 4: ("a", "b"), 5: DEVICES}
    assert ordered(cases, {}) == [2, 4, 0, 1, 3, 5]
    # what is not known takes as long as most do
    assert ordered(cases, {0: 1.0, 3: 9.0, 5: 5.0}) == [2, 4, 3, 1, 5, 0]


def test_each_worker_begins_with_a_long_case_and_has_as_much_to_do_as_the_others() -> None:
    seconds: Mapping[int, float] = {number: float(1 + number) for number in range(40)}
    order = dealt(40, dict.fromkeys(range(40), DEVICES), seconds, 4)
    shares = shares_of(order, 4)
    assert sorted(share[0] for share in shares) == [36, 37, 38, 39]
    assert all(share == sorted(share, reverse=True) for share in shares)
    work = [sum(seconds[one] for one in share) for share in shares]
    assert max(work) < 1.1 * min(work)


def test_cases_of_one_device_go_to_one_worker() -> None:
    cases = {number: (DEVICES[number % 4],) for number in range(40)}
    for share in shares_of(dealt(40, cases, {}, 4), 4):
        assert len({cases[one] for one in share}) == 1


@reaches(0.4)
@settings(deadline=None)
@given(
    fits=st.lists(st.lists(st.sampled_from(DEVICES), unique=True), min_size=8, max_size=30),
    workers=st.integers(1, 4),
    known=st.dictionaries(st.integers(0, 29), st.floats(0, 1e4)),
)
def test_nothing_is_lost_and_other_tests_keep_their_order(
    fits: list[list[str]], workers: int, known: dict[int, float]
) -> None:
    cases = {number: found for number, found in enumerate(fits) if found}
    seconds = {number: found for number, found in known.items() if number in cases}
    order = dealt(len(fits), cases, seconds, workers)
    assert sorted(order) == list(range(len(fits)))
    assert order == dealt(len(fits), cases, seconds, workers)
    others = [one for one in order if one not in cases]
    assert others == sorted(others)
    for share in shares_of(order, workers):
        own = [one for one in share if one in cases]
        assert share[: len(own)] == own, "other tests come behind"
    if len(cases) > workers:
        reached()
