"""How fast devices are, learnt from what they ran."""

from __future__ import annotations

import pytest

from harness.run.scheduling.pace import Paces, paces_of


def test_a_device_is_as_fast_as_its_cases_were_and_a_new_one_like_the_others() -> None:
    paces = Paces()
    assert paces.of("a") == 1.0
    paces.expect("b", 2.0)
    for took in (3.0, 3.0, 60.0):
        assert paces.of("a") == 1.0, "one case may be anything"
        paces.learn("a", 1.0, took)
    assert paces.of("a") == 3.0
    assert paces.of("b") == 2.0
    assert paces.of("new") == 2.5
    paces.learn("a", 0.0, 1.0)
    assert paces.differ(["a", "b"])
    assert not paces.differ(["a"])
    assert not paces.differ([])


@pytest.mark.parametrize(("slow", "found"), [(3.0, 3.0), (2.0, 2.0), (1.2, None)])
def test_what_a_run_took_tells_the_paces_and_durations_without_them(
    slow: float, found: float | None
) -> None:
    rows = [
        (f"case-{test}-{device}-{n}", test, device, seconds * (slow if device == "slow" else 1))
        for test, seconds in (("short", 1.0), ("long", 50.0))
        for device in ("fast-1", "fast-2", "slow")
        for n in range(6)
    ]
    durations, paces = paces_of([*rows, ("lone", "once", "slow", 8.0)])
    if found is None:
        assert paces == {}
        assert durations["lone"] == 8.0
    else:
        assert paces == {"slow": slow}
        assert durations["lone"] == 8.0 / slow
        assert durations["case-long-slow-0"] == durations["case-long-fast-1-0"] == 50.0


def test_of_few_cases_nothing_is_told() -> None:
    assert paces_of([("a", "t", "x", 1.0), ("b", "t", "y", 9.0)])[1] == {}


def test_it_is_said_when_much_has_changed() -> None:
    paces = Paces()
    assert paces.learn("a", 2.0, 0.0) is False
    assert paces.learn("a", 0.0, 2.0) is False
    assert [paces.learn("a", 2.0, 1.0) for _ in range(3)] == [False, False, True]
    assert paces.of("a") == 0.5, "what took no time has not been counted"
    assert paces.learn("a", 2.0, 1.0) is False
    assert [paces.learn("a", 2.0, 1.04) for _ in range(8)] == [False] * 8
    assert paces.of("a") == 0.52


def test_only_what_it_ran_last_tells_how_fast_a_device_is() -> None:
    paces = Paces()
    for took in (*[1.0] * 16, *[3.0] * 16):
        paces.learn("a", 1.0, took)
    assert paces.of("a") == 3.0


def test_devices_differ_from_a_pace_on() -> None:
    paces = Paces()
    paces.expect("a", 1.0)
    paces.expect("b", 1.15)
    paces.expect("c", 1.16)
    assert not paces.differ(["a", "b"])
    assert paces.differ(["a", "c"])


def test_what_one_device_alone_ran_says_nothing_of_its_pace() -> None:
    of_two = [(f"{on}-{n}", "t", on, s) for on, s in (("a", 0.1), ("b", 0.3)) for n in range(6)]
    assert paces_of(of_two)[1] == pytest.approx({"a": 0.5, "b": 1.5})
    lone = [(f"lone-{n}", "own", "b", 9.0) for n in range(6)]
    assert paces_of(lone)[1] == {}
    assert paces_of([*of_two, *lone])[1] == pytest.approx({"a": 0.5, "b": 1.5})
