"""Processes, clocks and locks of this computer."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.deadline import Deadline
from harness.core.linux_processes import children, has_ended, locking_process
from tests.waiting import wait_for

WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_our_children_and_one_that_has_ended() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        assert child.pid in children()
        assert os.getpid() not in children()
        assert not has_ended(child)
        child.stdin.close()
        wait_for(lambda: has_ended(child))
    assert child.pid not in children()


def test_who_keeps_a_file_locked(tmp_path: Path) -> None:
    locks = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); input()"
    (file := tmp_path / "log").touch()
    (tmp_path / "other").touch()
    words = [sys.executable, "-c", locks, file]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as holder:
        wait_for(lambda: locking_process(file) == f"process {holder.pid}")
        assert locking_process(tmp_path / "other").startswith("another process")
        holder.kill()
    assert locking_process(file).startswith("another process")


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_a_deadline_must_come(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Deadline(seconds)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_at_most_is_never_later(whole: float, part: float) -> None:
    deadline = Deadline(whole)
    assert deadline.at_most(part).remaining() <= min(deadline.seconds, part)
    assert Deadline(0.0).expired
    assert Deadline(0.0).remaining() == 0.0
