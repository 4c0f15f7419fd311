"""10,000 cases of `true` on one device: nothing grows, neither here nor there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CASES = 10_000
SAMPLES = 10
SUITE = f'''"""Runs `true` on the device again and again, and looks at this process now and then."""
import gc
import json
import os
from pathlib import Path

import pytest

CASES, EVERY = {CASES}, {CASES // SAMPLES}


def tree(pid):
    """A process and all below it."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for children in Path(f"/proc/{{pid}}/task").glob("*/children"):
            todo += map(int, children.read_text().split())
    return found


def status(pid, key):
    for line in Path(f"/proc/{{pid}}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0


def sample(bench):
    gc.collect()
    processes = tree(os.getpid())
    others = [pid for pid in processes if pid != os.getpid()]
    files = bench.device.transport.shell(f"find '{{bench.device.workdir}}' | wc -l", timeout_s=30)
    return {{
        "own_kb": status(os.getpid(), "VmRSS"),
        "others_kb": sum(status(pid, "VmRSS") for pid in others),
        "processes": len(processes),
        "threads": sum(status(pid, "Threads") for pid in processes),
        "descriptors": sum(len(os.listdir(f"/proc/{{pid}}/fd")) for pid in processes),
        "device_files": int(files.stdout),
    }}


@pytest.mark.device
@pytest.mark.parametrize("number", range(CASES))
def test_true(bench, number):
    assert bench.device.transport.shell("true", timeout_s=30).ok
    if number % EVERY == EVERY - 1:
        with open(os.environ["SAMPLES"], "a") as file:
            file.write(json.dumps(sample(bench)) + "\\n")
'''
PLAIN = f'''"""As many tests that do nothing, for what pytest itself keeps of each."""
import gc
import json
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range({CASES}))
def test_nothing(number):
    if number % {CASES // SAMPLES} == {CASES // SAMPLES} - 1:
        gc.collect()
        (line,) = (l for l in open("/proc/self/status") if l.startswith("VmRSS"))
        with open(os.environ["SAMPLES"], "a") as file:
            file.write(json.dumps({{"own_kb": int(line.split()[1])}}) + "\\n")
'''


def samples(folder: Path, suite: str, *arguments: object) -> list[dict[str, int]]:
    """Runs a suite in a process of its own; what it found out about itself meanwhile."""
    folder.mkdir()
    (folder / "test_many.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, "-p", "no:cacheprovider"]
    output = folder / "samples.jsonl"
    subprocess.run(
        [*map(str, (*command, *arguments)), str(folder / "test_many.py")],
        check=True,
        cwd=folder,
        env=os.environ | {"SAMPLES": str(output)},
        stdout=subprocess.DEVNULL,
        timeout=1500,
    )
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.mark.benchmark
def test_ten_thousand_cases(
    simulated_lab: Path, tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    reports = tmp_path / "reports"
    options = ("-m", "device", "--lab", simulated_lab, "--reports", reports)
    ours = samples(tmp_path / "ours", SUITE, *options)
    plain = samples(tmp_path / "plain", PLAIN)
    assert len(ours) == len(plain) == SAMPLES
    lines = map(json.loads, (reports / "latest/results.jsonl").read_text().splitlines())
    assert sum(line["kind"] == "case" for line in lines) == CASES
    growth = {key: ours[-1][key] - ours[0][key] for key in ours[0]}
    later = CASES - CASES // SAMPLES
    show_figures(
        f"{CASES} cases, growth after the first {CASES // SAMPLES}",
        **growth,
        own_bytes_per_case=round(growth["own_kb"] * 1024 / later),
        plain_pytest_bytes_per_case=round(
            (plain[-1]["own_kb"] - plain[0]["own_kb"]) * 1024 / later
        ),
    )
    for key in ("processes", "threads", "device_files"):
        assert growth[key] == 0, f"{key} grew: {ours}"
    assert growth["descriptors"] <= 2, f"descriptors grew: {ours}"
    assert growth["others_kb"] < 4096, f"adb or the simulated device grew: {ours}"
    # what pytest keeps of each report it keeps of ours, too
    kept_kb = plain[-1]["own_kb"] - plain[0]["own_kb"]
    assert growth["own_kb"] < kept_kb + 3 * later, f"this process grew: {ours}"
