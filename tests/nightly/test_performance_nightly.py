"""Twenty runs of the same suites on a simulated device, each beside the one before: no alarms."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = 20

pytestmark = pytest.mark.nightly


def test_twenty_runs_beside_each_other(tmp_path: Path) -> None:
    """Night by night, and the last five beside one in the middle.

    `judge` promises that one comparison in 200 calls something slower or faster where nothing
    changed. So of twenty one does in one night of ten, and two in one night of 200.
    """
    reports = tmp_path / "reports"
    words = [sys.executable, "-m", "pytest", "-m", "device", "-q", "--device=sim-v73"]
    words.append(f"--reports={reports}")
    compare = [sys.executable, "-m", "harness.cli.main", "compare", "--fail-on", "perf:10%"]
    results = []
    for number in range(RUNS):
        ended = subprocess.run(
            [*words, "suites/test_context_count.py", "-k", "tiny and resident"],
            cwd=ROOT,
            check=False,
        )
        assert ended.returncode == 0
        if number:
            options = ["--previous", reports / "latest"]
            completed = subprocess.run(
                [*compare, *options], cwd=ROOT, capture_output=True, check=False
            )
            results.append((completed.returncode, completed.stdout.decode()))
    early = sorted(path for path in reports.glob("2*"))[RUNS // 2]
    completed = subprocess.run(
        [*compare, early, reports / "latest"], cwd=ROOT, capture_output=True, check=False
    )
    results.append((completed.returncode, completed.stdout.decode()))
    print(results[-1][1])
    alarms = [output for code, output in results if code]
    assert len(alarms) <= 1, alarms
