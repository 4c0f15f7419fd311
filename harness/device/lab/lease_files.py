"""The files of a lease folder: who wrote one, and the lock that is theirs as long as they live."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.ground.errors import InfraError
from harness.ground.files.bounded_json import parse_json
from harness.ground.files.cache import LEASES_VARIABLE

HEARTBEAT_S: Final = 5.0
STALE_S: Final = 4 * HEARTBEAT_S
# Whoever only looks holds a lock for some microseconds; that is no holder.
_GLANCES: Final = 5
_GLANCE_S: Final = 0.005

MAX_BYTES: Final = 8 << 10
_MAX_CHARS: Final = 200
_TEXTS: Final = ("user", "host", "since", "purpose")


@dataclass(frozen=True)
class Holder:
    """The process that holds a device or has a claim on it.

    `since` is RFC 3339, UTC, and so is `until`: when a person will give it back, "" for a run.
    """

    user: str
    host: str
    pid: int
    since: str
    purpose: str
    until: str = ""

    def __str__(self) -> str:
        until = f" until {self.until}" if self.until else ""
        return f"{self.user}, process {self.pid} ({self.purpose}), since {self.since}{until}"

    @property
    def is_loan(self) -> bool:
        with contextlib.suppress(ValueError, TypeError):
            return datetime.fromisoformat(self.until) > datetime.now(UTC)
        return False

    def content(self) -> bytes:
        """One line for the file."""
        return json.dumps(asdict(self)).encode()[: MAX_BYTES - 1] + b"\n"


def parse_holder(content: bytes) -> Holder | None:
    """Reads a lease's file; None if it is empty, half-written or nonsense."""
    try:
        said = parse_json(content[:MAX_BYTES])
        texts = {name: _word(said[name]) for name in _TEXTS}
        return Holder(pid=int(said["pid"]), until=_word(said.get("until", "")), **texts)
    except (ValueError, TypeError, KeyError, AttributeError):
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
        return who + (silent if self.silent_s > STALE_S else "")


class LockedFile:
    """A file that is locked by this process, until `close` or its end."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._lock = threading.Lock()  # between the heart and whoever lets go of it
        _locked.add(self)

    def touch(self) -> None:
        """Shows that its holder is alive."""
        with contextlib.suppress(OSError), self._lock:
            os.utime(self._descriptor)

    @property
    def is_gone(self) -> bool:
        with self._lock:
            return self._descriptor >= 0 and not _in_place(self._descriptor, self._path)

    def close(self) -> None:
        """Frees it; safe to call twice."""
        _locked.discard(self)
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


_locked: weakref.WeakSet[LockedFile] = weakref.WeakSet()


def _drop_all_in_child() -> None:
    for file in tuple(_locked):
        file.drop_in_child()


os.register_at_fork(after_in_child=_drop_all_in_child)


def take_file(path: Path, content: bytes) -> int | Held:
    """Locks a file, which is made if it is not there: its descriptor, or who has it.

    Raises InfraError if such files cannot be kept.
    """
    while True:
        descriptor = _open_file(path, create=True)
        assert descriptor is not None
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            try:
                if not _lock(descriptor):
                    return _read_held(descriptor)
                if not _in_place(descriptor, path):
                    continue  # whoever held it took its file away meanwhile
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
            except OSError as error:
                why = f"cannot keep a lease in {path.parent}: {error.strerror}"
                raise InfraError(why) from error
            undo.pop_all()
        return descriptor


def held_file(path: Path) -> Held | None:
    """Who has locked a file, None if nobody has. Raises InfraError."""
    descriptor = _open_file(path, create=False)
    if descriptor is None:
        return None
    try:
        return locked_by(descriptor)
    finally:
        os.close(descriptor)


def locked_by(descriptor: int) -> Held | None:
    """Who has locked an open file; None if nobody has, and nobody can until it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_held(descriptor)
    return None


def _read_held(descriptor: int) -> Held:
    """Who has locked an open file; who has just done so is given the time to say who it is."""
    for _ in range(_GLANCES):
        silent_s = max(0.0, time.time() - os.fstat(descriptor).st_mtime)
        holder = parse_holder(os.pread(descriptor, MAX_BYTES, 0))
        if holder is not None or silent_s > STALE_S:
            break
        time.sleep(_GLANCE_S)
    return Held(holder, silent_s)


def _open_file(path: Path, *, create: bool) -> int | None:
    """A file's descriptor; None if it is not there and not to be made. Raises InfraError."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        _make_folder(path.parent)
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


def _make_folder(folder: Path) -> None:
    try:
        os.mkdir(folder, 0o1777)
        os.chmod(folder, 0o1777)
    except FileExistsError:
        why = _unsafe(os.lstat(folder))
        if why is not None:
            raise OSError(errno.EPERM, why) from None
    except FileNotFoundError:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_folder(folder)


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
