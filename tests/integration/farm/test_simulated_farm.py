"""Farms of simulated devices: what they are like, and runs on them while all goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.farm.farm_chaos import Chaos, problems


def test_a_farm_is_a_lab_until_it_ends(tmp_path: Path) -> None:
    lab = DeviceRuns(tmp_path)
    farm = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", "simulator", "farm", "--devices", "5"],
        cwd=tmp_path,
        env=lab.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert farm.stdout is not None
        assert farm.stdout.readline() == (
            "5 devices are up, as farm.yaml has them; in another terminal:\n"
        )
        written = (tmp_path / "farm.yaml").read_text()
        assert written.count("# steady") + written.count("# a slow") == 4
        done = lab.qnn_harness("devices", "--lab", "farm.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [line.split()[3] for line in done.stdout.splitlines()[1:6]] == ["good"] * 5
        taken = lab.qnn_harness("simulator", "farm")
        assert taken.returncode == 2
        assert "--write farm.yaml: is there already" in taken.stderr
        farm.send_signal(signal.SIGTERM)
        assert farm.wait(60) == 0
        assert not (tmp_path / "farm.yaml").exists()
    finally:
        farm.kill()
        farm.wait()
    for arguments, said in (
        (("farm", "--devices", "0"), "--devices: 0 is none of 1 to 200"),
        (("farm", "--profile", "mixd"), "--profile: no profile 'mixd'"),
        (("--devices", "3"), "--devices: is for a farm"),
    ):
        wrong = lab.qnn_harness("simulator", *arguments)
        assert (wrong.returncode, said in wrong.stderr) == (2, True), wrong.stderr


@pytest.mark.nightly
def test_disturbed_devices_and_workers_change_no_verdict(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, devices=3, cases=60)
    quiet, _, left = chaos.run(None)
    assert not left
    assert {case["outcome"] for case in quiet.cases} == {"passed", "crashed"}, quiet.output
    run, did, left = chaos.run(seed=1, every_s=1.5)
    assert did, "it was over before anything was done to it"
    assert problems(quiet, run, 60, left) == [], f"{did}\n{run.output}"
