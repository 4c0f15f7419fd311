"""How far a run is, by what is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.ground.progress.state import Lines, RunState, cleaned, clock, plain_is_due

CASES = {
    "s.py::test_a[1]": "one",
    "s.py::test_a[2]": "one",
    "s.py::test_b[1]": "two",
    "s.py::test_b[2]": "two",
}


def test_facts_of_a_device_are_put_together_however_it_is_called() -> None:
    lines = Lines()
    lines.merge("R5CX", {"name": "phone", "degrees": 41.5})
    lines.merge("phone", {"case": "s.py::test_a[1]"})
    lines.merge("R5CX", {"step": 2, "steps": 9, "verb": "noop"})
    told = {"degrees": 41.5, "case": "s.py::test_a[1]", "step": 2, "steps": 9, "verb": "noop"}
    assert lines.merge("R5CX", {}) == ("phone", told)
    # another case has nothing of the one before; what is told to be over goes
    assert lines.merge("phone", {"case": "s.py::test_a[2]"}) == (
        "phone",
        {"degrees": 41.5, "case": "s.py::test_a[2]"},
    )
    assert lines.merge("phone", {"case": None, "degrees": None}) == ("phone", {})
    assert lines.merge("", {"doing": "compiling"}) == ("this computer", {"doing": "compiling"})


def test_devices_without_end_are_not_kept() -> None:
    lines = Lines()
    kept = [lines.merge(f"d{number}", {"name": f"n{number}"}) for number in range(1000)]
    assert kept[0] == ("n0", {})
    assert kept[-1] is None
    # those that are kept go on
    assert lines.merge("d0", {"verb": "noop"}) == ("n0", {"verb": "noop"})
    assert lines.merge("n1", {"verb": "noop"}) == ("n1", {"verb": "noop"})
    assert lines.merge("another name", {"name": "n1"}) is None
    state = RunState(CASES, 0.0)
    for number in range(1000):
        state.take(f"d{number}", {"verb": "noop"}, 0.0)
    state.take("one", {"verb": "hang"}, 0.0)
    assert len(state.devices) < 1000
    assert state.devices["one"].facts == {"verb": "hang"}


def test_what_is_no_fact_or_not_of_its_kind_is_passed_over() -> None:
    wrong = {"colour": "red", "size": 3, "gone": None, "verb": 3, "step": "x", "done": [1]}
    assert Lines().merge("phone", wrong) == ("phone", {})
    assert cleaned({"gone": None, "verb": None}) == {"verb": None}


def test_a_device_that_was_not_planned_is_followed_too() -> None:
    state = RunState(CASES, 0.0)
    state.take("this computer", {"doing": "compiling"}, 0.0)
    assert state.devices["this computer"].facts == {"doing": "compiling"}


@given(st.dictionaries(st.text(), st.none() | st.text() | st.floats() | st.integers()))
def test_whatever_is_told_is_bounded_text_and_numbers(facts: dict[str, object]) -> None:
    known = dict(zip(["case", "verb", "doing", "step", "done"], facts.values(), strict=False))
    merged = Lines().merge("x\x1b[2J\n" + "y" * 999, facts | known)
    assert merged is not None
    device, line = merged
    assert len(device) <= 200
    assert device.isprintable()
    for fact in line.values():
        if isinstance(fact, str):
            assert len(fact) <= 200
            assert "\n" not in fact
            assert "\x1b" not in fact
        else:
            assert abs(fact) < 1 << 60


def test_the_rate_is_that_since_it_began() -> None:
    state = RunState(CASES, 0.0)
    state.take("one", {"doing": "pushing", "done": 10, "total": 100}, 5.0)
    device = state.devices["one"]
    assert device.rate(99.0) is None
    state.take("one", {"doing": "pushing", "done": 50, "total": 100}, 5.5)
    # what is younger than a second says nothing
    assert [device.rate(now) for now in (5.9, 6.0, 9.0)] == [None, 40, 10]
    state.take("one", {"doing": "pushing", "done": 11, "total": 100}, 9.0)
    assert device.rate(9.0) == 0.25
    state.take("one", {"doing": "compiling", "done": 0, "total": 100}, 9.0)
    assert device.rate(99.0) is None


def test_time_left_is_of_the_last_run_and_else_of_this_one() -> None:
    state = RunState(CASES, 0.0)
    assert state.left_s(0.0) is None
    state.ended("s.py::test_a[1]", 4.0)
    assert state.left_s(0.0) == 12
    # a case that it does not know takes as long as others of its test
    state.expect({"s.py::test_a[2]": 10.0, "s.py::test_b[0]": 1.0, "s.py::test_b[9]": 3.0})
    assert state.left_s(0.0) == 14
    # what the case under way has taken is not counted again, and never more than it should take
    state.take("one", {"case": "s.py::test_a[2]"}, 100.0)
    assert state.left_s(104.0) == 10
    assert state.left_s(999.0) == 4
    for case in CASES:
        state.ended(case, 1.0)
    assert state.left_s(999.0) == 0


def test_a_case_that_is_new_is_thought_to_take_as_long_as_others_do() -> None:
    state = RunState(CASES, 0.0)
    state.ended("s.py::test_a[1]", 6.0)
    state.take("two", {"case": "s.py::test_b[1]"}, 10.0)
    assert [state.left_s(now) for now in (10.0, 12.0, 16.0, 99.0)] == [18, 16, 12, 12]


def test_only_a_case_of_this_run_that_is_not_over_takes_from_the_time_left() -> None:
    state = RunState(CASES, 0.0)
    state.expect(dict.fromkeys(CASES, 5.0))
    for case in ("s.py::test_a[1]", "s.py::no_case"):
        state.take("one", {"case": case}, 0.0)
        state.ended(case, 5.0)
        assert state.left_s(3.0) == 15
    # of those under way side by side, what they have taken on average
    state.take("one", {"case": "s.py::test_a[2]"}, 3.0)
    state.take("two", {"case": "s.py::test_b[1]"}, 5.0)
    assert state.left_s(7.0) == 12


def test_a_case_of_another_test_takes_as_long_as_all_do_on_average() -> None:
    state = RunState(CASES, 0.0)
    state.expect({"s.py::test_a[1]": 2.0, "s.py::test_a[2]": 4.0})
    assert state.left_s(0.0) == 12
    state = RunState(CASES, 0.0)
    for case, seconds in (("s.py::test_a[1]", 0.5), ("s.py::test_a[2]", -3.0)):
        state.ended(case, seconds)
    assert state.left_s(0.0) == 0.5


def test_a_run_without_cases_has_no_time_left() -> None:
    state = RunState({}, 0.0)
    assert state.left_s(9.0) is None
    state.expect({"s.py::test_a[1]": 2.0})
    assert state.left_s(9.0) == 0


def test_devices_that_share_cases_take_their_part_each() -> None:
    cases = dict.fromkeys(CASES, "pool")
    for workers, left in ((1, 12.0), (2, 6.0), (3, 6.0)):
        state = RunState(cases, 0.0, side_by_side=workers, sharing={"pool": 2})
        state.expect(dict.fromkeys(CASES, 3.0))
        assert state.left_s(0.0) == left


@pytest.mark.parametrize(("side_by_side", "left"), [(1, 9.0), (2, 6.0), (3, 6.0)])
def test_devices_side_by_side_take_as_long_as_the_slowest(side_by_side: int, left: float) -> None:
    state = RunState(CASES, 0.0, side_by_side=side_by_side)
    state.expect(
        {"s.py::test_a[1]": 1, "s.py::test_a[2]": 2, "s.py::test_b[1]": 3, "s.py::test_b[2]": 3}
    )
    assert state.left_s(0.0) == left


def test_each_case_counts_once() -> None:
    state = RunState(CASES, 0.0)
    assert state.ended("s.py::test_a[1]", 1.0, failed=True)
    assert not state.ended("s.py::test_a[1]", 1.0, failed=True)
    assert not state.ended("s.py::no_case", 1.0, failed=True)
    assert state.ended("s.py::test_a[2]", 1.0, lab=True)
    assert state.ended("s.py::test_b[1]", 1.0, failed=True, lab=True)
    assert (state.done, state.failed, state.lab_errors) == (3, 2, 1)
    assert [state.waiting[name] for name in ("one", "two", "none")] == [0, 1, 0]


@pytest.mark.parametrize(
    ("done", "total", "since_s", "done_since", "due"),
    [
        (10, 100, 30.0, 10, True),
        (10, 100, 29.9, 10, False),
        (9, 100, 300.0, 9, False),
        (19, 100, 300.0, 9, False),
        (1, 3, 30.0, 1, True),
        (3, 3, 30.0, 1, False),
        (5, 11, 30.0, 1, False),
    ],
)
def test_a_plain_line_is_due_after_a_time_and_a_tenth(
    done: int, total: int, since_s: float, done_since: int, due: bool
) -> None:
    assert plain_is_due(done, total, since_s, done_since) == due


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0:00"),
        (0.2, "0:01"),
        (61, "1:01"),
        (3600, "1:00:00"),
        (359_999, "99:59:59"),
        (360_000, "100 h+"),
        (1e9, "100 h+"),
        (float("inf"), "100 h+"),
    ],
)
def test_clock(seconds: float, said: str) -> None:
    assert clock(seconds) == said
