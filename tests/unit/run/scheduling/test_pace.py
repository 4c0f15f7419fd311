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


@pytest.mark.parametrize(("slow", "found"), [(3.0, 3.0), (1.2, None)])
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
