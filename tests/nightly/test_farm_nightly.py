"""Twelve places of labgrid, a thousand cases, and something going wrong every few seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.simulator.farm_chaos import Chaos, problems

DEVICES = int(os.environ.get("QNN_FARM_DEVICES", "12"))
CASES = int(os.environ.get("QNN_FARM_CASES", "1000"))
SEEDS = int(os.environ.get("QNN_FARM_SEEDS", "10"))

pytestmark = pytest.mark.nightly


def test_a_farm_loses_no_case_and_no_verdict(
    tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    chaos = Chaos(tmp_path, DEVICES, CASES)
    quiet, _, left = chaos.run(None)
    assert not left
    assert {case["outcome"] for case in quiet.cases} == {"passed", "crashed"}, quiet.output
    for seed in range(SEEDS):
        run, did, left = chaos.run(seed)
        show_figures(f"{CASES} cases on {DEVICES} devices, seed {seed}", **did)
        assert did
        found = problems(quiet, run, CASES, left)
        assert found == [], f"seed {seed}, {did}: {found}\n{run.output[-4000:]}"
