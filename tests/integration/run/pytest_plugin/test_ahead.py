"""`--ahead`: what another version will need gets onto the device while a case runs on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = '''"""A case that lasts until something new has come onto its device."""
import os
import time

import pytest

from harness.contexts.compiler.models import Model

TINY = pytest.mark.parametrize("model", [Model("tiny")], ids=str)


@pytest.mark.device
@TINY
def test_long(bench, model):
    device = bench.device
    look = f"cd {device.workdir}/sets && ls"
    before = set(device.transport.shell(look, timeout_s=60).stdout.decode().split())
    new = set()
    until = time.monotonic() + 90
    while len(new) < int(os.environ["NEW_SETS"]) and time.monotonic() < until:
        new = set(device.transport.shell(look, timeout_s=60).stdout.decode().split()) - before
        time.sleep(0.2)
    bench.measure(new=sorted(new))


@pytest.mark.device
@pytest.mark.timed
@TINY
def test_timed(bench, model):
    bench.measure(noted=1)
'''


@pytest.mark.slow
def test_another_version_is_made_ready_meanwhile(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    ahead = ("--ahead", "qnn=2.50.40", "--ahead", "qnn=2.49.40 compiler=2.47.0")
    done = lab.run(*ahead, "-k", "test_long", suites=suite, NEW_SETS="4")
    assert done.code == 0, done.output
    (case,) = done.cases
    names = sorted(name.rpartition("-")[0] for name in case["measurements"]["new"])
    assert names == ["qnn-2.49.40", "qnn-2.50.40", "tiny", "tiny"], json.dumps(case)
    device = tmp_path / "simulated/sim-v73/data/local/tmp/qnn-harness"
    held = {path: path.stat().st_ino for path in device.glob("store/*") if path.is_file()}
    again = lab.run("--qnn", "2.50.40", "-k", "test_timed", suites=suite)
    assert again.code == 0, again.output
    came = [path for path in device.glob("store/*") if path.is_file() and path not in held]
    assert not came, "the run had to push what had been pushed ahead of it"


@pytest.mark.nightly
def test_it_is_left_out_beside_timed_tests_and_refused_if_it_makes_no_sense(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    assert lab.run("--ahead", "qnn=2.50.40", "-k", "test_timed", suites=suite).code == 0
    sets = tmp_path / "simulated/sim-v73/data/local/tmp/qnn-harness/sets"
    assert not [path.name for path in sets.iterdir() if "2.50.40" in path.name]
    wrong = lab.run("--ahead", "2.50.40", "-k", "test_long", suites=suite)
    assert wrong.code == 2
    assert "--ahead" in wrong.output
    given = ("--ahead", "qnn=1.2.3", "--ahead", "qnn=2.50.40")
    unknown = lab.run(*given, "-k", "test_long", suites=suite, NEW_SETS="2")
    assert unknown.code == 0, "what a later run may need is no fault of this one"
    assert "--ahead: --qnn: unknown QNN version '1.2.3'" in unknown.output
