"""Guarded processes end with everything they started: when told to, and when we die."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from harness.core.deadline import Deadline
from harness.core.guarded_process import spawn_guarded
from tests.waiting import wait_for


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_gone(pids: list[int], seconds: float) -> float:
    """Seconds until all are gone; fails after `seconds`."""
    deadline = Deadline(seconds)
    while not all(gone(pid) for pid in pids):
        assert not deadline.expired, f"still there after {seconds} s"
        time.sleep(0.005)
    return seconds - deadline.remaining()


def test_the_exit_code_is_the_commands() -> None:
    assert spawn_guarded(["sh", "-c", "exit 7"]).wait(Deadline(5)) == 7
    assert spawn_guarded(["sh", "-c", "kill -9 $$"]).wait(Deadline(5)) == 137
    assert spawn_guarded(["/no/such/program"]).wait(Deadline(5)) == 127


def test_output_environment_and_folder(tmp_path: Path) -> None:
    with spawn_guarded(
        ["sh", "-c", 'echo "$A-$HOME"; pwd; read x || echo no input'],
        env={"A": "1", "PATH": os.defpath},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    ) as process:
        lines = process.stdout.readlines()
    assert lines == [b"1-\n", f"{tmp_path}\n".encode(), b"no input\n"]


def test_it_runs_in_a_session_of_its_own_and_stops_at_once() -> None:
    process = spawn_guarded(["sleep", "100"])
    pid = None
    while pid is None:
        pid = process.command_pid()
    wait_for(lambda: os.getsid(pid) == pid)
    start = time.monotonic()
    assert process.stop() == 143
    assert time.monotonic() - start < 30
    assert gone(pid)
    assert process.stop() == 143


# one that ignores SIGTERM, one that left the session, one in the group
STUBBORN = """
echo $$
setsid sh -c 'echo $$; exec sleep 100' &
(trap '' TERM; sh -c 'echo $PPID'; while :; do sleep 1; done) &
wait
"""


PARENT = f"""
import subprocess, sys, time
from harness.core.guarded_process import GuardedProcess, spawn_guarded
spawn_guarded(["sh", "-c", {STUBBORN!r}], stdout=sys.stdout)
time.sleep(100)
"""


@pytest.mark.slow
def test_everything_ends_when_we_die() -> None:
    command = [sys.executable, "-c", PARENT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    pids = [int(process.stdout.readline()) for _ in range(3)]
    process.kill()
    process.wait(60)
    # two seconds of grace for the one that ignores SIGTERM
    wait_gone(pids, 30)


def test_the_command_ignores_no_signal() -> None:
    with spawn_guarded(["grep", "SigIgn", "/proc/self/status"], stdout=subprocess.PIPE) as process:
        ignored = int(process.stdout.readline().split()[1], 16)
    assert not ignored & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1))


def test_a_killed_guardian_takes_the_command_with_it() -> None:
    process = spawn_guarded(["sh", "-c", "echo $$; exec sleep 100"], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    wait_gone([pid], 30)
    process.stop()


def test_no_descriptor_of_ours_is_inherited_but_those_named() -> None:
    read, write = os.pipe()
    try:
        with spawn_guarded(
            ["sh", "-c", "echo $(ls /proc/$$/fd)"], stdout=subprocess.PIPE, pass_fds=[write]
        ) as process:
            descriptors = process.stdout.readline().split()
            assert str(write).encode() in descriptors
            assert str(read).encode() not in descriptors
    finally:
        os.close(read)
        os.close(write)


def test_whoever_opens_its_stdin_under_the_lock_keeps_it(tmp_path: Path) -> None:
    """Else a connection that its last user left is given to the next and ended under its hands."""
    lock, pipe = tmp_path / "lock", tmp_path / "users"
    os.mkfifo(pipe)
    first = os.open(pipe, os.O_RDWR)
    stdin = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with spawn_guarded(["sleep", "100"], stdin=stdin, lock=lock) as process:
        os.close(stdin)
        with FileLock(lock):
            os.close(first)
            assert process.wait(Deadline(0.5)) is None
            second = os.open(pipe, os.O_RDWR)
        assert process.wait(Deadline(0.5)) is None
        os.close(second)
        assert process.wait(Deadline(5)) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_command_has_its_grace_to_end_in_order(tmp_path: Path) -> None:
    """A run writes its reports then, which takes longer than most commands need."""
    script = "trap 'sleep 2.2; touch done; exit' TERM; touch begun; while :; do sleep 0.1; done"
    with spawn_guarded(["sh", "-c", script], cwd=tmp_path, grace_s=60.0):
        wait_for((tmp_path / "begun").exists, "it begins")
    assert (tmp_path / "done").exists()
