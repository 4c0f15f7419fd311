"""Twelve places of labgrid, a thousand cases, and something going wrong every few seconds."""

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
    quiet, _, leftovers = chaos.run(None)
    assert not leftovers
    assert {case["outcome"] for case in quiet.cases} == {"passed", "crashed"}, quiet.output
    for seed in range(SEEDS):
        run, did, leftovers = chaos.run(seed)
        show_figures(f"{CASES} cases on {DEVICES} devices, seed {seed}", **did)
        assert did
        problems_ = problems(quiet, run, CASES, leftovers)
        assert problems_ == [], f"seed {seed}, {did}: {problems_}\n{run.output[-4000:]}"
