"""What one case costs beyond the probe, beside the same commands through plain `adb shell`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from harness.adb.binary import adb_binary
from harness.cache import cache_root
from harness.lab.inventory import load_lab
from harness.probe.events import parse_transcript
from harness.probe.plan import Plan, Step
from harness.workbench import Placement, Workbench

CASES = 200
TRIVIAL_SUITE = f'''"""Cases that do nothing on the device."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range({CASES}))
def test_trivial(bench, number):
    bench.run(Plan(steps=(Step("noop"),))).check()
'''


@pytest.mark.benchmark
def test_overhead_per_case(simulated_lab: Path, tmp_path: Path, show_figures) -> None:
    suite = tmp_path / "test_trivial.py"
    suite.write_text(TRIVIAL_SUITE)
    harness_s, harness_probe_s = through_the_harness(suite, simulated_lab, tmp_path / "reports")
    plain_s, plain_probe_s = through_adb_shell(simulated_lab)
    harness_ms = (harness_s - harness_probe_s) / CASES * 1000
    plain_ms = (plain_s - plain_probe_s) / CASES * 1000
    show_figures(
        "overhead per case",
        harness_ms=round(harness_ms, 2),
        plain_adb_shell_ms=round(plain_ms, 2),
        ratio=round(harness_ms / plain_ms, 3),
    )
    assert harness_ms / plain_ms < 2, "one case costs twice what a plain `adb shell` costs"


def through_the_harness(suite: Path, lab: Path, reports: Path) -> tuple[float, float]:
    """Seconds from the first case's start to the last one's end, and inside the probe."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "device", "--rootdir", suite.parent]
    command += ["-p", "no:cacheprovider", "--lab", lab, "--reports", reports, suite]
    subprocess.run(list(map(str, command)), check=True, cwd=suite.parent, timeout=300)
    lines = (reports / "latest/results.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "case"]
    assert [record["outcome"] for record in records] == ["passed"] * CASES
    first = datetime.fromisoformat(records[0]["started"])
    last = datetime.fromisoformat(records[-1]["started"])
    wall_s = (last - first).total_seconds() + records[-1]["duration_s"]
    return wall_s, sum(record["measurements"]["probe_us"] for record in records) / 1e6


def through_adb_shell(lab_file: Path) -> tuple[float, float]:
    """Seconds for the same commands in a loop of `adb shell`, and inside the probe."""
    lab = load_lab(lab_file)
    workbench = Workbench(lab, cache=cache_root(), notify=lambda text: None)
    try:
        (version,) = workbench.catalog.resolve("latest", "linux-x64")
        name = lab.devices[0].name
        runtime, probe = workbench.deploy_runtime(Placement(name, "htp", version, version))
        adb = workbench.device(name).adb
        settings = " ".join(f"{key}='{value}'" for key, value in runtime.environment.items())
        command = [adb_binary(), "-P", str(adb.server.port), "-s", adb.serial, "shell"]
        command += [f"cd '{runtime.root}' && {settings} exec '{probe}'"]
        plan = Plan(steps=(Step("noop"),)).text().encode()
        probe_us = 0
        begun = time.monotonic()
        for _ in range(CASES):
            done = subprocess.run(command, input=plan, stdout=subprocess.PIPE, check=True)
            probe_us += parse_transcript(done.stdout).elapsed_us or 0
        return time.monotonic() - begun, probe_us / 1e6
    finally:
        workbench.close()
