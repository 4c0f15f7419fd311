"""SIGKILL in mid-run: the journal stays whole and nothing of ours stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns

TWO_DEVICES = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: sim-b, simulated: true, soc: QCS8550, target: linux-x64}
"""
SLOW_SUITE = '''"""Cases that give time to end them."""
import os
import signal
import time
from pathlib import Path

import pytest

DIES = Path(os.environ.get("DIES", "/"))
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER == "gw1":
    time.sleep(float(os.environ.get("GW1_COLLECTS_S", "0")))


@pytest.mark.device
@pytest.mark.parametrize("number", range(int(os.environ.get("CASES", "20"))))
def test_slow(bench, number):
    bench.measure(noted=1)
    time.sleep(0.5)
    if not DIES.exists():
        DIES.touch()
        os.kill(os.getpid(), signal.SIGKILL)
'''
PLUGIN = '''"""Kills a worker as soon as it has collected."""
import os
import signal
import threading


def pytest_collection_finish(session):
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and worker in os.environ.get("KILLED_WORKERS", ""):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
'''


@pytest.fixture
def slow_suite(lab: DeviceRuns, tmp_path: Path) -> Path:
    lab.file.write_text(TWO_DEVICES)
    suite = tmp_path / "test_slow.py"
    suite.write_text(SLOW_SUITE)
    (tmp_path / "worker_killer.py").write_text(PLUGIN)
    return suite


# as a terminal does it: Ctrl-C reaches every process
@pytest.mark.slow
def test_ctrl_c_thrice_leaves_complete_reports(lab: DeviceRuns, slow_suite: Path) -> None:
    log = lab.folder / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            lab.command("-n", "2", slow_suite),
            cwd=ROOT,
            env=lab.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    folder = lab.reports / "latest"
    wait_for(lambda: (folder / "results.jsonl").exists() and recorded(folder))
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
    wait_for(lambda: not {p for p in running() if str(lab.folder) in environment_of(p)}, 30)


def recorded(folder: Path) -> int:
    return (folder / "results.jsonl").read_bytes().count(b'"kind":"case"')


@pytest.mark.slow
def test_workers_that_die_before_they_have_work_or_in_a_case_are_replaced(
    lab: DeviceRuns, slow_suite: Path
) -> None:
    completed = lab.run(
        *("-n", "2", "-p", "worker_killer", "--reruns", "1"),
        suites=slow_suite,
        PYTHONPATH=str(slow_suite.parent),
        KILLED_WORKERS="gw0",
        GW1_COLLECTS_S="2",
        CASES="2",
        DIES=str(lab.folder / "died"),
    )
    assert completed.code == 0, completed.output
    assert "replacing crashed worker gw0" in completed.output
    assert len({case["case"] for case in completed.cases}) == 4
    assert "INTERNALERROR" not in completed.output


def running() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and not zombie(name)}


def zombie(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def environment_of(pid: int) -> str:
    """Command line, environment and folder: whatever could tell that a process is this lab's."""
    text = ""
    for name in ("cmdline", "environ"):
        try:
            text += Path("/proc", str(pid), name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    with contextlib.suppress(OSError):
        text += os.readlink(f"/proc/{pid}/cwd")
    return text


def wait_for(condition, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
