"""Farms on which devices drop off, or are slow: how busy they are, and how near to the bound."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from harness.device.simulator.farm import STEADY, SimulatedFarm, Tempered, farm_devices
from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.run.pytest_plugin.test_moving import longest_wait_s

pytestmark = pytest.mark.nightly

SUITE = '''"""Cases that take known times, and three times as long on devices called slow."""
import json
from pathlib import Path

import pytest
from harness import Plan
from harness.probe.plan import Step

SECONDS = json.loads(Path(__file__).with_name("seconds.json").read_text())


@pytest.mark.device
@pytest.mark.parametrize("number", range(len(SECONDS)))
def test_one(bench, number):
    times = 3 if "slow" in bench.device.name else 1
    ms = str(round(1000 * times * SECONDS[number]))
    bench.run(Plan((Step("sleep", {"ms": ms}),)), timeout_s=60).check()
'''


def runs_of(
    folder: Path, devices: Sequence[Tempered], seconds: Sequence[float], count: int = 1
) -> Iterator[Finished]:
    """So many runs of cases that take so long, one after another, on a farm, a worker a device.

    Each is to be looked at before the next begins, as its journal is that of the latest run.
    """
    lab = DeviceRuns(folder)
    suite = folder / "test_farm.py"
    suite.write_text(SUITE)
    (folder / "seconds.json").write_text(str([round(one, 3) for one in seconds]))
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    with SimulatedFarm(devices, key_folder=keys) as farm:
        lab.file.write_text(farm.lab)
        asked = "--any-device", "-n", len(devices), "-q"
        for _ in range(count):
            yield lab.run(*asked, suites=suite)


def span_s(cases: Sequence[dict[str, object]]) -> tuple[float, dict[str, float]]:
    """From the begin of the first case to the end of the last, and how busy each device was."""
    busy: dict[str, float] = defaultdict(float)
    begun, ended = [], []
    for case in cases:
        took = float(str(case["duration_s"]))
        device = case["device"]
        assert isinstance(device, dict)
        busy[device["name"]] += took
        begun.append(datetime.fromisoformat(str(case["started"])).timestamp())
        ended.append(begun[-1] + took)
    return max(ended) - min(begun), busy


def test_devices_that_drop_off_are_busy_as_long_as_they_are_there(
    tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    (run,) = runs_of(tmp_path, farm_devices(8, "stormy", 0), [1.0] * 320)
    assert run.code == 0, run.output
    whole_s, busy = span_s(run.cases)
    share, waited_s = sum(busy.values()) / (8 * whole_s), longest_wait_s(run)
    show_figures("320 cases on 8 devices that drop off", share=share, longest_wait_s=waited_s)
    assert share >= 0.7
    assert waited_s < 2.0
    assert "reboot" not in {event["event"] for event in run.events}


def test_the_documented_mixed_farm_loses_no_case(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, farm_devices(10, "mixed", 0), [0.2] * 100)
    assert run.code == 0, run.output
    last = {case["case"]: case["outcome"] for case in run.cases}
    assert list(last.values()) == ["passed"] * 100


def test_four_fast_and_four_slow_devices_end_together(
    tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    chance = random.Random(5)
    seconds = [chance.lognormvariate(0.0, 0.3) for _ in range(240)]
    names = [f"fast-{n}" for n in range(4)] + [f"slow-{n}" for n in range(4)]
    devices = [Tempered(name, "QCS8550", STEADY) for name in names]
    runs = runs_of(tmp_path, devices, seconds, 2)
    for name, run in zip(("first run", "second run"), runs, strict=True):
        assert run.code == 0, run.output
        whole_s, busy = span_s(run.cases)
        spent_s = sum(took / (3 if "slow" in device else 1) for device, took in busy.items())
        ratio = whole_s / (spent_s / (4 + 4 / 3))
        show_figures(f"4 fast and 4 slow devices, {name}", ratio=ratio)
        assert ratio <= 1.1
