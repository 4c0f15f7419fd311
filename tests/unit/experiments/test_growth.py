"""Memory that repeated making and releasing may leave behind."""

from __future__ import annotations

import pytest

from harness.experiments.latency import GrowthTolerance, judge_growth
from harness.results.measurements import Growth


@pytest.mark.parametrize(
    ("figures", "verdicts"),
    [
        ((10, 10, 100, 100), ["held", "held"]),
        ((-10, 0, 0, 0), ["held", "held"]),
        ((11, 0, 100, 0), ["broken", "held"]),
        ((10, 0, 101, 0), ["held", "broken"]),
        # more than what is tolerated comes and goes: less is no proof, and more only if much more
        ((0, 11, 0, 101), ["unseen", "unseen"]),
        ((12, 1, 102, 1), ["broken", "broken"]),
        ((11, 1, 101, 1), ["unseen", "unseen"]),
    ],
)
def test_what_is_left(figures: tuple[int, ...], verdicts: list[str]) -> None:
    checks = judge_growth(Growth(*figures), GrowthTolerance(10, 100))
    assert [check.verdict for check in checks] == verdicts
    assert all(check.figures for check in checks)


def test_a_device_that_does_not_tell_is_not_asked_again() -> None:
    checks = judge_growth(None, GrowthTolerance(10, 100))
    assert [check.verdict for check in checks] == ["unseen", "unseen"]
    assert not any(check.figures for check in checks)
