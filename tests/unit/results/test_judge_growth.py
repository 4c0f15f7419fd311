"""What repeated making and releasing may leave behind."""

from __future__ import annotations

import pytest

from harness.results.judge_growth import judge_growth


@pytest.mark.parametrize(
    ("figures", "verdicts"),
    [
        ({"growth_bytes_per_session": 10, "drift_bytes": 100}, ["held", "held"]),
        ({"growth_bytes_per_session": -10, "drift_bytes": 0}, ["held", "held"]),
        ({"growth_bytes_per_session": 11, "drift_bytes": 100}, ["broken", "held"]),
        ({"growth_bytes_per_session": 10, "drift_bytes": 101}, ["held", "broken"]),
        ({"growth_bytes_per_session": 10}, ["held", "unseen"]),
        ({"growth_bytes_per_session": "10", "drift_bytes": None}, ["unseen", "unseen"]),
        ({}, ["unseen", "unseen"]),
    ],
)
def test_what_is_left(figures: dict[str, object], verdicts: list[str]) -> None:
    assert [check.verdict for check in judge_growth(figures, 10, 100)] == verdicts
