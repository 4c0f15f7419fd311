"""Temporary folders: gone at the end, and those of killed processes with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.whole_file import scratch_folder

HOLDER = """
import sys, time
from pathlib import Path
from harness.core.whole_file import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    time.sleep(100)
"""


def grow_old(folder: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(folder, (hour_ago, hour_ago))


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "file").write_text("content")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_is_held_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        leftover = Path(process.stdout.readline().strip())
        grow_old(leftover)
        with scratch_folder(tmp_path):
            assert (leftover / "file").exists(), "somebody holds it"
        process.send_signal(signal.SIGKILL)
    other = tmp_path / "somebody-elses"
    link = tmp_path / "qnn-harness-tmp-link"
    other.mkdir()
    link.symlink_to(other)
    grow_old(other)
    young = tmp_path / "qnn-harness-tmp-young"
    young.mkdir()
    with scratch_folder(tmp_path):
        assert not leftover.exists()
        assert other.exists()
        assert young.exists()
