"""Farms of simulated devices, and runs on them while all goes wrong."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.lab.inventory import load_lab
from harness.lab.lease import Leases
from harness.simulator.farm import SimulatedFarm
from tests.integration.device_runs import DeviceRuns

NAMES = ("farm-01", "farm-02")


@contextlib.contextmanager
def farm_of(lab: DeviceRuns, devices: int) -> Iterator[subprocess.Popen[str]]:
    """`qnn-harness simulator farm`, once it has written farm.yaml."""
    words = ("harness.cli.main", "simulator", "farm", "--devices", str(devices))
    command = [sys.executable, "-m", *words]
    farm = lab.start(command, cwd=lab.folder, stderr=subprocess.PIPE)
    try:
        assert "farm.yaml" in farm.stdout.readline()
        yield farm
        assert not (lab.folder / "farm.yaml").exists()
    finally:
        farm.kill()
        farm.wait()


@pytest.mark.slow
def test_a_farm_is_a_lab_until_it_ends(tmp_path: Path) -> None:
    lab = DeviceRuns(tmp_path)
    with farm_of(lab, devices=5) as farm:
        program, *words = farm.stdout.readline().split()
        assert (program, words[0]) == ("qnn-harness", "--lab=farm.yaml")
        completed = lab.qnn_harness(*words, code=0)
        assert [line.split()[3] for line in completed.stdout.splitlines()[1:6]] == ["good"] * 5
        for refused in ((), ("-o", "gone/x.yaml")):
            assert lab.qnn_harness("simulator", "farm", *refused).returncode == 2
        farm.send_signal(signal.SIGTERM)
        assert farm.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed",
    [{b"acceptfd:": "adb server"}, {b"farm-02": "farm-02", b"farm-01": "farm-01"}],
    ids=["server", "devices"],
)
def test_a_farm_ends_with_its_server_or_its_last_device(
    tmp_path: Path, killed: dict[bytes, str]
) -> None:
    with farm_of(DeviceRuns(tmp_path), devices=2) as farm:
        for marked, name in killed.items():
            assert (farm.poll(), (tmp_path / "farm.yaml").exists()) == (None, True)
            pid = next(pid for pid in _below(farm.pid) if marked in _command(pid))
            os.kill(pid, signal.SIGKILL)
            assert name in farm.stderr.readline()
        assert farm.wait(60) == 3


def _below(pid: int) -> Iterator[int]:
    """All processes below one."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def _command(pid: int) -> bytes:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    # what guards a command has it among its own words
    return b"" if b"guard" in words else words


@pytest.mark.slow
def test_what_another_session_has_is_left_to_it(tmp_path: Path) -> None:
    lab = DeviceRuns(tmp_path)
    suite = tmp_path / "test_farm.py"
    suite.write_text(
        "import pytest\nfrom harness import Plan\nfrom harness.probe.plan import Step\n\n\n"
        "@pytest.mark.device\n@pytest.mark.parametrize('number', range(4))\n"
        "def test_one(bench, number):\n    bench.run(Plan((Step('noop'),))).check()\n"
    )
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    leases = Leases(Path(lab.environment["QNN_HARNESS_LEASES"]), purpose="another session")
    with SimulatedFarm(2, key_folder=keys) as farm:
        lab.file.write_text(farm.lab)
        known = load_lab(lab.file)
        leases.acquire(known.devices[0].location(known), NAMES[0])
        try:
            run = lab.run("--spread=any", "-n", "0", suites=suite)
        finally:
            leases.close()
    assert run.code == 0, run.output
    assert {case["device"]["name"] for case in run.cases} == {NAMES[1]}
    assert len(run.cases) == 4
    assert "waiting up to" not in run.output
