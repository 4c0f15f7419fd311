"""pytest ended while its probe runs on the real adbd, which ends nothing by itself."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from harness.transport.adb_device import AdbDevice
from tests.faults.breakable import BreakableLab
from tests.faults.cases_under_fault import WAITING, left_behind
from tests.faults.conftest import HERE, daemon_parameters
from tests.faults.table import ANDROID, REAL
from tests.integration.device_runs import ROOT

SUITE = HERE / "ended_suite/cases_that_end.py"
BUSY_S = 120
"""Far more than anything takes here, for computers that are busy."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


@pytest.mark.slow
@pytest.mark.parametrize("daemon", daemon_parameters((REAL, ANDROID), by_night=(ANDROID,)))
@pytest.mark.parametrize(
    "signals", [[signal.SIGKILL], pytest.param(SIGNALS, marks=pytest.mark.nightly)], ids=len
)
def test_ended_while_the_probe_runs(
    tmp_path: Path, daemon: str, signals: list[signal.Signals]
) -> None:
    with BreakableLab(tmp_path, daemon, None) as lab:
        lab.carry_out("heal")
        device = AdbDevice(lab.link.address, lab.server)
        # first, that what stays behind would be seen
        sleeper = (
            # setsid may go on as another process; while one is loaded, its environment is not seen
            "p=$(setsid sh -c 'echo $$;exec sleep 54321 >/dev/null 2>&1 </dev/null' &);"
            'until [ "$(cat /proc/$p/comm)" = sleep ];do :;done;echo $p'
        )
        pid = device.shell(sleeper, timeout_s=10).stdout.decode().strip()
        assert left_behind(device, lab.workdir) == f"process {pid}: sleep 54321 \n"
        device.shell(f"kill -9 {pid}", timeout_s=10)
        for number in signals:
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
                assert device.shell(waiting, timeout_s=BUSY_S).ok
                process.send_signal(number)
                process.wait(BUSY_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            assert left_behind(device, lab.workdir) == "", number.name
        completed = lab.run("--device", "main", "-k", "first", suites=SUITE, PYTHONPATH=str(ROOT))
        assert completed.code == 0, completed.output
        assert left_behind(device, lab.workdir) == ""
