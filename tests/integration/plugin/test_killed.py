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

GONE_WITHIN_S = 60
NIGHT, SLOW = pytest.mark.nightly, pytest.mark.slow


@pytest.mark.nightly
def test_sigkill_leaves_a_whole_journal_and_no_process(lab: DeviceRuns) -> None:
    mark = str(lab.folder)
    process = subprocess.Popen(
        lab.command("-k", "tiny or (io-heavy and 32)", ROOT / "suites"),
        cwd=ROOT,
        env=lab.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal = lab.reports / "latest/results.jsonl"
    # five lines, one of them of a case: on a busy machine the first may all be of the device
    wait_for(
        lambda: (
            journal.exists()
            and journal.read_bytes().count(b"\n") >= 5
            and b'"kind":"case"' in journal.read_bytes()
        )
    )
    ours = {pid for pid in running() if mark in environment_of(pid)} - {process.pid}
    assert ours, "the simulated device and the adb server carry the lab's folder"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed_at = time.monotonic()
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1].splitlines()
    cases = [row for row in map(json.loads, whole) if row["kind"] == "case"]
    assert {row["outcome"] for row in cases} == {"passed"}
    assert content.endswith(b"\n")
    wait_for(lambda: not ours & running(), GONE_WITHIN_S)
    assert not {pid for pid in running() if mark in environment_of(pid)}
    assert time.monotonic() - killed_at < GONE_WITHIN_S + 1

    again = lab.run("-k", "tiny and 66")
    assert again.code == 0, again.output


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


def ignoring_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# Ctrl-C reaches every process of a terminal; a CI system's signal the one that it started
@pytest.mark.parametrize(
    ("words", "numbers", "whole_group", "ignored"),
    [
        pytest.param((), [signal.SIGINT] * 3, True, False, id="ctrl-c-thrice", marks=NIGHT),
        pytest.param((), [signal.SIGTERM], False, True, id="sigterm-under-nohup", marks=NIGHT),
        pytest.param(
            ("-n", "2"), [signal.SIGINT] * 3, True, False, id="ctrl-c-thrice-n2", marks=SLOW
        ),
        pytest.param(
            ("-n", "2"), [signal.SIGTERM], False, True, id="sigterm-under-nohup-n2", marks=NIGHT
        ),
    ],
)
def test_being_told_to_end_leaves_complete_reports(
    lab: DeviceRuns,
    slow_suite: Path,
    words: tuple[str, ...],
    numbers: list[int],
    whole_group: bool,
    ignored: bool,
) -> None:
    log = lab.folder / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            lab.command(*words, slow_suite),
            cwd=ROOT,
            env=lab.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ignoring_sigint if ignored else None,
        )
    folder = lab.reports / "latest"
    wait_for(lambda: (folder / "results.jsonl").exists() and recorded(folder))
    for number in numbers:
        (os.killpg if whole_group else os.kill)(process.pid, number)
        time.sleep(0.2)
        if process.poll() is not None:
            break
    assert process.wait(timeout=60) == 2, log.read_text()
    info = json.loads((folder / "run.json").read_text())
    assert (info["exit_code"], info["problem"]) == (2, "interrupted")
    assert info["finished"]
    assert (folder / "junit.xml").exists()
    assert (folder / "report.html").exists()
    output = log.read_text()
    hint = f"to go on: the same command with --resume {os.path.relpath(folder.resolve(), ROOT)}"
    assert log.read_text().count(hint) == 1, hint
    assert "Traceback" not in output, output
    assert "INTERNALERROR" not in output, output
    assert f"{40 - recorded(folder)} not run" in output, output
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
    assert "crashed while running" in completed.output
    assert len({case["case"] for case in completed.cases}) == 4
    assert "INTERNALERROR" not in completed.output


@pytest.mark.nightly
def test_a_case_that_kills_each_worker_does_not_keep_the_run_from_its_end(
    lab: DeviceRuns, slow_suite: Path
) -> None:
    slow_suite.write_text(SLOW_SUITE.replace("not DIES.exists()", "number == 1"))
    completed = lab.run("-n", "1", suites=slow_suite, CASES="3", DIES=str(lab.folder / "died"))
    assert completed.code == 3, completed.output
    assert "maximum crashed workers reached: 4" in completed.output
    # none was reported that was not run; what the deaths kept from running is told
    assert {case["outcome"] for case in completed.cases} == {"passed"}
    remaining = 6 - len(completed.cases)
    assert f" verdict, {remaining} not run" in completed.output
    assert "INTERNALERROR" not in completed.output


@pytest.mark.nightly
def test_a_run_whose_workers_cannot_start_says_so_and_is_kept(
    lab: DeviceRuns, slow_suite: Path, tmp_path: Path
) -> None:
    """The worker's Python ends as if it was killed: once before it says anything, once later."""
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -KILL $$\n")
    dying.chmod(0o755)
    for words in (["--tx", f"popen//python={dying}"], ["-n", "1", "--max-worker-restart", "0"]):
        completed = lab.run(
            *("--dist", "load", *words, "-p", "worker_killer"),
            suites=slow_suite,
            PYTHONPATH=str(tmp_path),
            KILLED_WORKERS="gw0",
        )
        assert completed.code == 3, completed.output
        assert "INTERNALERROR" not in completed.output, completed.output
    info = json.loads((lab.reports / "latest/run.json").read_text())
    assert (info["exit_code"], bool(info["finished"]), completed.cases) == (3, True, [])
    assert "0 of 40 cases have a verdict, 40 not run" in completed.output


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
