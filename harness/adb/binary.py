"""Which adb program starts servers, and starting the user's own with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import adbutils

from harness.adb.deadline import Deadline
from harness.errors import ConfigError, InfraError


def adb_binary() -> Path:
    """The adb program used to start servers: the adbutils wheel's own 36, never one on PATH.

    ADBUTILS_ADB_PATH names another one on purpose. Raises ConfigError if there is none.
    """
    named = os.environ.get("ADBUTILS_ADB_PATH")
    path = Path(named) if named else Path(adbutils.__file__).parent / "binaries" / "adb"
    if not os.access(path, os.X_OK):
        raise ConfigError(f"no adb program at {path}", field="ADBUTILS_ADB_PATH" if named else None)
    return path


def start_user_server(port: int, deadline: Deadline) -> None:
    """Runs `adb start-server` for a port on this host. Raises InfraError."""
    command = [str(adb_binary()), "-P", str(port), "start-server"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            # no pipe: the server that stays behind would keep it open
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=deadline.remaining() or 1e-3,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"no adb server at port {port} can be started: {error}") from error
    if done.returncode != 0:
        raise InfraError(f"`{' '.join(command)}` ended with {done.returncode}")
