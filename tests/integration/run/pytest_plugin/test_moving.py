"""A case moves at once from a device that cannot run it, and the device is seen to beside that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from harness.device.simulator.farm import HOT, SLOW, SMALL, STEADY, SimulatedFarm, Temper, Tempered
from tests.integration.device_runs import DeviceRuns, Finished

SUITE = '''"""Cases that any device runs."""
import pytest
from harness import Plan
from harness.probe.plan import Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(8))
def test_one(bench, number):
    bench.run(Plan((Step("noop"), Step("sleep", {"ms": "100"})))).check()
'''
TIMED = SUITE.replace("@pytest.mark.device\n", "@pytest.mark.device\n@pytest.mark.timed\n")
FULL = replace(SMALL, storage_bytes=5_000_000)
HOTTER = replace(HOT, skin_c=105.0)
SLOWER = replace(SLOW, link_bytes_per_s=1e6)
LOST = replace(STEADY, says="lost")
MOST_WAIT_S = 2.0


def run_beside(
    folder: Path, temper: Temper, workers: int, *more: Temper, tests: str = SUITE
) -> Finished:
    """A run on a device of a temper, the first of the lab, and on others that can do it all."""
    lab = DeviceRuns(folder)
    suite = folder / "test_farm.py"
    suite.write_text(tests)
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    tempers = [temper, *more, STEADY]
    described = [Tempered(f"farm-{n:02}", "QCS8550", one) for n, one in enumerate(tempers, 1)]
    with SimulatedFarm(described, key_folder=keys) as farm:
        lab.file.write_text(farm.lab)
        if temper is LOST:
            farm.links[0].cut(1000)
        return lab.run("--any-device", "-n", workers, "-q", suites=suite)


def longest_wait_s(run: Finished) -> float:
    """How long (s) a case waited at most for its next attempt while one that fits was ready."""
    ended: dict[str, float] = {}
    ready: dict[str, float] = {}
    found = [0.0]
    for case in run.cases:
        began = datetime.fromisoformat(case["started"]).timestamp()
        since = max(ended.get(case["case"], began), ready.setdefault(case["device"]["name"], began))
        found.append(began - since)
        ended[case["case"]] = began + case["duration_s"]
    return max(found)


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("temper", "workers"),
    [
        pytest.param(FULL, 0, id="full"),
        pytest.param(FULL, 2, id="full-2", marks=NIGHTLY),
        pytest.param(LOST, 0, id="lost", marks=NIGHTLY),
        pytest.param(LOST, 2, id="lost-2", marks=NIGHTLY),
        pytest.param(SLOWER, 0, id="slow", marks=NIGHTLY),
        pytest.param(SLOWER, 2, id="slow-2", marks=NIGHTLY),
        pytest.param(HOTTER, 0, id="hot", marks=NIGHTLY),
        pytest.param(HOTTER, 2, id="hot-2", marks=NIGHTLY),
    ],
)
def test_no_case_is_lost_or_waits_for_a_device_that_cannot_run_it(
    tmp_path: Path, temper: Temper, workers: int, show_figures: Callable[..., None]
) -> None:
    run = run_beside(tmp_path, temper, workers)
    assert run.code == 0, run.output
    passed = [case for case in run.cases if case["outcome"] == "passed"]
    assert len({case["case"] for case in passed}) == len(passed) == 8
    assert {case["device"]["name"] for case in passed} == {"farm-02"}, run.output
    waited_s = longest_wait_s(run)
    show_figures(f"{temper.says}, {workers} workers", longest_wait_s=waited_s)
    assert waited_s < MOST_WAIT_S, run.output
    assert "reboot" not in {event["event"] for event in run.events}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=NIGHTLY)])
def test_a_timed_case_does_not_wait_for_a_hot_device_beside_a_cool_one(
    tmp_path: Path, workers: int
) -> None:
    run = run_beside(tmp_path, HOT, workers, tests=TIMED)
    assert run.code == 0, run.output
    last = {case["case"]: case for case in run.cases}
    assert [case["device"]["name"] for case in last.values()] == ["farm-02"] * 8, run.output
    hot = [case for case in run.cases if case["device"]["name"] == "farm-01"]
    assert hot
    assert all("too hot for a timed case" in case["error"]["message"] for case in hot)
    assert not {"gate", "reboot"} & {event["event"] for event in run.events}


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [0, 2])
def test_where_no_device_has_room_each_case_is_an_error_that_says_how_much(
    tmp_path: Path, workers: int
) -> None:
    lab = DeviceRuns(tmp_path)
    lab.file.write_text(
        "schema: 1\ndevices:\n"
        + "".join(
            f"  - {{name: sim-{n}, simulated: true, soc: QCS8550, storage_limit_mb: 5}}\n"
            for n in "ab"
        )
    )
    suite = tmp_path / "test_farm.py"
    suite.write_text(SUITE)
    run = lab.run("--any-device", "-n", workers, "-q", suites=suite)
    assert run.code == 3, run.output
    last = {case["case"]: case for case in run.cases}
    assert len(last) == 8
    for case in last.values():
        assert (case["outcome"], case["cause"]) == ("error", "infra")
        assert "bytes are free" in case["error"]["message"]
    assert "reboot" not in {event["event"] for event in run.events}
