"""The simulated device as a process: `python -m harness.simulator.daemon SETTINGS`.

SETTINGS is the JSON of DeviceSettings. It prints one line of JSON, {"port": N}, when it listens on
127.0.0.1, and ends when its stdin does, or at SIGTERM or SIGINT.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import disk_errors, read_bounded
from harness.core.state_folders import PRIVATE
from harness.simulator.auth import PublicKey, parse_public_key
from harness.simulator.device import DeviceSettings
from harness.simulator.storage import LOCK_FILE
from harness.simulator.supervisor import Supervisor

_LOCK_S: Final = 5.0
_MAX_FILE_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 16384


def lock_storage(folder: Path) -> int:
    """Make the folder a device's storage and lock it; the returned descriptor holds the lock.

    Waits some seconds for a device that is just ending. Raises ConfigError for a folder that holds
    something else, InfraError if another device uses it.
    """
    if re.search(r"[:\n\0]", str(folder)):
        raise ConfigError(f"{str(folder)!r} has a colon or a line break; use another folder")
    with disk_errors(f"storage {folder}"):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if not (folder / LOCK_FILE).exists() and any(folder.iterdir()):
            raise ConfigError(
                f"{folder} is not empty, but is not the storage of a simulated device"
            )
        fd = os.open(
            folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise InfraError(
                    f"storage {folder} is in use by another simulated device (pid {holder})"
                ) from None
            time.sleep(0.05)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def main() -> int:
    """Run a device in the foreground and return the exit code."""
    try:
        settings = DeviceSettings.from_json(sys.argv[1])
        key = _checked_key(settings)
        lock_storage(settings.storage)
        _raise_file_limit()
        Supervisor(settings, key).run()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _checked_key(settings: DeviceSettings) -> PublicKey:
    """Return the only accepted key. Raises ConfigError for a file that has none."""
    file = settings.public_key
    try:
        return parse_public_key(read_bounded(file, _MAX_FILE_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
    except ValueError as error:
        raise ConfigError(str(error), file=file) from error


def _raise_file_limit() -> None:
    """Raise the limit on open files; every command needs four descriptors of the daemon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


if __name__ == "__main__":
    sys.exit(main())
