"""One holder per device among all processes and users of this computer.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import os
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.errors import InfraError
from harness.lab.holder import MAX_BYTES, Holder, device_file, parse_holder

FOLDER_VARIABLE: Final = "QNN_HARNESS_LEASES"
HEARTBEAT_S: Final = 5.0
_STALE_S: Final = 4 * HEARTBEAT_S
_POLL_S: Final = 0.2
# Whoever only looks holds a lock for some microseconds; that is no holder.
_GLANCES: Final = 5
_GLANCE_S: Final = 0.005
_ALL_USERS: Final = Path("/tmp/qnn-harness-leases")


def lease_root() -> Path:
    """The folder of the leases: QNN_HARNESS_LEASES, else one that all users share."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else _ALL_USERS


class DeviceHeld(InfraError):
    """A device is held by another process; the text names it."""


@dataclass(frozen=True)
class Held:
    """A lease of somebody else's. `holder` is None if its file makes no sense.

    `silent_s` is how long ago its holder last showed that it is alive.
    """

    holder: Holder | None
    silent_s: float

    def __str__(self) -> str:
        who = str(self.holder) if self.holder else "a process that does not say who it is"
        silent = f", which has not moved for {self.silent_s:.0f} s"
        return who + (silent if self.silent_s > _STALE_S else "")


class Lease:
    """A device held by this process, until `release` or its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(self)

    def beat(self) -> None:
        """Shows that its holder is alive."""
        with contextlib.suppress(OSError):
            os.utime(self._descriptor)

    def release(self) -> None:
        """Frees it; safe to call twice."""
        _held.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def drop_in_child(self) -> None:
        """Closes what a forked child got of it, so that it does not outlive its holder there."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _drop_all_in_child() -> None:
    for lease in tuple(_held):
        lease.drop_in_child()


os.register_at_fork(after_in_child=_drop_all_in_child)


class Leases:
    """The leases of this process; `purpose` tells others what it does with the devices."""

    def __init__(self, folder: Path, *, purpose: str) -> None:
        self._folder = folder
        self._purpose = purpose
        self._own: dict[str, Lease] = {}
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def holds(self, key: str) -> bool:
        """Whether this object holds the device."""
        return key in self._own

    def take(
        self,
        key: str,
        name: str,
        *,
        wait_s: float = 0.0,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Takes the device `key`, called `name`; at once if it is held by this object already.

        Waits up to `wait_s` seconds for another holder, and says so once. Raises DeviceHeld naming
        that holder, InfraError if leases cannot be kept.
        """
        until, told = time.monotonic() + wait_s, False
        while key not in self._own:
            held = self._try(key)
            if held is None:
                return
            if time.monotonic() >= until:
                waited = f" (waited {wait_s:g} s)" if wait_s else ""
                raise DeviceHeld(f"device {name} is held by {held}{waited}")
            if not told:
                notify(f"waiting up to {wait_s:g} s for device {name}: held by {held}")
                told = True
            time.sleep(_POLL_S)

    def free(self, key: str) -> None:
        """Gives a device back; nothing happens if this object does not hold it."""
        lease = self._own.pop(key, None)
        if lease is not None:
            lease.release()

    def close(self) -> None:
        """Gives all devices back; safe to call twice."""
        self._ended.set()
        for key in tuple(self._own):
            self.free(key)

    def look(self, key: str) -> Held | None:
        """Who else holds a device, None if nobody does."""
        if key in self._own:
            return None
        descriptor = self._open(key, create=False)
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(descriptor)
        finally:
            os.close(descriptor)
        return None

    def _try(self, key: str) -> Held | None:
        """Takes a device that is free; else who holds it."""
        descriptor = self._open(key, create=True)
        assert descriptor is not None
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            try:
                if not _lock(descriptor):
                    return _read(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, self._holder().content(), 0)
            except OSError as error:
                why = f"cannot keep a lease in {self._folder}: {error.strerror}"
                raise InfraError(why) from error
            undo.pop_all()
        self._own[key] = Lease(descriptor)
        self._begin_beating()
        return None

    def _open(self, key: str, *, create: bool) -> int | None:
        path = self._folder / device_file(key)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._make_folder()
            while True:
                try:
                    descriptor = os.open(path, flags)
                    break
                except FileNotFoundError:
                    if not create:
                        return None
                # O_CREAT alone is refused for other users' files in such folders
                # (fs.protected_regular), hence two steps
                with contextlib.suppress(FileExistsError):
                    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                    os.fchmod(descriptor, 0o666)
                    break
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is no regular file")
        except OSError as error:
            raise InfraError(
                f"cannot keep a lease in {path}: {error.strerror}; remove what is there, or set "
                f"{FOLDER_VARIABLE} to a folder that all users of the devices can write to"
            ) from error
        return descriptor

    def _make_folder(self) -> None:
        try:
            os.mkdir(self._folder, 0o1777)
            os.chmod(self._folder, 0o1777)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(self._folder).st_mode):
                raise OSError(errno.ENOTDIR, "its folder is no folder") from None
        except FileNotFoundError:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._make_folder()

    def _holder(self) -> Holder:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = f"user {os.getuid()}"
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return Holder(user, socket.gethostname(), os.getpid(), since, self._purpose)

    def _begin_beating(self) -> None:
        if self._heart is None or not self._heart.is_alive():
            self._ended.clear()
            self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            for lease in tuple(self._own.values()):
                lease.beat()


def _lock(descriptor: int) -> bool:
    for _ in range(_GLANCES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_GLANCE_S)
    return False


def _read(descriptor: int) -> Held:
    silent_s = max(0.0, time.time() - os.fstat(descriptor).st_mtime)
    return Held(parse_holder(os.pread(descriptor, MAX_BYTES, 0)), silent_s)
