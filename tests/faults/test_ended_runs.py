"""SIGINT, SIGTERM and SIGKILL of pytest in each of its phases: what is left, and what goes on."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from harness.results.journal import read_journal
from tests.faults.conftest import HERE
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.processes import processes_of
from tests.waiting import wait_for

SUITE = HERE / "ended_suite/cases_that_end.py"
START_S = 300
"""Far more than a run takes to get anywhere, for computers that are busy."""
ENDS_WITHIN_S = 60.0
EXIT_INTERRUPTED = 2


def is_reached(folder: Path, phase: str) -> bool:
    if phase == "preparation":
        return any((folder / "simulated").rglob("store/.incoming/*"))
    if phase == "case":
        return any(map(probe_waits, processes_of(folder)))
    return (folder / "reached").exists()


def probe_waits(pid: int) -> bool:
    try:
        is_probe = os.readlink(f"/proc/{pid}/exe").endswith("/qnn-probe")
        return is_probe and Path(f"/proc/{pid}/syscall").read_text().startswith("34 ")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "number", "verdicts"),
    [
        ("collection", signal.SIGINT, 0),
        ("preparation", signal.SIGTERM, 0),
        ("case", signal.SIGKILL, 1),
        ("reporting", signal.SIGTERM, 3),
    ],
)
def test_nothing_stays_the_run_reports_and_the_next_is_well(
    tmp_path: Path, phase: str, number: int, verdicts: int
) -> None:
    lab = DeviceRuns(tmp_path)
    settings = {"QNN_FAULT_PHASE": phase, "QNN_FAULT_REACHED": str(tmp_path / "reached")}
    settings |= {"PYTHONPATH": str(ROOT)}
    command = lab.command(SUITE, "--reports", tmp_path / phase)
    log = tmp_path / "output"
    with (
        log.open("wb") as output,
        lab.start(command, env=lab.environment | settings, stdout=output) as process,
    ):
        try:
            wait_for(
                lambda: is_reached(tmp_path, phase) or process.poll() is not None, phase, START_S
            )
            assert process.poll() is None, log.read_text()
            process.send_signal(number)
            code = process.wait(ENDS_WITHIN_S)
        finally:
            process.kill()
    wait_for(lambda: not processes_of(tmp_path), "no process stays behind", ENDS_WITHIN_S)
    for journal in (tmp_path / phase).glob("2*/results.jsonl"):
        contents = read_journal(journal)
        assert contents.damage == ()
        outcomes = [case.outcome for case in contents.records]
        assert outcomes.count("passed") >= verdicts
        assert "failed" not in outcomes
    lab.run("-k", "first", suites=SUITE, PYTHONPATH=str(ROOT), code=0)
    for pattern in ("store/.incoming/**/*", "sets/.new-*/**/*", ".qnn-harness-*"):
        left = [path for path in (tmp_path / "simulated").rglob(pattern) if not path.is_dir()]
        assert left == [], "files stay behind on the device"
    shutil.rmtree(tmp_path / "simulated")
    # during collection there is no run yet that could be reported
    if phase == "collection" or number == signal.SIGKILL:
        return
    assert code == EXIT_INTERRUPTED, log.read_text()
    for word in ("Traceback", "INTERNALERROR"):
        assert word not in log.read_text()
    (info,) = (tmp_path / phase).glob("2*/run.json")
    assert json.loads(info.read_text())["exit_code"] == EXIT_INTERRUPTED
    assert (info.parent / "junit.xml").exists()
