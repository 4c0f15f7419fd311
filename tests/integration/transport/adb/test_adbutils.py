"""adbutils is what speaks to adb servers: each connection of a run is one of its."""

import json
from pathlib import Path

import pytest

from tests.faults.breakable import BreakableLab
from tests.faults.table import REAL, SIMULATED
from tests.integration.device_runs import ROOT
from tests.integration.transport.adb.conftest import REAL as NEEDS_REAL

SUITE = '''"""Cases that do little."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range(3))
def test_noop(bench, number):
    bench.run(Plan((Step("noop"),))).check()
'''
CONFTEST = '''"""Counts connections to the adb server: of adbutils, and of this process."""
import atexit, json, os, sys
import adbutils

PORT = int(os.environ["COUNTED_PORT"])
made, connected = [], []
begin = adbutils.AdbConnection.__init__

def counted(self, host, port):
    made.append(port)
    begin(self, host, port)

def heard(event, arguments):
    if event == "socket.connect" and arguments[1][1:2] == (PORT,):
        connected.append(PORT)

adbutils.AdbConnection.__init__ = counted
sys.addaudithook(heard)

@atexit.register
def tell():
    with open(os.environ["COUNTED"], "w") as file:
        json.dump([made.count(PORT), len(connected)], file)
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [SIMULATED, pytest.param(REAL, marks=[NEEDS_REAL, pytest.mark.slow])]
)
def test_every_connection_of_a_run_is_one_of_adbutils(kind: str, tmp_path: Path) -> None:
    suites = tmp_path / "suites"
    suites.mkdir()
    (suites / "conftest.py").write_text(CONFTEST)
    (suites / "test_noop.py").write_text(SUITE)
    counted = tmp_path / "counted"
    (tmp_path / "lab").mkdir()
    with BreakableLab(tmp_path / "lab", kind, None) as lab:
        lab.carry_out("heal")
        settings = {"COUNTED": str(counted), "COUNTED_PORT": str(lab.server.address.port)}
        finished = lab.run("--device", "main", suites=suites, PYTHONPATH=str(ROOT), **settings)
    assert finished.code == 0, finished.output
    of_adbutils, of_the_process = json.loads(counted.read_text())
    # a case takes at least one; the device is also looked at, and given what it lacks
    assert of_adbutils == of_the_process > len(finished.cases) == 3
