"""What is said of changes that are made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.answers.history.comparison_json import SpeedRow
from harness.answers.history.performance import Change, Group, JudgedSpeed
from harness.answers.history.speed import Figure, Speed
from harness.answers.history.speed_text import noise_lines, noise_said, speed_counts, speed_lines


def change(
    case: str | None, verdict: str, ratio: float, figure: str = "run_us", **more: Any
) -> Change:
    sides = {"low": 0.9 * ratio, "high": 1.2 * ratio, "p": 0.1, "base_runs": 4, "new_runs": 2}
    name = Figure(more.pop("device", "farm-1"), case, figure)
    return Change(name, verdict, ratio, **sides | more)  # type: ignore[arg-type]


def speed(*changes: Change, common: Change | None = None, runs: int = 9, **more: Any) -> Speed:
    groups = [Group("g", 9, 1.0, 1.0, 1.0, common), Group("other", 1, 1.0, 0.0, 1.0, None)]
    return Speed(0.1, runs - 2, 2, JudgedSpeed(changes, groups), **more)


def test_a_line_for_each_change_the_furthest_first_and_devices_before_cases() -> None:
    some = speed(
        change("a", "slower", 1.5),
        change("b", "slower", 1.6, "rss_bytes.peak"),
        change("c", "faster", 0.5),
        change("d", "faster", 0.25, "rss_bytes.peak", new_runs=1),
        change("e", "same", 1.0),
        change("f", "same", 1.0),
        common=change(None, "slower", 1.2),
    )
    some.around[some.judged.changes[0].name] = ("8 C hotter", "governor a (was b)")
    assert list(speed_lines(some)) == [
        "slower: run_us of all cases on farm-1 x 1.2 (1.08 to 1.44, 4 + 2 runs)",
        "more: rss_bytes.peak of b x 1.6 (1.44 to 1.92, 4 + 2 runs)",
        "slower: run_us of a x 1.5 (1.35 to 1.8, 4 + 2 runs); also 8 C hotter, governor a (was b)",
        "less: rss_bytes.peak of d x 0.25 (0.225 to 0.3, 4 + 1 run)",
        "faster: run_us of c x 0.5 (0.45 to 0.6, 4 + 2 runs)",
        "speed and memory: 2 figures the same within 10 %",
    ]
    assert speed_counts(some) == [("figures slower", 3), ("figures faster", 2)]
    assert speed_counts(speed(change("a", "slower", 1.5))) == [("figure slower", 1)]
    assert speed_counts(speed(change("a", "same", 1.5))) == []


def test_only_the_first_are_told_and_how_many_more_there_are() -> None:
    many = [change(str(n), "slower", 2 + n / 10) for n in range(5)]
    many += [change(str(n), "faster", 0.5) for n in range(3)]
    many += [change(str(n), "unsure", 1.5, suspect=True) for n in range(4)]
    found = list(speed_lines(speed(*many), 3))
    assert [one.partition(":")[0] for one in found] == [
        *["slower"] * 3,
        "... and 2 more slower",
        *["faster"] * 3,
        *["perhaps slower"] * 3,
        "... and 1 more that may have changed",
        "speed and memory",
    ]
    assert [one.partition(" x ")[0] for one in found[:2]] == [
        "slower: run_us of 4",
        "slower: run_us of 3",
    ]
    assert [one for one in speed_lines(speed(*many), 4) if one.startswith("...")] == [
        "... and 1 more slower"
    ]
    fewer = list(speed_lines(speed(*many), 5))
    assert not [one for one in fewer if one.startswith("...")]
    twenty_one = [change(str(n), "slower", 2.0) for n in range(21)]
    assert list(speed_lines(speed(*twenty_one)))[20] == "... and 1 more slower"


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({"more_new": 1}, "1 more run would tell"),
        ({"more_new": 3}, "3 more runs would tell"),
        ({"more_base": 1}, "1 more of the base would tell"),
        ({"more_new": 2, "more_base": 2}, "2 more runs and 2 more of the base would tell"),
    ],
)
def test_a_suspect_says_what_would_tell(more: dict[str, int], asked: str) -> None:
    some = speed(change("a", "unsure", 0.5, suspect=True, **more))
    told = f"perhaps faster: run_us of a x 0.5 (0.45 to 0.6, 4 + 2 runs); {asked}"
    last = "speed and memory: 0 figures the same within 10 %, 1 not to be told yet"
    assert list(speed_lines(some)) == [told, last]
    some.around[some.suspects[0].name] = ("8 C cooler",)
    assert next(speed_lines(some)) == f"{told}; also 8 C cooler"


@pytest.mark.parametrize(
    ("runs", "more_new", "told"),
    [
        (3, None, " (1 run before, 2 new: their noise shows in earlier runs of the same cases)"),
        (4, None, " (2 runs before, 2 new: their noise shows in earlier runs of the same cases)"),
        (5, None, ""),
        (3, 0, ""),
    ],
)
def test_with_few_runs_it_is_said_why_noise_is_not_known(
    runs: int, more_new: int | None, told: str
) -> None:
    some = speed(change("a", "unsure", 1.0, more_new=more_new), runs=runs)
    (line,) = speed_lines(some)
    assert line == (f"speed and memory: 0 figures the same within 10 %, 1 not to be told yet{told}")


def test_where_there_is_no_bound_json_has_none() -> None:
    row = SpeedRow.of(change("a", "unsure", 2.0, high=math.inf), speed())
    assert (row.low, row.high, row.ratio, row.surroundings) == (1.8, None, 2.0, ())
    assert SpeedRow.of(change("a", "unsure", 2.0, low=-math.inf), speed()).low is None


def test_of_nothing_that_was_measured_nothing_is_said() -> None:
    assert list(speed_lines(speed())) == []
    assert noise_said(speed()) is None


def hidden(case: str | None, ratio: float, tells: float | None, **more: Any) -> Change:
    return change(case, "unsure", ratio, tells=tells, **more)


def test_noise_is_told_once_for_each_figure_of_a_device_with_its_middle_ratio() -> None:
    some = speed(
        hidden("a", 1.2, 2.0),
        hidden("b", 3.0, 4.0),
        hidden("c", 0.5, 3.0),
        hidden("d", 1.3, 9.5, device=""),
        hidden("e", 1.4, 5.0, figure="rss_bytes.peak"),
        common=hidden(None, 1.15, 1.5, figure="load_us"),
    )
    lines = [
        "farm-1 is too noisy to tell less than x 1.5 of load_us: "
        "all cases x 1.15 (1.03 to 1.38, 4 + 2 runs)",
        "farm-1 is too noisy to tell less than x 3 of run_us: "
        "b x 3 (2.7 to 3.6, 4 + 2 runs) and 2 other cases",
        "farm-1 is too noisy to tell less than x 5 of rss_bytes.peak: "
        "e x 1.4 (1.26 to 1.68, 4 + 2 runs)",
        "this computer is too noisy to tell less than x 9.5 of run_us: "
        "d x 1.3 (1.17 to 1.56, 4 + 2 runs)",
    ]
    assert list(noise_lines(some)) == lines
    assert list(speed_lines(some))[:4] == lines, "it comes first"
    assert noise_said(some) == "too noisy to tell less than x 4 of 6 figures"
    two = speed(hidden("a", 1.2, 2.0), hidden("b", 1.1, 4.0))
    assert next(noise_lines(two)).endswith("and 1 other case")
    assert noise_said(two) == "too noisy to tell less than x 4 of 2 figures"


@pytest.mark.parametrize(
    ("one", "is_hidden"),
    [
        (hidden("a", 1.1, 2.0), True),
        (hidden("a", 1 / 1.2, 2.0), True),
        (hidden("a", 1.0999, 2.0), False),
        (hidden("a", 1.5, None), False),
        (hidden("a", 1.5, 2.0, suspect=True), False),
        (change("a", "slower", 1.5, tells=2.0), False),
    ],
)
def test_noise_hides_what_is_as_far_off_as_is_asked_for_and_no_suspect(
    one: Change, is_hidden: bool
) -> None:
    assert speed(one).hidden == ([one] if is_hidden else [])
