"""Functions of Linux for time and processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path

from harness.core.deadline import Deadline


def boot_clock_s() -> float:
    """Return seconds of a clock that goes on while this computer sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a child process has ended; it is not reaped, so its pid stays."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def locking_process(path: Path) -> str:
    """Describe the process that keeps a file locked."""
    with contextlib.suppress(OSError):
        status = path.stat()
        file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, _, process, locked, *_ = line.split()
            if (kind, locked) == ("FLOCK", file) and int(process) > 0:
                return f"process {process}"
    return "another process"


def is_free(path: Path, seconds: float) -> bool:
    """Return False if a process keeps a file locked for that many seconds.

    Children of a killed process take a moment to end. Raises OSError.
    """
    deadline = Deadline(seconds)
    with path.open("rb") as log:
        while True:
            try:
                fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if deadline.expired:
                    return False
                time.sleep(min(0.1, deadline.remaining()))
            else:
                return True


def children() -> frozenset[int]:
    """Return the pids of this process's children that have not been reaped. Raises OSError."""
    pids: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            pids += (thread / "children").read_text().split()
    return frozenset(map(int, pids))
