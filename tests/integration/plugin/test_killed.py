"""Ctrl-C in mid-run: the reports are whole and nothing of ours stays behind."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns
from tests.processes import processes_of
from tests.waiting import wait_for

TWO_DEVICES = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: sim-b, simulated: true, soc: QCS8550, target: linux-x64}
"""
SLOW_SUITE = '''"""Cases that give time to end them."""
import time

import pytest


@pytest.mark.device
@pytest.mark.parametrize("number", range(20))
def test_slow(bench, number):
    bench.measure(noted=1)
    time.sleep(0.5)
'''


# as a terminal does it: Ctrl-C reaches every process
@pytest.mark.slow
def test_ctrl_c_thrice_leaves_complete_reports(lab: DeviceRuns) -> None:
    lab.file.write_text(TWO_DEVICES)
    log = lab.folder / "said"
    with log.open("wb") as output:
        command = lab.command("-n", "2", lab.write_suite(SLOW_SUITE))
        process = lab.start(command, stdout=output, start_new_session=True)
    folder = lab.reports / "latest"
    wait_for(lambda: (folder / "results.jsonl").exists() and recorded(folder) > 0, "a case", 120)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
        if process.poll() is not None:
            break
    assert process.wait(timeout=60) == 2, log.read_text()
    info = json.loads((folder / "run.json").read_text())
    assert (info["exit_code"], info["problem"]) == (2, "interrupted")
    assert info["finished"]
    assert (folder / "junit.xml").exists()
    assert (folder / "report.html").exists()
    text = log.read_text()
    assert text.count(f"--resume {os.path.relpath(folder.resolve(), ROOT)}") == 1, text
    assert not {"Traceback", "INTERNALERROR"} & {*text.replace(">", " ").split()}, text
    assert f"{40 - recorded(folder)} not run" in text, text
    wait_for(lambda: not processes_of(lab.folder), "nothing is left", 30)


def recorded(folder: Path) -> int:
    return (folder / "results.jsonl").read_bytes().count(b'"kind":"case"')
