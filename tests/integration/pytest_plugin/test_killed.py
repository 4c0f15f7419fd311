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

GONE_WITHIN_S = 10


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
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 5)
    ours = {pid for pid in running() if mark in environment_of(pid)} - {process.pid}
    assert ours, "the simulated device and the adb server carry the lab's folder"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed_at = time.monotonic()
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1].splitlines()
    assert all(json.loads(line)["outcome"] == "passed" for line in whole)
    assert content.endswith(b"\n")
    wait_for(lambda: not ours & running(), GONE_WITHIN_S)
    assert not {pid for pid in running() if mark in environment_of(pid)}
    assert time.monotonic() - killed_at < GONE_WITHIN_S + 1

    again = lab.run("-k", "tiny and 66")
    assert again.code == 0, again.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_told_to_end_leaves_complete_reports(lab: DeviceRuns, number: int) -> None:
    process = subprocess.Popen(
        lab.command("-k", "io-heavy and sequential", ROOT / "suites"),
        cwd=ROOT,
        env=lab.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # what a shell does for its background jobs must not decide this test
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    folder = lab.reports / "latest"
    wait_for(lambda: (folder / "results.jsonl").exists() and (folder / "logs").exists())
    process.send_signal(number)
    assert process.wait(timeout=30) == 2
    info = json.loads((folder / "run.json").read_text())
    assert info["exit_code"] == 2
    assert (folder / "junit.xml").exists()
    assert (folder / "report.html").exists()
    wait_for(lambda: not {p for p in running() if str(lab.folder) in environment_of(p)}, 10)


def running() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and not zombie(name)}


def zombie(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def environment_of(pid: int) -> str:
    """Command line, environment and folder: whatever could tell that a process is this lab's."""
    found = ""
    for name in ("cmdline", "environ"):
        try:
            found += Path("/proc", str(pid), name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    with contextlib.suppress(OSError):
        found += os.readlink(f"/proc/{pid}/cwd")
    return found


def wait_for(condition, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
