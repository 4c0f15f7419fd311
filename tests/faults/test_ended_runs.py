"""SIGINT, SIGTERM and SIGKILL of pytest in each of its phases: what is left, and what goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.results.journal import read_journal
from tests.faults.conftest import HERE
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.plugin.test_killed import environment_of, running

SUITE = HERE / "ended_suite/cases_that_end.py"
ENDS = {
    "collection": signal.SIGINT,
    "preparation": signal.SIGTERM,
    "case": signal.SIGKILL,
    "reporting": signal.SIGTERM,
}
START_S = 300
"""Far more than a run takes to get anywhere, for computers that are busy."""
ENDS_WITHIN_S = 60.0
LOOK_EVERY_S = 0.15  # a look goes through all processes of the host
FINISHED_CASES = {"collection": 0, "preparation": 0, "case": 1, "reporting": 3}
EXIT_INTERRUPTED = 2


def wait_for(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = Deadline(timeout_s)
    while not condition():
        assert not deadline.expired, "it did not come to pass"
        time.sleep(LOOK_EVERY_S)


class Ended:
    """A run that was ended in one phase by its signal, and a healthy one on the same device."""

    def __init__(self, folder: Path, phase: str) -> None:
        self.phase = phase
        self.lab = DeviceRuns(folder)
        reached = folder / "reached"
        settings = {"QNN_FAULT_PHASE": phase, "QNN_FAULT_REACHED": str(reached)}
        said = folder / "output"
        with said.open("wb") as output:
            process = subprocess.Popen(
                self.lab.command(SUITE, "--reports", folder / phase),
                cwd=ROOT,
                env=self.lab.environment | settings | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for(lambda: self._reached(reached) or process.poll() is not None, START_S)
            assert process.poll() is None, said.read_text()
            process.send_signal(ENDS[phase])
            start = time.monotonic()
            self.code = process.wait(3 * ENDS_WITHIN_S)
            self.seconds = time.monotonic() - start
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.left: list[str] = []
        try:
            wait_for(lambda: not self.processes(), ENDS_WITHIN_S)
        except AssertionError:
            self.left = [environment_of(pid)[:200] for pid in self.processes()]
        self.output = said.read_text()
        self.info = self._newest("run.json")
        journal = self._newest("results.jsonl")
        self.cases = read_journal(journal) if journal else None
        self.again = self.lab.run("-k", "first", suites=SUITE, PYTHONPATH=str(ROOT))
        storage = self.lab.folder / "simulated"
        self.files = [
            path.relative_to(storage)
            for pattern in ("store/.incoming/**/*", "sets/.new-*/**/*", ".qnn-harness-*")
            for path in storage.rglob(pattern)
            if not path.is_dir()
        ]
        shutil.rmtree(storage)

    def processes(self) -> set[int]:
        mark = str(self.lab.folder)
        return {pid for pid in running() if mark in environment_of(pid)}

    def _newest(self, name: str) -> Path | None:
        paths = sorted((self.lab.folder / self.phase).glob(f"2*/{name}"))
        return paths[-1] if paths else None

    def _reached(self, reached: Path) -> bool:
        storage = self.lab.folder / "simulated"
        if self.phase == "preparation":
            return any(storage.rglob("store/.incoming/*"))
        if self.phase == "case":
            return any(_waits(pid) for pid in self.processes())
        return reached.exists()


def _waits(pid: int) -> bool:
    try:
        named = os.readlink(f"/proc/{pid}/exe").endswith("/qnn-probe")
        return named and Path(f"/proc/{pid}/syscall").read_text().startswith("34 ")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    [
        *(pytest.param(phase, marks=pytest.mark.slow) for phase in ("collection", "reporting")),
        "preparation",
        "case",
    ],
)
def test_nothing_stays_the_run_reports_and_the_next_is_well(tmp_path: Path, phase: str) -> None:
    end = Ended(tmp_path, phase)
    assert end.left == [], "processes stay behind"
    assert end.seconds < ENDS_WITHIN_S
    if end.cases is not None:
        assert end.cases.damage == ()
        passed = [case for case in end.cases.records if case.outcome == "passed"]
        assert len(passed) >= FINISHED_CASES[phase]
        assert not [case for case in end.cases.records if case.outcome == "failed"]
    assert end.again.code == 0, end.again.output
    assert end.files == [], "files stay behind on the device"
    # during collection there is no run yet that could be reported
    if phase == "collection" or ENDS[phase] == signal.SIGKILL:
        return
    assert end.code == EXIT_INTERRUPTED, end.output
    assert "Traceback" not in end.output, end.output
    assert "INTERNALERROR" not in end.output, end.output
    assert end.info is not None
    assert json.loads(end.info.read_text())["exit_code"] == EXIT_INTERRUPTED
    assert (end.info.parent / "junit.xml").exists()
