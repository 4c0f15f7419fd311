"""Plug-ins that users have beside ours: each works, or it is said what to use instead."""

import json
from pathlib import Path

import pytest

from harness.plugin.problem_file import read_problem
from tests.integration.device_runs import DeviceRuns

SUITE = '''"""Cases that other plug-ins mean something for."""
import time

import pytest
from harness.models.builtin_models import Model

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
        *("--reruns=2", f"--alluredir={shown}", "-o", f"qnn_problem_file={told}"),
        *("-p", "no:cacheprovider"),
        suites=suite,
        code=1,
    )
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


LIMITED = '''"""A case whose first attempt is lost."""
import signal

import pytest
from harness.core.errors import InfraError

attempts = []


@pytest.mark.device
@pytest.mark.timeout(600)
def test_limited(bench):
    attempts.append(signal.getitimer(signal.ITIMER_REAL)[0])
    bench.measure(left_s=attempts[-1])
    if len(attempts) == 1:
        raise InfraError("lost")
'''
WITHOUT_LIMIT = """import signal

from harness.plugin.device_run import FreeDevices

acquire = FreeDevices.acquire


def without_limit(*arguments, **options):
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    return acquire(*arguments, **options)


FreeDevices.acquire = without_limit
"""


@pytest.mark.slow
def test_the_limit_of_a_case_is_that_of_an_attempt_on_its_device(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = tmp_path / "test_mine.py"
    suite.write_text(LIMITED)
    (tmp_path / "conftest.py").write_text(WITHOUT_LIMIT)
    completed = lab.run("-o", "qnn_retries=1", suites=suite, code=0)
    assert [case["outcome"] for case in completed.cases] == ["error", "passed"]
    assert all(0 < case["measurements"]["left_s"] <= 600 for case in completed.cases)
