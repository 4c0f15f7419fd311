"""A case moves at once from a device that cannot run it, and the device is seen to beside that."""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.simulator.farm import SimulatedFarm
from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.transport.adb.faulty_link import FaultyLink

SUITE = '''"""Cases that any device runs."""
import pytest
from harness import Plan
from harness.probe.plan import Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(8))
def test_one(bench, number):
    bench.run(Plan((Step("noop"), Step("sleep", {"ms": "100"})))).check()
'''
MARKER = "@pytest.mark.device\n"
TIMED = SUITE.replace(MARKER, f"{MARKER}@pytest.mark.wait_until_idle\n")
FULL_LAB = """schema: 1
devices:
  - {name: farm-01, simulated: true, soc: QCS8550, storage_limit_mb: 5}
  - {name: farm-02, simulated: true, soc: QCS8550}
"""
SLOW_BYTES_PER_S = 1e6
DUMPSYS = """#!/bin/sh
[ "$1" = thermalservice ] && echo 'Temperature{mValue=%.1f, mType=3, mName=skin, mStatus=4}'
exit 0
"""
MOST_WAIT_S = 2.0


def run_beside(folder: Path, first: str, workers: int, tests: str = SUITE) -> Finished:
    """Run on a device that is full, lost, slow, or so hot (degrees), and on one that can do all."""
    lab = DeviceRuns(folder)
    suite = folder / "test_farm.py"
    suite.write_text(tests)
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    with contextlib.ExitStack() as ends:
        farm = ends.enter_context(SimulatedFarm(2, key_folder=keys))
        device, text = farm.devices[0], farm.lab
        if first == "full":
            text = FULL_LAB
        elif first == "lost":
            device.stop()
        elif first == "slow":
            link = ends.enter_context(FaultyLink(device.address))
            link.bytes_per_s = SLOW_BYTES_PER_S
            farm.server.connect(link.address, deadline=Deadline(60))
            text = text.replace(device.address, link.address)
        else:
            program = device.storage / "system/bin/dumpsys"
            program.write_text(DUMPSYS % float(first))
            program.chmod(0o755)
        lab.file.write_text(text)
        return lab.run("--spread=any", "-n", workers, "-q", suites=suite)


def longest_wait_s(run: Finished) -> float:
    """Return the longest wait (s) for a next attempt while a device that fits was ready."""
    ended: dict[str, float] = {}
    ready: dict[str, float] = {}
    waits = [0.0]
    for case in run.cases:
        start = datetime.fromisoformat(case["started"]).timestamp()
        since = max(ended.get(case["case"], start), ready.setdefault(case["device"]["name"], start))
        waits.append(start - since)
        ended[case["case"]] = start + case["duration_s"]
    return max(waits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "workers"),
    [
        ("full", 0),
        *(pytest.param(first, 2, marks=pytest.mark.nightly) for first in ("lost", "slow", "105")),
    ],
)
def test_no_case_is_lost_or_waits_for_a_device_that_cannot_run_it(
    tmp_path: Path, first: str, workers: int, show_figures: Callable[..., None]
) -> None:
    run = run_beside(tmp_path, first, workers)
    assert run.code == 0, run.output
    passed = [case for case in run.cases if case["outcome"] == "passed"]
    assert len({case["case"] for case in passed}) == len(passed) == 8
    assert {case["device"]["name"] for case in passed} == {"farm-02"}, run.output
    waited_s = longest_wait_s(run)
    show_figures(f"{first}, {workers} workers", longest_wait_s=waited_s)
    assert waited_s < MOST_WAIT_S, run.output
    assert "reboot" not in {event["event"] for event in run.events}


@pytest.mark.slow
def test_a_timed_case_does_not_wait_for_a_hot_device_beside_a_cool_one(tmp_path: Path) -> None:
    run = run_beside(tmp_path, "95", 0, TIMED)
    assert run.code == 0, run.output
    last = {case["case"]: case for case in run.cases}
    assert [case["device"]["name"] for case in last.values()] == ["farm-02"] * 8, run.output
    hot = [case for case in run.cases if case["device"]["name"] == "farm-01"]
    assert hot
    assert {(case["outcome"], case["cause"]) for case in hot} == {("error", "infra")}
    assert not {"gate", "reboot"} & {event["event"] for event in run.events}
