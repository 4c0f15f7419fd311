"""The scheduler of the farm: how near to its bound a farm is done, and what a decision costs."""

from __future__ import annotations

import pytest

from tests.farm_model import figures

SIZES = [(1, 10), (8, 300), (40, 1000), (200, 20_000), (2000, 200_000)]
"""Devices and cases."""

pytestmark = pytest.mark.benchmark


def test_makespan_and_decisions() -> None:
    for row in figures(SIZES):
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
        if row["devices"] == 2000:
            assert row["ratio"] <= 1.03
            assert row["decision_p99_ms"] < 1
