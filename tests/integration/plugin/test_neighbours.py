"""Plug-ins that users have beside ours: each works, or it is said what to use instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.plugin.problem import read_problem
from tests.integration.device_runs import DeviceRuns

SUITE = '''"""Cases that other plug-ins mean something for."""
import time

import pytest
from harness.models.models import Model

pytestmark = pytest.mark.device


@pytest.mark.parametrize("models", [(Model("tiny"), Model("io-heavy", 32))], ids=["two"])
def test_fine(bench, models):
    bench.measure(noted=1)


@pytest.mark.timeout(3)
def test_late(bench):
    time.sleep(60)


@pytest.mark.flaky(reruns=2)
def test_fails(bench):
    pytest.fail("no good")


def test_bug(bench):
    raise RuntimeError("user's own bug")
'''


@pytest.mark.nightly
def test_reruns_timeouts_and_allure(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "test_mine.py"
    suite.write_text(SUITE)
    told, shown = tmp_path / "problem.json", tmp_path / "allure"
    completed = lab.run(
        *("--reruns=2", f"--alluredir={shown}", f"--problem-file={told}"),
        *("-p", "no:cacheprovider"),
        suites=suite,
    )
    assert completed.code == 1, completed.output
    cases = {name: case for name, (case,) in completed.by_test.items()}
    assert len(completed.cases) == 4, "nothing was run again"

    failed = cases["test_fails"]
    assert (failed["outcome"], failed["cause"]) == ("failed", "target")
    assert failed["error"]["message"] == "no good\nat test_mine.py:22"

    late = cases["test_late"]
    assert (late["outcome"], late["cause"]) == ("error", "config")
    assert late["error"]["message"].startswith("Timeout (>3.0s) from pytest-timeout ended the case")
    assert "bench.run(plan, timeout_s=...)" in late["error"]["message"]

    problem = read_problem(told)
    assert problem is not None
    assert problem.about == "input"
    assert problem.text.endswith("RuntimeError: user's own bug")

    placement = cases["test_fine"]["case"].partition("[")[2].removesuffix("-two]")
    results = [json.loads(file.read_text()) for file in shown.glob("*-result.json")]
    assert len(results) == 4
    (fine,) = (result for result in results if result["name"].startswith("test_fine"))
    assert {item["name"]: item["value"] for item in fine["parameters"]} == {
        "placement": placement,
        "models": "(tiny, io-heavy-32mb)",
    }
