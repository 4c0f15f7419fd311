"""One holder per device among all processes and users of this computer.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works. Who takes the file away
from under its holder lets a second one in: each holder looks at every beat whether its file is
still in its place, and gives the device up if it is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import hashlib
import json
import logging
import os
import re
import socket
import stat
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.ground import InfraError
from harness.ground.files.cache import LEASES_VARIABLE

_log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
_STALE_S: Final = 4 * HEARTBEAT_S
_POLL_S: Final = 0.2
# Whoever only looks holds a lock for some microseconds; that is no holder.
_GLANCES: Final = 5
_GLANCE_S: Final = 0.005


MAX_BYTES: Final = 8 << 10
_MAX_CHARS: Final = 200


@dataclass(frozen=True)
class Holder:
    """The process that holds a device; `since` is RFC 3339, UTC."""

    user: str
    host: str
    pid: int
    since: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.user}, process {self.pid} ({self.purpose}), since {self.since}"

    def content(self) -> bytes:
        """One line for the lease's file."""
        return json.dumps(asdict(self)).encode()[: MAX_BYTES - 1] + b"\n"


def parse_holder(content: bytes) -> Holder | None:
    """Reads a lease's file; None if it is empty, half-written or nonsense."""
    try:
        said = json.loads(content[:MAX_BYTES])
        texts = {name: _word(said[name]) for name in ("user", "host", "since", "purpose")}
        return Holder(pid=int(said["pid"]), **texts)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def device_file(key: str) -> str:
    """A file's name for what makes a device unique: readable, and never that of another device."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key)[-60:].strip("._-")
    return f"{readable}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return "".join(char if char.isprintable() else "?" for char in value)[:_MAX_CHARS]


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


class DeviceHeld(InfraError):
    """A device is held by another process; the text names it."""

    def __init__(self, text: str, held: Held) -> None:
        self.held = held
        super().__init__(text)


class LeaseLost(InfraError):
    """A device may have got a second holder: what it answered since is not to be believed."""


class Lease:
    """A device held by this process, until `release` or its end.

    A warning tells once if the lease is lost.
    """

    def __init__(self, descriptor: int, path: Path, name: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._name = name
        self._lost = False
        self._lock = threading.Lock()  # between the heart and whoever lets go of it
        _held.add(self)

    def beat(self) -> None:
        """Shows that its holder is alive, or says that the lease is lost."""
        with contextlib.suppress(OSError, LeaseLost):
            self.require()
            with self._lock:
                os.utime(self._descriptor)

    def require(self) -> None:
        """Raises LeaseLost if its file is not in its place, now or at any look before."""
        with self._lock:
            known, released = self._lost, self._descriptor < 0
            self._lost = known or not (released or _in_place(self._descriptor, self._path))
        if not self._lost:
            return
        text = (
            f"the lease of device {self._name} is lost: {self._path} was removed or replaced, so "
            "another process may have taken the device"
        )
        if not known:
            _log.warning(text)
        raise LeaseLost(text)

    def release(self) -> None:
        """Frees it; safe to call twice."""
        _held.discard(self)
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # a file of another user's stays, empty
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                if _in_place(descriptor, self._path):
                    os.unlink(self._path)
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

    def require(self, key: str) -> None:
        """Raises LeaseLost if a device that this object took has lost its lease."""
        if key in self._own:
            self._own[key].require()

    def take(self, key: str, name: str, *, wait_s: float = 0.0) -> None:
        """Takes the device `key`, called `name`; at once if it is held by this object already.

        Waits up to `wait_s` seconds for another holder, and says so once. Raises DeviceHeld naming
        that holder, InfraError if leases cannot be kept.
        """
        until, told = time.monotonic() + wait_s, False
        while key not in self._own:
            held = self._try(key, name)
            if held is None:
                return
            if time.monotonic() >= until:
                waited = f" (waited {wait_s:g} s)" if wait_s else ""
                raise DeviceHeld(f"device {name} is held by {held}{waited}", held)
            if not told:
                _log.warning(f"waiting up to {wait_s:g} s for device {name}: held by {held}")
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

    def _try(self, key: str, name: str) -> Held | None:
        """Takes a device that is free; else who holds it."""
        while True:
            descriptor = self._open(key, create=True)
            assert descriptor is not None
            with contextlib.ExitStack() as undo:
                undo.callback(os.close, descriptor)
                try:
                    if not _lock(descriptor):
                        return _read(descriptor)
                    path = self._folder / device_file(key)
                    if not _in_place(descriptor, path):
                        continue  # whoever held it took its file away meanwhile
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, self._holder().content(), 0)
                except OSError as error:
                    why = f"cannot keep a lease in {self._folder}: {error.strerror}"
                    raise InfraError(why) from error
                undo.pop_all()
            self._own[key] = Lease(descriptor, path, name)
            if self._heart is None or not self._heart.is_alive():
                self._ended.clear()
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()
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
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is no regular file of one name")
        except OSError as error:
            raise InfraError(
                f"cannot keep a lease in {path}: {error.strerror}; remove what is there, or set "
                f"{LEASES_VARIABLE} to a folder that all users of the devices can write to"
            ) from error
        return descriptor

    def _make_folder(self) -> None:
        try:
            os.mkdir(self._folder, 0o1777)
            os.chmod(self._folder, 0o1777)
        except FileExistsError:
            why = _unsafe(os.lstat(self._folder))
            if why is not None:
                raise OSError(errno.EPERM, why) from None
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

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            for lease in tuple(self._own.values()):
                lease.beat()


def _unsafe(folder: os.stat_result) -> str | None:
    """Why leases in a folder could be taken away by others than their holders, None if not.

    In a sticky folder only the owner of a file, that of the folder, and root can do that; another
    user's is taken if it was made for everybody.
    """
    if not stat.S_ISDIR(folder.st_mode):
        return "its folder is no folder"
    sticky = bool(folder.st_mode & stat.S_ISVTX)
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        return "others may remove files from its folder, which is not sticky (chmod +t)"
    if folder.st_uid not in (0, os.getuid()) and not (sticky and folder.st_mode & stat.S_IWOTH):
        return f"its folder belongs to user {folder.st_uid} and is not for everybody"
    return None


def _in_place(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    here = os.fstat(descriptor)
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


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
