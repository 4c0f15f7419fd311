"""Words for changes that are made by hand."""

import math
from typing import Any

from harness.history.comparison_text import speed_counts, speed_lines
from harness.history.speed_changes import SpeedCompared, SpeedRow
from tests.snapshots import Snapshot


def row(
    case: str | None, verdict: str, ratio: float, figure: str = "run_us", **more: Any
) -> SpeedRow:
    known: dict[str, Any] = {"device": "farm-1", "case": case, "figure": figure, "ratio": ratio}
    known |= {"low": 0.9 * ratio, "high": 1.2 * ratio, "p": 0.1, "base_runs": 4, "new_runs": 2}
    return SpeedRow(**known | {"verdict": verdict} | more)


def speed(runs: int = 9, **more: Any) -> SpeedCompared:
    listed = {name: tuple(more.pop(name, ())) for name in ("slower", "faster", "suspects")}
    known = {"effect": 0.1, "base_runs": runs - 2, "new_runs": 2}
    return SpeedCompared(**known | {"same": 0, "unsure": 0} | listed | more)


def test_a_line_for_each_change_and_devices_before_cases(snapshot: Snapshot) -> None:
    surroundings = ("8 C hotter", "governor a (was b)")
    some = speed(
        slower=[
            row(None, "slower", 1.2),
            row("b", "slower", 1.6, "rss_bytes.peak"),
            row("a", "slower", 1.5, surroundings=surroundings),
        ],
        faster=[row("d", "faster", 0.25, "rss_bytes.peak", new_runs=1), row("c", "faster", 0.5)],
        same=2,
    )
    assert list(speed_lines(some)) == snapshot
    assert speed_counts(some) == ["3 figures slower", "2 figures faster"]
    assert speed_counts(speed(slower=[row("a", "slower", 1.5)])) == ["1 figure slower"]
    assert speed_counts(speed(same=1)) == []


def test_only_the_first_are_told_and_how_many_more_there_are(snapshot: Snapshot) -> None:
    many = speed(
        slower=[row(str(n), "slower", 2.0) for n in range(5)],
        faster=[row(str(n), "faster", 0.5) for n in range(3)],
        suspects=[row(str(n), "unsure", 1.5) for n in range(4)],
    )
    listed = list(speed_lines(many, 3))
    assert len([line for line in listed if not line.startswith("...")]) == 3 + 3 + 3
    assert [line for line in listed if line.startswith("...")] == snapshot
    assert [line for line in speed_lines(many, 4) if line.startswith("...")] == snapshot
    assert not [line for line in speed_lines(many, 5) if line.startswith("...")]
    twenty_one = speed(slower=[row(str(n), "slower", 2.0) for n in range(21)])
    assert list(speed_lines(twenty_one))[20] == snapshot


def test_a_suspect_says_that_more_runs_would_tell(snapshot: Snapshot) -> None:
    rows = (row("a", "unsure", 0.5), row("b", "unsure", 0.5, surroundings=("8 C cooler",)))
    assert list(speed_lines(speed(suspects=rows, unsure=2))) == snapshot
    assert list(speed_lines(speed())) == []


def test_where_there_is_no_bound_json_has_none() -> None:
    for bound in (math.inf, -math.inf):
        wide = row("a", "unsure", 2.0, high=bound)
        assert (wide.low, wide.high, wide.ratio, wide.surroundings) == (1.8, None, 2.0, ())
        assert "(1.8 to inf, 4 + 2 runs)" in next(speed_lines(speed(slower=[wide])))
