"""What only Linux can tell of time and processes, and what stands in for it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time


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
