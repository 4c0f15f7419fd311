"""A farm: how near to its bound the scheduler is in simulated time, and a run with 8 devices."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.farm_model import figures, plot
from tests.integration.device_runs import DeviceRuns

SIZES = [(1, 10), (8, 300), (40, 1000), (200, 20_000), (2000, 200_000)]
"""Devices and cases."""

pytestmark = pytest.mark.benchmark


def test_makespan_and_decisions() -> None:
    """QNN_HARNESS_FARM_PLOT names a file for the picture of it, which docs/farm.md shows."""
    rows = []
    for row in figures(SIZES):
        rows.append(row)
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
        if row["devices"] == 2000:
            assert row["ratio"] <= 1.03
            assert row["decision_p99_ms"] < 1
    if file := os.environ.get("QNN_HARNESS_FARM_PLOT"):
        Path(file).write_text(plot(rows))


KINDS = {"v73": ("QCS8550", 73, 4), "v75": ("SM8650", 75, 2), "v69": ("SM8475", 69, 2)}
"""Pools: SoC, HTP architecture, devices."""
LAB = "schema: 1\ndevices:\n" + "".join(
    f"  - {{name: {pool}-{number}, simulated: true, soc: {soc}, pool: {pool}}}\n"
    for pool, (soc, _, devices) in KINDS.items()
    for number in range(devices)
)
LEASES, GROUPS = "--dist load, a lease per test", "a group for each device, as --dist loadgroup"
OURS = '''"""Cases that need one kind of device, and keep it busy for a known time."""
import json
import os
from pathlib import Path

import pytest

from harness.probe.plan import Plan, Step

SECONDS = json.loads(Path(__file__).with_name("seconds.json").read_text())


def made(pool, arch):
    @pytest.mark.device(htp_arch=arch)
    @pytest.mark.parametrize("number", range(len(SECONDS[pool])))
    def test(bench, number):
        ms = round(1000 * SECONDS[pool][number])
        bench.run(Plan((Step("sleep", {"ms": str(ms)}),)), timeout_s=60).check()

    return test


test_v73, test_v75, test_v69 = made("v73", 73), made("v75", 75), made("v69", 69)
'''
LOOPS = '''"""The same with sleep in place of devices, a lock for each, or a file."""
import contextlib
import json
import os
import time
from pathlib import Path

import filelock
import pytest

HERE = Path(__file__).parent
SECONDS = json.loads((HERE / "seconds.json").read_text())
DEVICES = json.loads((HERE / "devices.json").read_text())
OWN = None  # the device of this file, if each has one


@contextlib.contextmanager
def leased(pool):
    while True:
        for device in DEVICES[pool]:
            with contextlib.suppress(filelock.Timeout):
                with filelock.FileLock(HERE / f"{device}.lock", timeout=0):
                    yield
                    return
        time.sleep(0.02)


def cases():
    for pool, seconds in SECONDS.items():
        for number, one in enumerate(seconds):
            if OWN in (None, DEVICES[pool][number % len(DEVICES[pool])]):
                yield pytest.param(pool, one, id=f"{pool}-{number}")


@pytest.mark.parametrize(("pool", "seconds"), list(cases()))
def test_some(pool, seconds):
    with contextlib.nullcontext() if OWN else leased(pool):
        begun = time.time()
        time.sleep(seconds)
    with open(HERE / "times.jsonl", "a") as file:
        file.write(json.dumps([begun, time.time()]) + "\\n")
'''


def test_a_run_with_eight_devices_of_three_kinds(tmp_path: Path) -> None:
    """Requirements allow each kind its share: the bound is that of the kind with most work."""
    lab, chance = DeviceRuns(tmp_path), random.Random(1)
    devices = {pool: [f"{pool}-{n}" for n in range(KINDS[pool][2])] for pool in KINDS}
    seconds = {
        pool: [round(0.3 + 0.7 * chance.lognormvariate(0, 0.8), 2) for _ in range(count)]
        for pool, count in {"v73": 150, "v75": 75, "v69": 75}.items()
    }
    (tmp_path / "seconds.json").write_text(json.dumps(seconds))
    (tmp_path / "devices.json").write_text(json.dumps(devices))
    suite, loops = tmp_path / "test_ours.py", tmp_path / "test_loops.py"
    suite.write_text(OURS)
    loops.write_text(LOOPS)
    files = []
    for device in [name for names in devices.values() for name in names]:
        files.append(tmp_path / f"test_{device.replace('-', '_')}.py")
        files[-1].write_text(LOOPS.replace("OWN = None", f"OWN = {device!r}"))
    lab.file.write_text(LAB)
    bound_s = max(sum(seconds[pool]) / len(devices[pool]) for pool in KINDS)
    print(f"300 cases of {sum(map(sum, seconds.values())):.0f} s; bound {bound_s:.1f} s")
    walls = {}
    for name in ("first run", "with durations of the first"):
        done = lab.run("-n", "auto", suites=suite)
        assert done.code == 0, done.output[-4000:]
        walls[name] = told(done.cases, seconds, name)
    # what loadgroup does; pytest-xdist 3.8's marks group nothing with pytest 9
    others = {LEASES: ("load", [loops]), GROUPS: ("loadfile", files)}
    for name, (dist, suites) in others.items():
        walls[name] = loop_s(suites, dist, lab)
        busy = sum(map(sum, seconds.values())) / (8 * walls[name])
        print(f"{name}: {walls[name]:.1f} s, {100 * busy:.0f} % busy, bare sleep", flush=True)
    ours = walls["with durations of the first"]
    for name in others:
        print(f"{walls[name] / ours:.2f} x as long as ours: {name}")


def told(cases: list[dict[str, Any]], seconds: dict[str, list[float]], name: str) -> float:
    """Says how busy devices were from the first case to the end of the last; how long that is."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case in cases:
        begun = datetime.fromisoformat(case["started"]).timestamp()
        spans[case["device"]["name"]].append((begun, begun + case["duration_s"]))
    assert len(cases) == 300
    assert len(spans) == 8
    flat = [span for own in spans.values() for span in own]
    wall_s = max(end for _, end in flat) - min(begin for begin, _ in flat)
    of_pool: dict[str, float] = defaultdict(float)
    for device, own in spans.items():
        of_pool[device.partition("-")[0]] += sum(end - begin for begin, end in own)
    allowed_s = max(of_pool[pool] / KINDS[pool][2] for pool in KINDS)
    busy = sum(of_pool.values()) / (8 * wall_s)
    allowed = sum(of_pool.values()) / (8 * allowed_s)
    asked = sum(map(sum, seconds.values())) / (8 * wall_s)
    print(
        f"{name}: {wall_s:.1f} s, {100 * busy:.0f} % busy with cases ({100 * asked:.0f} % with "
        f"what they ask for), requirements allow {100 * allowed:.0f} %: {100 * busy / allowed:.0f} "
        "% of that",
        flush=True,
    )
    return wall_s


def loop_s(suites: list[Path], dist: str, lab: DeviceRuns) -> float:
    """How long the same takes with pytest-xdist alone, from the first test to the last."""
    times = suites[0].with_name("times.jsonl")
    times.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "8", "--dist", dist, *map(str, suites)]
    command += ["-p", "no:qnn_harness", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", str(times.parent)]
    done = subprocess.run(
        command,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    spans = [json.loads(line) for line in times.read_text().splitlines()]
    assert len(spans) == 300
    return max(end for _, end in spans) - min(begin for begin, _ in spans)
