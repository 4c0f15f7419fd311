"""What only Linux can tell of time and processes, and what stands in for it elsewhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from harness.core.deadline import Deadline


def boot_clock_s() -> float:
    """A clock in seconds that goes on while this computer sleeps, where it has one."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child of ours has ended; on Linux it keeps its number until it is reaped."""
    if sys.platform == "linux":
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, process.pid, how) is not None
    return process.poll() is not None


def short_path(descriptor: int, folder: Path) -> str:
    """A path of an open folder that is as short as a socket's address must be, on Linux."""
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(folder)


def locking_process(path: Path) -> str:
    """The process that keeps a file locked, in words."""
    with contextlib.suppress(OSError):
        status = path.stat()
        file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, _, process, locked, *_ = line.split()
            if (kind, locked) == ("FLOCK", file) and int(process) > 0:
                return f"process {process}"
    return "another process, which this computer does not know"


def is_free(path: Path, seconds: float) -> bool:
    """Return False if a process keeps a file locked for so long.

    What a killed process had begun takes a moment to end. Raises OSError.
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
    """The processes that this one began and that have not been reaped. Raises OSError."""
    if sys.platform == "linux":
        found: list[str] = []
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                found += (thread / "children").read_text().split()
        return frozenset(map(int, found))
    said = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, check=False)
    pairs = (tuple(map(int, line.split())) for line in said.stdout.splitlines())
    return frozenset(pid for pid, parent in pairs if parent == os.getpid())
