"""100,000 records: what comparing, keeping and drawing them takes, beside `json.loads` of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.results.records import DEVICE, record

CASES = 100_000
MOST_RATIO, MOST_MB, MOST_REPORT_MB = 15, 200, 250


def journal(path: Path, *, failing: int) -> Path:
    """A run's folder: every so many-th case fails."""
    path.mkdir()
    records = {
        outcome: record(outcome=outcome, case="NAME", device=DEVICE).model_dump_json()
        for outcome in ("passed", "failed")
    }
    with (path / "results.jsonl").open("w") as file:
        for number in range(CASES):
            name = f"suites/test_context_count.py::test_contexts[sim-v73-htp-2.51.0-{number}]"
            text = records["passed" if number % failing else "failed"]
            file.write(text.replace('"NAME"', json.dumps(name)) + "\n")
    return path


def loaded_s(*journals: Path) -> float:
    start = time.perf_counter()
    for path in journals:
        with (path / "results.jsonl").open("rb") as file:
            for line in file:
                json.loads(line)
    return time.perf_counter() - start


@pytest.mark.benchmark
def test_comparing_costs_a_few_times_what_reading_does(tmp_path: Path) -> None:
    before, after = journal(tmp_path / "a", failing=10), journal(tmp_path / "b", failing=9)
    words = [sys.executable, "-c", COMPARE, before, after]
    for form in ("--json", "--markdown", "--html"):
        loads = loaded_s(before, after)
        start = time.perf_counter()
        completed = subprocess.run([*map(str, words), form], capture_output=True, check=False)
        elapsed_s = time.perf_counter() - start
        peak = int(completed.stderr.split()[-2]) // 1024
        print(
            f"\ncompare {form}: {elapsed_s:.1f} s, {elapsed_s / loads:.1f} x json.loads, "
            f"at most {peak} MB"
        )
        assert completed.returncode == 1
        assert elapsed_s < MOST_RATIO * loads
        # the answer in JSON is one model, made whole
        assert peak < (2 * MOST_MB if form == "--json" else MOST_MB)


@pytest.mark.benchmark
def test_taking_in_costs_a_few_times_what_reading_does(tmp_path: Path) -> None:
    run = journal(tmp_path / "a", failing=10)
    words = [sys.executable, "-m", "harness.cli.main", "history", "import", run, "--reports"]
    for name in ("import", "import again"):
        loads = loaded_s(run)
        start = time.perf_counter()
        subprocess.run([*map(str, words), str(tmp_path)], stdout=subprocess.DEVNULL, check=True)
        elapsed_s = time.perf_counter() - start
        print(f"\nhistory {name}: {elapsed_s:.1f} s, {elapsed_s / loads:.1f} x json.loads")
        assert elapsed_s < MOST_RATIO * loads


@pytest.mark.benchmark
@pytest.mark.parametrize("earlier", [False, True], ids=["alone", "with an earlier run"])
def test_reports_cost_a_few_times_what_reading_does(tmp_path: Path, earlier: bool) -> None:
    run = journal(tmp_path / "b", failing=10)
    for index, run_folder in enumerate(
        [journal(tmp_path / "a", failing=9), run] if earlier else []
    ):
        info = {
            "schema": 1,
            "started": f"2026-11-2{index}T06:00:00Z",
            "finished": "later",
            "selection": ["all"],
        }
        (run_folder / "run.json").write_text(json.dumps(info))
    words = [sys.executable, "-c", REPORT, str(run)]
    completed = subprocess.run(words, capture_output=True, text=True, check=True)
    elapsed_s, loads, peak = map(float, completed.stdout.splitlines()[-1].split())
    sizes = ", ".join(
        f"{name} {(run / name).stat().st_size / 1e6:.1f} MB"
        for name in ("report.html", "junit.xml")
    )
    print(
        f"\nreport: {elapsed_s:.1f} s, {elapsed_s / loads:.1f} x json.loads, {peak:.0f} MB; {sizes}"
    )
    # so many records are not held, but read anew by each part of a report
    assert elapsed_s < 120 * loads
    assert peak < MOST_REPORT_MB


# what a process used at most, from its start on, and not what began it
COMPARE = """
import atexit, sys
from harness.cli.main import main
def say():
    sys.stderr.writelines(line for line in open("/proc/self/status") if "VmHWM" in line)
atexit.register(say)
sys.argv[:1] = ["qnn-harness", "compare"]
main()
"""

REPORT = """
import json, sys, time
from pathlib import Path
from harness.cli.main import commands
run = Path(sys.argv[1])
commands(["report", "write", str(run)], standalone_mode=False)
took = time.process_time()
(peak,) = (int(line.split()[1]) // 1024 for line in open("/proc/self/status") if "VmHWM" in line)
began = time.process_time()
for line in (run / "results.jsonl").open("rb"):
    json.loads(line)
print(took, time.process_time() - began, peak)
"""
