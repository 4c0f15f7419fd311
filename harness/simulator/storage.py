"""The device's storage: a folder of the host, with access checks and a size limit.

Also the device's `df`, run as a file of its own (`python -I -S storage.py ROOT LIMIT`), so it
imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOCK_FILE: Final = ".simulated-device"
"""A file in the storage folder with the daemon's pid, locked while it runs."""

_RESCAN_S: Final = 1.0
# Created at each boot; their files belong to the simulator and use no storage.
_OWN_FOLDERS: Final = frozenset({"dev", "system"})
_MAX_LINKS: Final = 40
_INCOMING: Final = "dev/incoming"


class Storage:
    """A folder that acts as all of the device's storage; device paths are host paths.

    `fixed` are exceptions: paths of the device, and the folders of the storage that they
    lead to. `limit_bytes` is the size of the flash, None for that of the host. All methods raise
    OSError with the errno of a real device.
    """

    def __init__(
        self, root: Path, *, fixed: Mapping[str, str] | None = None, limit_bytes: int | None = None
    ) -> None:
        self.root = os.path.realpath(root)
        self._fixed = dict(fixed or {})
        self.limit_bytes = limit_bytes
        self._used = 0
        self._scanned = -_RESCAN_S
        self._uploads = 0

    def resolve(self, path: str) -> str:
        """Return the real path behind `path`. Raises PermissionError if it is outside."""
        return self._require_inside(self._follow_links(os.path.join(self.root, path)), path)

    def resolve_entry(self, path: str) -> str:
        """Like `resolve`, but do not follow a link at the end of the path."""
        joined = os.path.join(self.root, path).rstrip("/")
        parent, name = os.path.split(joined)
        if name in ("", ".", "..") or self._map_fixed(joined) in self._fixed.values():
            return self.resolve(path)
        return self._require_inside(os.path.join(self._follow_links(parent), name), path)

    def _follow_links(self, path: str) -> str:
        """Follow links, also those that lead to fixed paths."""
        for _ in range(_MAX_LINKS):
            path = os.path.realpath(path)
            behind = self._map_fixed(path)
            if behind == path:
                return path
            path = behind
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _map_fixed(self, path: str) -> str:
        for fixed, folder in self._fixed.items():
            if path == fixed or path.startswith(f"{fixed}/"):
                return folder + path[len(fixed) :]
        return path

    def _require_inside(self, real: str, path: str) -> str:
        if real != self.root and not real.startswith(self.root + "/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real

    def open_for_reading(self, path: str) -> int:
        """Open a regular file and return its descriptor."""
        fd = os.open(self.resolve(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EACCES
            raise OSError(number, os.strerror(number), path)
        return fd

    def upload(self, path: str, mode: int) -> Upload:
        """Start a file that appears at `path` when it is complete; parents are created."""
        target = self.resolve_entry(path)
        parent = os.path.dirname(target)
        if self._lacks_room_for(1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        _make_folders(parent)
        if os.path.isdir(target) and not os.path.islink(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        self._uploads += 1
        return Upload(self, f"{self.root}/{_INCOMING}/{self._uploads}", target, mode)

    def reserve(self, count: int) -> None:
        """Count `count` bytes as used, or as freed if negative; ENOSPC if they do not fit."""
        if count > 0 and self._lacks_room_for(count):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._used += count

    def _lacks_room_for(self, count: int) -> bool:
        if self.limit_bytes is None:
            return False
        if self._used + count <= self.limit_bytes and time.monotonic() - self._scanned < _RESCAN_S:
            return False
        # commands write and remove files as well: count again before refusing
        self._used, self._scanned = used_bytes(self.root), time.monotonic()
        return self._used + count > self.limit_bytes


class Upload:
    """A file being written under a temporary name. Ends with `commit` or `abort`."""

    def __init__(self, storage: Storage, temporary: str, target: str, mode: int) -> None:
        self._storage = storage
        self._temporary = temporary
        self._target = target
        self._fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._mode = stat.S_IMODE(mode) & 0o777
        self._written = 0

    def write(self, data: memoryview) -> None:
        """Append data. Raises OSError, after which only `abort` may follow."""
        self._storage.reserve(len(data))
        self._written += len(data)
        while data:
            data = data[os.write(self._fd, data) :]

    def commit(self, mtime: int) -> None:
        """Set the file's mode, its time (seconds since the epoch) and its name."""
        os.fchmod(self._fd, self._mode)
        os.utime(self._fd, (mtime, mtime))
        os.close(self._fd)
        self._fd = -1
        os.rename(self._temporary, self._target)
        self._temporary = ""

    def abort(self) -> None:
        """Remove the unfinished file; do nothing after `commit`."""
        if self._fd < 0 and not self._temporary:
            return
        if self._fd >= 0:
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)
        self._fd, self._temporary = -1, ""
        self._storage.reserve(-self._written)


def _make_folders(path: str) -> None:
    if os.path.isdir(path):
        return
    try:
        os.makedirs(path, mode=0o775, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from error


def used_bytes(root: str) -> int:
    """Return the size of all files below the storage folder in bytes, hard links once."""
    sizes: dict[tuple[int, int], int] = {}
    for top in (root, os.path.join(root, _INCOMING)):
        for folder, names, files in os.walk(top):
            if folder == root:
                names[:] = [name for name in names if name not in _OWN_FOLDERS]
            for name in files:
                with contextlib.suppress(OSError):
                    status = os.lstat(os.path.join(folder, name))
                    if stat.S_ISREG(status.st_mode):
                        sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def df(root: str, limit_bytes: int) -> str:
    """Return the output of `df -k` for a flash of `limit_bytes` with the storage folder on it."""
    size, used = limit_bytes // 1024, -(-used_bytes(root) // 1024)
    free = max(0, size - used)
    percent = -(-used * 100 // (used + free)) if used + free else 100
    return (
        "Filesystem     1K-blocks    Used Available Use% Mounted on\n"
        f"/dev/simulated {size:>9} {used:>7} {free:>9} {percent:>3}% {root}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(df(sys.argv[1], int(sys.argv[2])))
