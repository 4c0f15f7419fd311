"""Words for changes that are made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.history.comparison_text import (
    noise_lines,
    noise_summary,
    speed_counts,
    speed_lines,
)
from harness.history.performance import Change, SpeedCompared, SpeedRow, listed_as


def row(
    case: str | None, verdict: str, ratio: float, figure: str = "run_us", **more: Any
) -> SpeedRow:
    known: dict[str, Any] = {"device": "farm-1", "case": case, "figure": figure, "ratio": ratio}
    known |= {"low": 0.9 * ratio, "high": 1.2 * ratio, "p": 0.1, "base_runs": 4, "new_runs": 2}
    return SpeedRow(**known | {"verdict": verdict, "more_new": 0, "more_base": 0} | more)


def speed(runs: int = 9, **more: Any) -> SpeedCompared:
    listed = {
        name: tuple(more.pop(name, ())) for name in ("slower", "faster", "suspects", "hidden")
    }
    known = {"effect": 0.1, "base_runs": runs - 2, "new_runs": 2}
    return SpeedCompared(**known | {"same": 0, "unsure": 0, "unknown": 0} | listed | more)


def test_a_line_for_each_change_and_devices_before_cases() -> None:
    surroundings = ("8 C hotter", "governor a (was b)")
    some = speed(
        slower=[
            row(None, "slower", 1.2),
            row("b", "slower", 1.6, "rss_bytes.peak"),
            row("a", "slower", 1.5, surroundings=surroundings),
        ],
        faster=[
            row("d", "faster", 0.25, "rss_bytes.peak", new_runs=1),
            row("c", "faster", 0.5),
        ],
        same=2,
    )
    assert list(speed_lines(some)) == [
        "slower: run_us of all cases on farm-1 x 1.2 (1.08 to 1.44, 4 + 2 runs)",
        "more: rss_bytes.peak of b x 1.6 (1.44 to 1.92, 4 + 2 runs)",
        "slower: run_us of a x 1.5 (1.35 to 1.8, 4 + 2 runs); also 8 C hotter, governor a (was b)",
        "less: rss_bytes.peak of d x 0.25 (0.225 to 0.3, 4 + 1 run)",
        "faster: run_us of c x 0.5 (0.45 to 0.6, 4 + 2 runs)",
        "speed and memory: 2 figures the same within 10 %",
    ]
    assert speed_counts(some) == ["3 figures slower", "2 figures faster"]
    assert speed_counts(speed(slower=[row("a", "slower", 1.5)])) == ["1 figure slower"]
    assert speed_counts(speed(same=1)) == []


def test_only_the_first_are_told_and_how_many_more_there_are() -> None:
    many = speed(
        slower=[row(str(n), "slower", 2.0) for n in range(5)],
        faster=[row(str(n), "faster", 0.5) for n in range(3)],
        suspects=[row(str(n), "unsure", 1.5) for n in range(4)],
    )
    listed = list(speed_lines(many, 3))
    assert [line.partition(":")[0] for line in listed] == [
        *["slower"] * 3,
        "... and 2 more slower",
        *["faster"] * 3,
        *["perhaps slower"] * 3,
        "... and 1 more that may have changed",
        "speed and memory",
    ]
    assert [line for line in speed_lines(many, 4) if line.startswith("...")] == [
        "... and 1 more slower"
    ]
    assert not [line for line in speed_lines(many, 5) if line.startswith("...")]
    twenty_one = speed(slower=[row(str(n), "slower", 2.0) for n in range(21)])
    assert list(speed_lines(twenty_one))[20] == "... and 1 more slower"


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({"more_new": 1}, "1 more run would tell"),
        ({"more_new": 3}, "3 more runs would tell"),
        ({"more_base": 1}, "1 more of the base would tell"),
        ({"more_new": 2, "more_base": 2}, "2 more runs and 2 more of the base would tell"),
    ],
)
def test_a_suspect_says_what_would_tell(more: dict[str, int], needed: str) -> None:
    text = f"perhaps faster: run_us of a x 0.5 (0.45 to 0.6, 4 + 2 runs); {needed}"
    last = "speed and memory: 0 figures the same within 10 %, 1 not decided yet"
    some = speed(suspects=[row("a", "unsure", 0.5, **more)], unsure=1)
    assert list(speed_lines(some)) == [text, last]
    cooler = row("a", "unsure", 0.5, surroundings=("8 C cooler",), **more)
    assert next(speed_lines(speed(suspects=[cooler], unsure=1))) == f"{text}; also 8 C cooler"


@pytest.mark.parametrize(
    ("runs", "unknown", "text"),
    [
        (3, 1, " (1 run before, 2 new: their noise shows in earlier runs of the same cases)"),
        (4, 1, " (2 runs before, 2 new: their noise shows in earlier runs of the same cases)"),
        (5, 1, ""),
        (3, 0, ""),
    ],
)
def test_with_few_runs_it_is_said_why_noise_is_not_known(
    runs: int, unknown: int, text: str
) -> None:
    (line,) = speed_lines(speed(runs=runs, unsure=1, unknown=unknown))
    assert line == (f"speed and memory: 0 figures the same within 10 %, 1 not decided yet{text}")


def test_where_there_is_no_bound_json_has_none() -> None:
    for bound in (math.inf, -math.inf):
        wide = row("a", "unsure", 2.0, high=bound)
        assert (wide.low, wide.high, wide.ratio, wide.surroundings) == (1.8, None, 2.0, ())
        assert "(1.8 to inf, 4 + 2 runs)" in next(speed_lines(speed(slower=[wide])))


def test_of_nothing_that_was_measured_nothing_is_said() -> None:
    assert list(speed_lines(speed())) == []
    assert noise_summary(speed()) is None


def hidden(case: str | None, ratio: float, detectable: float, **more: Any) -> SpeedRow:
    return row(case, "unsure", ratio, tells=detectable, **more)


def test_noise_is_told_once_for_each_figure_of_a_device_with_its_middle_ratio() -> None:
    some = speed(
        hidden=[
            hidden(None, 1.15, 1.5, figure="load_us"),
            hidden("b", 3.0, 4.0),
            hidden("c", 0.5, 3.0),
            hidden("e", 1.4, 5.0, figure="rss_bytes.peak"),
            hidden("d", 1.3, 9.5, device=""),
            hidden("a", 1.2, 2.0),
        ]
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
    assert noise_summary(some) == "too noisy to tell less than x 4 of 6 figures"
    two = speed(hidden=[hidden("a", 1.2, 2.0), hidden("b", 1.1, 4.0)])
    assert next(noise_lines(two)).endswith("and 1 other case")
    assert noise_summary(two) == "too noisy to tell less than x 4 of 2 figures"


@pytest.mark.parametrize(
    ("ratio", "more", "listed"),
    [
        (1.1, {"tells": 2.0}, "hidden"),
        (1 / 1.2, {"tells": 2.0}, "hidden"),
        (1.0999, {"tells": 2.0}, ""),
        (1.5, {"tells": None}, ""),
        (1.5, {"tells": 2.0, "suspect": True}, "suspects"),
        (1.5, {"tells": 2.0, "verdict": "slower"}, "slower"),
        (1.5, {"tells": 2.0, "verdict": "same"}, ""),
    ],
)
def test_noise_hides_what_is_as_far_off_as_is_asked_for_and_no_suspect(
    ratio: float, more: dict[str, Any], listed: str
) -> None:
    known = {"name": "a", "verdict": "unsure", "low": 0.5, "high": 2.0, "p": 0.1}
    runs = {"base_runs": 4, "new_runs": 2}
    assert listed_as(Change(ratio=ratio, **known | runs | more), 0.1) == listed
