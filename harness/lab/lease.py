"""One holder per device among all processes and users of this computer, for one case at a time.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works. Who takes the file away
from under its holder lets a second one in: each holder looks at every beat whether its file is
still in its place, and gives the device up if it is not. Those who wait stand in line.

A claim is a file beside that of the lease, locked in the same way: it ends with its process, and
one that has not moved for long counts no more. While there are claims, nobody but the first
claimant takes the device. Their files sort in that order: persons come before runs, and of these
who came first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import hashlib
import json
import logging
import math
import os
import random
import re
import secrets
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple

from harness.core.bounded_json import parse_json
from harness.core.cache import LEASES_VARIABLE
from harness.core.errors import InfraError
from harness.core.notices import working

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


ClaimKind = Literal["asks", "waits"]
_MOST: Final = 1000
_MARK: Final = "~"


@dataclass(frozen=True)
class Claimant:
    """A process with a claim; `file` is the name of its file."""

    file: str
    held: Held

    @property
    def asks(self) -> bool:
        return self.file.partition(_MARK)[2].startswith("asks-")


class Claim(LockedFile):
    """A claim on a device, until `close` or the end of this process."""

    def __init__(self, folder: Path, key: str, content: bytes, kind: ClaimKind) -> None:
        """Come behind all earlier claims of the same kind. Raise InfraError."""
        now, token = time.monotonic_ns(), secrets.token_hex(4)
        self.file = f"{device_file(key)}{_MARK}{kind}-{now:020}-{token}"
        descriptor = take_file(folder / self.file, content)
        assert isinstance(descriptor, int)
        super().__init__(descriptor, folder / self.file)


def claimants(folder: Path, key: str, before: Claim | None = None) -> list[Claimant]:
    """Return those with a claim on a device, or with one in front of `before`, the first one first.

    Remove what dead ones left.
    """
    prefix = device_file(key) + _MARK
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(prefix))
    except OSError:
        return []
    found = []
    for name in names[:_MOST]:
        if before is not None and name >= before.file:
            break
        with contextlib.suppress(OSError):
            held = _holder_of(folder / name)
            if held is not None and held.silent_s <= STALE_S:
                found.append(Claimant(name, held))
    return found


def _holder_of(path: Path) -> Held | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        held = locked_by(descriptor)
        if held is None:
            os.unlink(path)
        return held
    finally:
        os.close(descriptor)


_log = logging.getLogger(__name__)

_HOST: Final = socket.gethostname()
_POLL_S: Final = (0.01, 0.05)
_SURE_S: Final = 5.0
_LONGEST_LOAN_S: Final = 604800.0
"""So long a person may keep a device."""


class DeviceHeld(InfraError):
    """A device is held by another process; the text names it."""

    def __init__(self, text: str, held: Held) -> None:
        self.held = held
        super().__init__(text)


class LeaseLost(InfraError):
    """A device may have got a second holder: what it answered since is not to be believed."""


class Missed(NamedTuple):
    """A device that could not be had: by which key it is waited for, and who has it."""

    name: str
    key: str
    held: Held


class Lease(LockedFile):
    """A device held by this process, until `close` or its end.

    A warning tells once if the lease is lost.
    """

    def __init__(self, descriptor: int, path: Path, name: str) -> None:
        super().__init__(descriptor, path)
        self.name = name
        self.holders = 1
        self._lost = False

    def beat(self) -> None:
        """Shows that its holder is alive, or says that the lease is lost."""
        with contextlib.suppress(LeaseLost):
            self.require()
            self.touch()

    def require(self) -> None:
        """Raises LeaseLost if its file is not in its place, now or at any look before."""
        known = self._lost
        self._lost = known or self.is_gone
        if not self._lost:
            return
        text = (
            f"the lease of device {self.name} is lost: {self._path} was removed or replaced, so "
            "another process may have taken the device"
        )
        if not known:
            _log.warning(text)
        raise LeaseLost(text)


class Leases:
    """The leases of this process; `purpose` tells others what it does with the devices.

    Two names of one device share its lease: one process uses it after all.
    """

    def __init__(
        self, folder: Path, *, purpose: str, of_run: bool = False, loan_s: float = 0.0
    ) -> None:
        """`of_run`: other processes of this purpose belong to us; all stand in line as one.

        With `loan_s` a person takes devices for so many seconds, before all runs that wait.
        """
        self._folder = folder
        self._purpose = purpose
        self._of_run = of_run
        self._loan_s = loan_s
        self._own: dict[str, Lease] = {}
        self._claims: dict[str, Claim] = {}
        self._changing = threading.RLock()  # between the heart and who takes and frees
        self._ended, self._closed = threading.Event(), threading.Event()
        self._heart: threading.Thread | None = None

    def require(self, key: str) -> None:
        """Raises LeaseLost if a device that this object took has lost its lease."""
        if key in self._own:
            self._own[key].require()

    def take(self, key: str, name: str, *, wait_s: float = 0.0) -> None:
        """Takes the device `key`, called `name`; waits for it as `wait_for`."""

        def attempt() -> list[Missed]:
            held = self.try_take(key, name)
            return [] if held is None else [Missed(name, key, held)]

        self.wait_for(attempt, wait_s=wait_s)

    def try_take(self, key: str, name: str) -> Held | None:
        """Takes a device if it is free and nobody stands in line before us; else who has it.

        Raises InfraError if leases cannot be kept.
        """
        with self._changing:
            if key in self._own:
                self._own[key].holders += 1
                return None
            path = self._folder / device_file(key)
            if front := claimants(self._folder, key, self._claims.get(key)):
                return held_file(path) or front[0].held
            found = take_file(path, self._holder().content())
            if isinstance(found, Held):
                return found
            lease = Lease(found, path, name)
            if front := claimants(self._folder, key, self._claims.get(key)):
                lease.close()  # somebody came in between the look at the line and the lock
                return front[0].held
            self._own[key] = lease
            if self._heart is None or not self._heart.is_alive():
                self._ended.clear()
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()
            return None

    def wait_for(self, attempt: Callable[[], Sequence[Missed]], *, wait_s: float | None) -> None:
        """Tries again, standing in line, until an attempt to take one of several devices succeeds.

        Who has them is said. No holder is waited for longer than `wait_s` seconds, which does not
        count the time of a loan; a process of our own run is waited for in any case, unless
        `wait_s` is None. Raises DeviceHeld naming a holder.
        """
        began, told, warned = time.monotonic(), "", ""
        since: dict[str, tuple[str, float]] = {}
        with contextlib.ExitStack() as waits:
            waits.callback(self._leave_line)
            while missed := attempt():
                now = time.monotonic()
                for name, _, held in missed:
                    if name not in since or since[name][0] != str(held.holder):
                        since[name] = str(held.holder), now
                foreign = [one for one in missed if not self._is_ours(one.held)]
                if wait_s is None:
                    left_s = 0.0
                elif len(foreign) < len(missed):
                    left_s = math.inf  # a process of our own run is waited for in any case
                else:
                    left_s = max(
                        since[name][1] + self._patience_s(held, wait_s) - now
                        for name, _, held in missed
                    )
                if left_s <= 0:
                    name, _, held = missed[0]
                    waited = f" (waited {now - began:.1f} s)" if wait_s else ""
                    raise DeviceHeld(f"device {name} is held by {held}{waited}", held)
                for _, key, _ in missed:
                    self._stand_in_line(key)
                ours = [one for one in missed if one not in foreign]
                name, _, held = (ours or missed)[0]
                # who has just taken one, or gives one back, does not say who it is
                unsure = now - began < _SURE_S and any(one.held.holder is None for one in missed)
                if str(held.holder) != told and not unsure:
                    told = str(held.holder)
                    waits.enter_context(working(name))(f"waiting: held by {held}")
                    if not ours:
                        warned = name
                        is_loan = held.holder is not None and held.holder.is_loan
                        most = "" if self._loan_s or is_loan else f" up to {wait_s:g} s"
                        _log.warning(f"waiting{most} for device {name}: held by {held}")
                if self._closed.wait(min(left_s, random.uniform(*_POLL_S))):
                    raise DeviceHeld(f"device {name} is not waited for any more", held)
            if warned:
                waited_s = time.monotonic() - began
                _log.warning(f"device {warned} is waited for no more, after {waited_s:.0f} s")

    def free(self, key: str) -> None:
        """Gives a device back when its last holder here does; nothing if it is not held."""
        with self._changing:
            lease = self._own.get(key)
            if lease is not None:
                lease.holders -= 1
                if not lease.holders:
                    del self._own[key]
                    lease.close()

    def close(self) -> None:
        """Gives all devices back, and ends what waits for one; safe to call twice."""
        self._ended.set()
        waits, self._closed = self._closed, threading.Event()
        waits.set()
        with self._changing:
            for held in (*self._own.values(), *self._claims.values()):
                held.close()
            self._own.clear()
            self._claims.clear()

    def look(self, key: str) -> Held | None:
        """Who else holds a device, or will next, None if nobody does."""
        if key in self._own:
            return None
        held = held_file(self._folder / device_file(key))
        others = claimants(self._folder, key) if held is None else []
        return others[0].held if others else held

    def held_here(self) -> Held:
        """What others are told of what this process holds."""
        return Held(self._holder(), 0.0)

    def _is_ours(self, held: Held) -> bool:
        who = held.holder
        if who is None or not self._of_run or held.silent_s > STALE_S:
            return False
        return (who.host, who.purpose) == (_HOST, self._purpose)

    @staticmethod
    def _patience_s(held: Held, wait_s: float) -> float:
        is_loan = held.holder is not None and held.holder.is_loan
        return _LONGEST_LOAN_S if wait_s and is_loan else wait_s

    def _stand_in_line(self, key: str) -> None:
        """Has nobody take a device who comes later; once for all processes of a run."""
        with self._changing:
            if (claim := self._claims.get(key)) is not None and not claim.is_gone:
                claim.touch()
                return
            line = claimants(self._folder, key)
            if self._loan_s or not any(self._is_ours(one.held) and not one.asks for one in line):
                kind: ClaimKind = "asks" if self._loan_s else "waits"
                self._claims[key] = Claim(self._folder, key, self._holder().content(), kind)

    def _leave_line(self) -> None:
        with self._changing:
            for claim in self._claims.values():
                claim.close()
            self._claims.clear()

    def _holder(self) -> Holder:
        now = datetime.now(UTC)
        until = _shown(now + timedelta(seconds=self._loan_s)) if self._loan_s else ""
        return Holder(_user(), _HOST, os.getpid(), _shown(now), self._purpose, until)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            for lease in tuple(self._own.values()):
                lease.beat()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
