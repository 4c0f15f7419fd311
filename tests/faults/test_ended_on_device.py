"""pytest ended while its probe runs: what stays on the device, and whether the next run is well."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from harness.adb.device import AdbDevice
from tests.faults.breakable import BreakableLab
from tests.faults.cases_under_fault import WAITING, left_behind
from tests.faults.conftest import HERE, daemon_parameters
from tests.faults.table import BOTH, REAL
from tests.integration.device_runs import ROOT

SUITE = HERE / "ended_suite/cases_that_end.py"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@pytest.mark.parametrize("daemon", daemon_parameters(BOTH))
def test_ended_while_the_probe_runs(daemon: str, tmp_path: Path) -> None:
    with BreakableLab(tmp_path, daemon, None) as lab:
        lab.carry_out("heal")
        device = AdbDevice(lab.link.address, lab.server)
        # first, that what stays behind would be seen; a simulated device lets nothing stay
        sleeper = "setsid sleep 54321 >/dev/null 2>&1 </dev/null & echo $!"
        pid = device.shell(sleeper, timeout_s=10).stdout.decode().strip()
        seen = left_behind(device, lab.workdir)
        assert seen == (f"process {pid}: sleep 54321 \n" if daemon == REAL else "")
        device.shell(f"kill -9 {pid}", timeout_s=10)
        for number in SIGNALS:
            process = subprocess.Popen(
                lab.command("--device", "main", SUITE),
                cwd=ROOT,
                env=lab.environment | {"QNN_FAULT_PHASE": "case", "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                waiting = WAITING.format(folder=shlex.quote(lab.workdir))
                assert device.shell(waiting, timeout_s=30).ok
                process.send_signal(number)
                process.wait(10)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            assert left_behind(device, lab.workdir) == "", number.name
        done = lab.run("--device", "main", "-k", "first", suites=SUITE, PYTHONPATH=str(ROOT))
        assert done.code == 0, done.output
        assert left_behind(device, lab.workdir) == ""
