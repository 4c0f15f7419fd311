"""A few searches on a backend that is flaky: every night there are hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needed import C_COMPILERS, need
from tests.stand_in.flaky_versions import Backend, figures, searches

SEEDS = 8


@pytest.mark.parametrize("alarms", [0.0, pytest.param(0.25, marks=pytest.mark.slow)])
def test_a_flaky_backend_is_seen_through(tmp_path: Path, alarms: float) -> None:
    need(*C_COMPILERS)
    found = searches(Backend.build(tmp_path), SEEDS, 0.25, alarms)
    assert sum(one.right for one in found) >= SEEDS - 1, figures(found, 0.25, alarms)


@pytest.mark.slow
def test_a_backend_that_fails_now_and_then_is_not_called_good(tmp_path: Path) -> None:
    """From one version on a quarter of the runs fail."""
    need(*C_COMPILERS)
    found = searches(Backend.build(tmp_path), 3, 0.75, 0.0, "rate:25%")
    assert all(one.right for one in found), figures(found, 0.75, 0.0)
    for one in found:
        older, newer = one.finding.rates
        assert older.failed == 0
        assert newer.low <= 0.25 <= newer.high
        assert newer.failed == sum(bad for bad, _ in one.finding.failed.values())
