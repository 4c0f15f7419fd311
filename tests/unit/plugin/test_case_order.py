"""The order in which workers of pytest-xdist get cases."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given, settings, strategies as st

from harness.plugin.case_order import deal, learn_paces, ordered
from tests.properties import reached, reaches

DEVICES = ("a", "b", "c", "d")


def test_few_devices_come_first_then_long_cases_then_the_order_of_the_file() -> None:
    cases = {0: DEVICES, 1: DEVICES, 2: ("a",), 3: DEVICES, 4: ("a", "b"), 5: DEVICES}
    assert ordered(cases, {}) == [2, 4, 0, 1, 3, 5]
    # an unknown length is taken for the median
    assert ordered(cases, {0: 1.0, 3: 9.0, 5: 5.0}) == [2, 4, 3, 1, 5, 0]


def test_each_worker_begins_with_a_long_case_and_has_as_much_to_do_as_the_others() -> None:
    lengths: Mapping[int, float] = {number: float(1 + number) for number in range(40)}
    shares = deal(40, dict.fromkeys(range(40), DEVICES), lengths, {}, 4)
    assert sorted(share.tests[0] for share in shares) == [36, 37, 38, 39]
    for share in shares:
        assert share.tests[::2] == sorted(share.tests[::2], reverse=True)
        assert share.tests[1::2] == sorted(share.tests[1::2])
        assert max(share.tests[1::2]) < min(share.tests[::2])
        assert share.seconds == sum(lengths[number] for number in share.tests)
    assert max(share.seconds for share in shares) < 1.1 * min(share.seconds for share in shares)


def test_cases_of_one_device_go_to_one_worker() -> None:
    cases = {number: (DEVICES[number % 4],) for number in range(40)}
    for share in deal(40, cases, {}, {}, 4):
        assert {cases[number] for number in share.tests} == {(share.device,)}


def test_slow_devices_begin_with_short_cases() -> None:
    lengths = {number: float(1 + number) for number in range(8)}
    cases = dict.fromkeys(range(8), ("fast", "slow"))
    fast, slow = deal(8, cases, lengths, {"fast": 0.5, "slow": 2.0}, 2)
    assert (fast.device, slow.device) == ("fast", "slow")
    assert {7, 6, 5} < {*fast.tests}
    assert sum(lengths[number] for number in slow.tests) < sum(lengths.values()) / 3


def test_paces_come_from_cases_that_several_devices_have_run() -> None:
    lengths, paces = learn_paces(
        {
            "one": {"fast": 1.0, "slow": 3.0},
            "two": {"fast": 4.0, "slow": 12.0},
            "outlier": {"fast": 5.0, "slow": 5.0},
            "three": {"slow": 6.0},
            "four": {"other": 7.0},
            "nothing": {"other": 0.0},
        },
        {},
    )
    assert math.isclose(paces["slow"] / paces["fast"], 3.0)
    assert math.isclose(lengths["two"] / lengths["one"], 4.0)
    assert math.isclose(lengths["three"] / lengths["one"], 2.0)
    assert lengths["four"] == 7.0 / paces["other"]
    assert lengths["nothing"] > 0
    assert learn_paces({}, {}) == ({}, {})


def test_until_then_a_device_has_the_pace_of_its_kind() -> None:
    seconds = {f"case-{number}": {f"slow-{number % 2}": 9.0} for number in range(20)}
    seconds |= {f"case-{number}": {"fast": 3.0} for number in range(20, 40)}
    _, paces = learn_paces(seconds, {"slow-0": "slow", "slow-1": "slow"})
    assert paces["slow-0"] == paces["slow-1"]
    assert 2.5 < paces["slow-0"] / paces["fast"] < 3.0
    _, few = learn_paces({"a": {"slow": 9.0}, "b": {"fast": 3.0}}, {})
    assert 1.0 < few["slow"] / few["fast"] < 1.5


@reaches(0.4)
@settings(deadline=None)
@given(
    devices=st.lists(st.lists(st.sampled_from(DEVICES), unique=True), min_size=8, max_size=30),
    workers=st.integers(1, 4),
    known=st.dictionaries(st.integers(0, 29), st.floats(0, 1e4)),
    paces=st.dictionaries(st.sampled_from(DEVICES), st.floats(0.01, 100)),
)
def test_nothing_is_lost_and_other_tests_keep_their_order(
    devices: list[list[str]], workers: int, known: dict[int, float], paces: dict[str, float]
) -> None:
    cases = {number: names for number, names in enumerate(devices) if names}
    lengths = {number: length for number, length in known.items() if number in cases}
    shares = deal(len(devices), cases, lengths, paces, workers)
    order = [number for share in shares for number in share.tests]
    assert sorted(order) == list(range(len(devices)))
    assert shares == deal(len(devices), cases, lengths, paces, workers)
    others = [number for number in order if number not in cases]
    assert others == sorted(others)
    for share in shares:
        placed = [number for number in share.tests if number in cases]
        assert share.tests[: len(placed)] == placed, "other tests come behind"
    if len(cases) > workers:
        reached()
