"""A farm of simulated devices: our run beside a conftest with a file lock for each device."""

import contextlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.core.deadline import Deadline
from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.farm import lab_text
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_server import adb_binary
from tests.integration.device_runs import DeviceRuns
from tests.integration.transport.adb.faulty_link import FaultyLink

pytestmark = pytest.mark.benchmark

ROUNDS = int(os.environ.get("QNN_HARNESS_FARM_ROUNDS", "3"))
MOST = 1.1
"""So many times the time and processor time of the conftest our run may take, start included."""
SOC, OTHER_SOC = "QCS8550", "QCS6490"
CASE_MS = 500
FULL_BYTES = 5_000_000
OURS = f'''"""Cases of half a second that any device runs."""
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(CASES))
def test_some(bench, number):
    bench.run(Plan((Step("sleep", {{"ms": "{CASE_MS}"}}),))).check()
'''
THEIRS = f'''"""The same with adb alone."""
import pytest


@pytest.mark.parametrize("number", range(CASES))
def test_some(device, number):
    assert device.adb("shell", "sleep {CASE_MS / 1000}; echo done").strip() == "done"
'''


@dataclass(frozen=True)
class Measured:
    """The duration of a run, the processor time of it and its children, and its lost verdicts."""

    wall_s: float
    processor_s: float
    lost: int


