"""Differences in the surroundings of two measurements, in words."""

from typing import Any

import pytest

from harness.history.environment_differences import (
    devices_gone,
    differences,
    files_changed,
    files_used,
    named_files,
)

USUAL: dict[str, Any] = {
    "log_level": "warn",
    "cases_before": 1,
    "rounds": 100,
    "hottest_c": 40.0,
    "clock_limit_khz": 2_800_000,
    "governor": "walt",
    "seen_s": 3.0,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"hottest_c": 44.9, "clock_limit_khz": 2_700_000, "cases_before": 10}, []),
        ({"hottest_c": 52.2}, ["12 C hotter"]),
        ({"hottest_c": 35.0}, ["5 C cooler"]),
        ({"hottest_c": 52.0, "seen_s": 600}, ["12 C hotter"]),
        ({"hottest_c": 52.0, "seen_s": 601}, []),
        ({"clock_limit_khz": 1_500_000}, ["clocks up to 1500 MHz (was 2800)"]),
        ({"governor": "powersave"}, ["governor powersave (was walt)"]),
        ({"log_level": "verbose"}, ["log level verbose (was warn)"]),
        ({"log_level": "verbose", "seen_s": 3600}, ["log level verbose (was warn)"]),
        ({"profile_run": "full"}, ["profile run full (was usual)"]),
        ({"rounds": 26}, []),
        ({"rounds": 1}, ["at most 1 round of a graph (was 100)"]),
        ({"cases_before": 17}, ["number 18 on its device (was 2)"]),
        ({"log_level": "x" * 99}, [f"log level {'x' * 40} (was warn)"]),
        ({"hottest_c": 52, "log_level": "off"}, ["12 C hotter", "log level off (was warn)"]),
        # just far enough, or not
        ({"clock_limit_khz": 2_660_000}, []),
        ({"clock_limit_khz": 2_940_001}, ["clocks up to 2940 MHz (was 2800)"]),
        ({"cases_before": 9}, []),
        ({"cases_before": 19}, ["number 20 on its device (was 2)"]),
    ],
)
def test_what_is_far_apart_is_told(changed: dict[str, Any], expected: list[str]) -> None:
    assert list(differences([USUAL], [USUAL | changed])) == expected


def test_a_case_is_as_far_back_as_it_was_by_its_part() -> None:
    for before, now, is_far in ((19, 9, True), (18, 9, False), (20, 10, False), (99, 112, False)):
        sides = ([USUAL | {"cases_before": number}] for number in (before, now))
        assert bool([*differences(*sides)]) is is_far


@pytest.mark.parametrize("odd", ["hot", None, True, float("nan"), 10**400, [50], {"c": 50}])
@pytest.mark.parametrize("name", list(USUAL))
def test_what_is_no_such_thing_is_not_told(name: str, odd: object) -> None:
    if name in ("log_level", "governor") and isinstance(odd, str):
        return
    assert list(differences([USUAL], [USUAL | {name: odd}])) == []
    assert list(differences([USUAL | {name: odd}], [USUAL])) == []
    assert list(differences([{}], [USUAL])) == []


def test_of_many_cases_the_middle_counts_and_no_order() -> None:
    hot = [USUAL | {"hottest_c": heat, "cases_before": 50} for heat in (40, 52, 53)]
    assert list(differences([USUAL] * 3, hot)) == ["12 C hotter"]


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        ({"a.py": "1", "b.py": "2"}, {"b.py": "3", "a.py": "1"}, ("b.py",)),
        ({"a.py": "1", "gone.py": "2"}, {"a.py": "1", "fresh.py": "2"}, ("fresh.py", "gone.py")),
        # a run of before says nothing of them, which is no change
        (None, {"a.py": "1"}, ()),
        ({"a.py": "1"}, None, ()),
        ({}, {"a.py": "1"}, ()),
    ],
)
def test_files_of_tests_that_changed(base: object, new: object, expected: tuple[str, ...]) -> None:
    assert files_changed({"code": base}, {"code": new}) == expected
    assert files_changed(None, {"code": new}) == ()


AUDIO, VISION = "t/audio/test_audio.py::test_a[p]", "t/vision/test_vision.py::test_v[p-net.pte]"


@pytest.mark.parametrize(
    ("file", "case", "others", "is_used"),
    [
        ("audio/test_audio.py", AUDIO, [VISION], True),
        ("vision/test_vision.py", AUDIO, [VISION], False),  # also one that was removed
        ("vision/signals.py", AUDIO, [VISION], False),
        ("conftest.py", AUDIO, [VISION], True),
        ("../conftest.py", AUDIO, [VISION], True),
        ("net.pte", AUDIO, [VISION], False),
        ("net.pte", VISION, [AUDIO], True),
        ("inputs", AUDIO, [VISION], True),  # whose they are no name tells
        ("vision/signals.py", "test_a.py::test_a", [VISION], True),
        ("t/vision/signals.py", "test_a.py::test_a", [VISION], False),
        ("test_a.py", "test_a.py::test_a", [VISION], True),
    ],
)
def test_only_files_that_cases_may_use_can_have_brought_it(
    file: str, case: str, others: list[str], is_used: bool
) -> None:
    assert files_used([file], {case}, set(others)) == ((file,) if is_used else ())


@pytest.mark.parametrize(
    ("base", "new", "missing"), [(["a", "b"], ["a"], ("b",)), (["a"], None, ()), (None, ["a"], ())]
)
def test_devices_that_are_not_used_any_more(base: Any, new: Any, missing: tuple[str, ...]) -> None:
    assert devices_gone({"devices": base}, {"devices": new}) == missing


def test_of_many_files_the_first_are_named() -> None:
    assert named_files(["a", "b"]) == "a, b"
    assert named_files(list("abcdefg")) == "a, b, c, d, e and 2 more"