@contextlib.contextmanager
def farm(
    folder: Path, count: int, *, mixed: bool, others: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The devices.yaml of a farm, and what the conftest is told of it.

    Of a mixed one a device is full, and the link of another is slow. The last `others` devices have
    another SoC.
    """
    keys = folder / "keys"
    keys.mkdir(mode=0o700)
    with contextlib.ExitStack() as ends:
        key = harness_key(keys).with_suffix(".pub")
        server = ends.enter_context(PrivateAdbServer(key_folder=keys)).server
        socs = [SOC] * (count - others) + [OTHER_SOC] * others
        devices = []
        for number in range(count):
            name, is_full = f"farm-{number:02}", mixed and number == 0
            device = SimulatedDevice(
                name,
                storage=folder / name,
                properties=device_properties(name, socs[number]),
                public_key=key,
                storage_limit_bytes=FULL_BYTES if is_full else None,
            )
            devices.append(ends.enter_context(device))
        socket = server.address.spec.partition(":")[2]
        first, *entries = lab_text(socket, devices).split("  - {name: farm-")
        entries = [entry.replace(SOC, soc) for entry, soc in zip(entries, socs, strict=True)]
        text = "  - {name: farm-".join([first, *entries])
        serials = [device.address for device in devices]
        if mixed:
            link = ends.enter_context(FaultyLink(devices[1].address))
            link.bytes_per_s = 1e7
            text = text.replace(serials[1], link.address)
            serials[1] = link.address
        for serial in serials:
            server.connect(serial, deadline=Deadline(60))
        folders = {
            serial: f"{device.storage}/data/local/tmp/theirs"
            for serial, device in zip(serials, devices, strict=True)
        }
        adb = [str(adb_binary()), "-L", server.address.spec]
        yield text, {"adb": adb, "serials": serials, "folders": folders}


def measured(command: list[str], folder: Path, environment: dict[str, str], cases: int) -> Measured:
    """Runs pytest; a case without a verdict is lost."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    completed = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    wall_s, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *_, last = completed.stdout.strip().splitlines()
    words = last.replace(",", " ").split()
    passed = int(words[words.index("passed") - 1]) if "passed" in words else 0
    return Measured(wall_s, processor_s, cases - passed)


@pytest.mark.parametrize(
    ("count", "cases", "mixed"),
    [pytest.param(10, 60, True, id="mixed"), pytest.param(8, 240, False, id="equal")],
)
def test_our_run_beside_a_conftest_with_a_lock_for_each_device(
    tmp_path: Path, count: int, cases: int, mixed: bool
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "conftest.py").write_text(Path(__file__).with_name("lock_conftest.py").read_text())
    (theirs / "test_farm.py").write_text(THEIRS.replace("CASES", str(cases)))
    measured_runs: dict[str, list[Measured]] = {"ours": [], "conftest": []}
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        lab = DeviceRuns(folder)
        suite = folder / "test_farm.py"
        suite.write_text(OURS.replace("CASES", str(cases)))
        with farm(folder, count, mixed=mixed) as (text, environment):
            lab.file.write_text(text)
            ours = lab.command("--spread=any", "-n", "8", "-q", suite)
            measured_runs["ours"].append(measured(ours, folder, lab.environment, cases))
            (work,) = folder.glob(f"farm-{count - 1:02}/**/sets")
            environment["files"] = str(work)
            for mark in theirs.glob("127*"):
                mark.unlink()
            (theirs / "farm.json").write_text(json.dumps(environment))
            command = [sys.executable, "-m", "pytest", "-q", "-n", "8", "--dist", "load"]
            command += ["-p", "no:qnn_harness", "-p", "no:cacheprovider", "-c", "/dev/null"]
            command += ["--rootdir", str(theirs), str(theirs)]
            measured_runs["conftest"].append(measured(command, theirs, lab.environment, cases))
        for name, rounds in measured_runs.items():
            print(f"round {number}: {name}: {rounds[-1]}", flush=True)
    medians = {
        name: [
            statistics.median(getattr(measured_run, figure) for measured_run in rounds)
            for figure in _FIGURES
        ]
        for name, rounds in measured_runs.items()
    }
    for number, figure in enumerate(_FIGURES):
        ours_s, theirs_s = medians["ours"][number], medians["conftest"][number]
        print(
            f"{figure}: {ours_s:.1f} beside {theirs_s:.1f}: {ours_s / theirs_s:.2f} x", flush=True
        )
    assert [measured_run.lost for measured_run in measured_runs["ours"]] == [0] * ROUNDS
    if mixed:
        assert all(measured_run.lost for measured_run in measured_runs["conftest"]), (
            "a device that is full loses none there"
        )
    for ours_s, theirs_s in zip(medians["ours"], medians["conftest"], strict=True):
        assert ours_s <= MOST * theirs_s


_FIGURES = ("wall_s", "processor_s")


SLOW = 3
"""So many times the time of others the second half of an uneven farm takes for a case."""
LENGTHS_S = [random.Random(number).uniform(0.2, 20) for number in range(48)]
UNEVEN = f'''"""Cases of 0.2 to 20 s; half of the devices are slow."""
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("length_s", {LENGTHS_S})
def test_some(bench, length_s):
    pace = {SLOW} if bench.device.name in ("farm-04", "farm-05", "farm-06", "farm-07") else 1
    ms = str(int(1000 * length_s * pace))
    bench.run(Plan((Step("sleep", {{"ms": ms}}),)), timeout_s=120).check()
'''


def test_four_fast_and_four_slow_devices(tmp_path: Path) -> None:
    """The first run knows nothing of cases and devices; the second knows the lengths of cases and
    the paces of the two kinds of devices. The start of the workers counts."""
    lab = DeviceRuns(tmp_path)
    suite = tmp_path / "test_farm.py"
    suite.write_text(UNEVEN)
    paces = [1] * 4 + [SLOW] * 4
    bound_s = sum(LENGTHS_S) / sum(1 / pace for pace in paces)
    print(f"bound {bound_s:.1f} s", flush=True)
    runs = []
    with farm(tmp_path, 8, mixed=False, others=4) as (text, _):
        lab.file.write_text(text)
        for name in ("first", "second", "third"):
            command = lab.command("--spread=any", "-n", "8", "-q", suite)
            runs.append(measured(command, tmp_path, lab.environment, len(LENGTHS_S)))
            print(f"{name}: {runs[-1].wall_s / bound_s:.2f} x the bound", flush=True)
    assert [run.lost for run in runs] == [0, 0, 0]
    assert runs[0].wall_s <= 1.25 * bound_s
    assert runs[1].wall_s <= MOST * bound_s


PAIR = '''"""Cases of one length that either device runs."""
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(CASES))
def test_some(bench, number):
    bench.run(Plan((Step("sleep", {"ms": "CASE_MS"}),))).check()
'''


def test_a_short_run_beside_a_long_one_waits_for_one_case(tmp_path: Path) -> None:
    lab, case_s = DeviceRuns(tmp_path), 4
    for name, cases, ms in (("short", 6, 500), ("long", 24, 1000 * case_s)):
        text = PAIR.replace("CASES", str(cases)).replace("CASE_MS", str(ms))
        (tmp_path / f"test_{name}.py").write_text(text)

    def command(name: str) -> list[str]:
        words = lab.command("--spread=any", "-n", "2", "-q", tmp_path / f"test_{name}.py")
        words[words.index("--reports") + 1] = str(tmp_path / name)
        return words

    with farm(tmp_path, 2, mixed=False) as (text, _):
        lab.file.write_text(text)
        alone = measured(command("short"), tmp_path, lab.environment, 6)
        long = subprocess.Popen(command("long"), cwd=tmp_path, env=lab.environment)
        try:
            while not any(tmp_path.glob("long/2*/results.jsonl")):
                time.sleep(0.1)
            time.sleep(2 * case_s)
            beside = measured(command("short"), tmp_path, lab.environment, 6)
            assert long.poll() is None
            assert long.wait(600) == 0
        finally:
            long.kill()
            long.wait()
    print(f"alone {alone.wall_s:.1f} s, beside {beside.wall_s:.1f} s", flush=True)
    assert (alone.lost, beside.lost) == (0, 0)
    assert beside.wall_s - alone.wall_s <= 1.25 * case_s  # its start varies
