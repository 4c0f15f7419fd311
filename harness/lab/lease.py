"""One holder per device among all processes and users of this computer, for one case at a time.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file names its holder; its time of modification is a heartbeat, by
which a stopped or hung holder can be told from one that works. Removing the file
from under its holder lets a second one in: each holder checks at every beat whether its file is
still in place, and gives the device up if it is not. Waiting processes stand in line.

A claim is a file beside that of the lease, locked in the same way: it ends with its process, and
one without a heartbeat for long does not count. While there are claims, nobody but the first
claimant takes the device. Their files sort in that order: persons before runs; of these the one
whose last case was shorter, counted from when the present case began. So runs get equal shares of a
device's time, and one of short cases that comes to a long one waits for one case.

A device that other computers reach, too, is locked on itself besides (`DeviceLock`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import hashlib
import itertools
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple, NoReturn

from harness.core.bounded_json import parse_json
from harness.core.errors import DeviceError, InfraError
from harness.core.notices import progress_reporter
from harness.core.state_folders import LEASES_VARIABLE
from harness.transport.device_lock import DeviceLock

HEARTBEAT_S: Final = 5.0
STALE_S: Final = 4 * HEARTBEAT_S
# A process that only reads locks the file for some microseconds; that is no holder.
_GLANCES: Final = 5
_GLANCE_S: Final = 0.005

MAX_BYTES: Final = 8 << 10
_MAX_CHARS: Final = 200
_TEXTS: Final = ("user", "host", "since", "purpose")
_MAX_TURN_MS: Final = 10**15


@dataclass(frozen=True)
class Holder:
    """The process that holds a device or has a claim on it.

    `since` is RFC 3339, UTC, and so is `until`: when a person will give it back, "" for a run.
    `turn_ms` is its place among those who want the device, the lowest first.
    """

    user: str
    host: str
    pid: int
    since: str
    purpose: str
    until: str = ""
    turn_ms: int = 0

    def __str__(self) -> str:
        until = f" until {self.until}" if self.until else ""
        return f"{self.user}, process {self.pid} ({self.purpose}), since {self.since}{until}"

    @property
    def is_loan(self) -> bool:
        with contextlib.suppress(ValueError, TypeError):
            return datetime.fromisoformat(self.until) > datetime.now(UTC)
        return False

    def content(self) -> bytes:
        """Return the line of the file."""
        return json.dumps(asdict(self)).encode()[: MAX_BYTES - 1] + b"\n"


def parse_holder(content: bytes) -> Holder | None:
    """Parse a lease's file; None if it is empty, half-written or malformed."""
    try:
        fields = parse_json(content[:MAX_BYTES])
        texts = {name: _clean_text(fields[name]) for name in _TEXTS}
        until = _clean_text(fields.get("until", ""))
        turn_ms = min(max(0, int(fields.get("turn_ms", 0))), _MAX_TURN_MS)
        return Holder(pid=int(fields["pid"]), until=until, turn_ms=turn_ms, **texts)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def device_file(key: str) -> str:
    """Return a file's name for a device's key: readable and unique."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key)[-60:].strip("._-")
    return f"{readable}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _clean_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return "".join(char if char.isprintable() else "?" for char in value)[:_MAX_CHARS]


@dataclass(frozen=True)
class Held:
    """A lease of another process. `holder` is None if its file is malformed.

    `silent_s` is the time since its holder's last heartbeat.
    """

    holder: Holder | None
    silent_s: float

    def __str__(self) -> str:
        holder = str(self.holder) if self.holder else "an unknown process"
        silent = f", which has shown no activity for {self.silent_s:.0f} s"
        return holder + (silent if self.silent_s > STALE_S else "")


class LockedFile:
    """A file that is locked by this process, until `close` or its end."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._lock = threading.Lock()  # between the heartbeat and `close`
        _locked.add(self)

    def touch(self) -> None:
        """Show that its holder is alive."""
        with contextlib.suppress(OSError), self._lock:
            os.utime(self._descriptor)

    @property
    def is_gone(self) -> bool:
        with self._lock:
            return self._descriptor >= 0 and not _in_place(self._descriptor, self._path)

    def close(self) -> None:
        """Free it; safe to call twice."""
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


_locked: weakref.WeakSet[LockedFile] = weakref.WeakSet()


def _drop_all_in_child() -> None:
    """Close a forked child's copies, so that no lock outlives its holder there."""
    for file in tuple(_locked):
        descriptor, file._descriptor = file._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


os.register_at_fork(after_in_child=_drop_all_in_child)


def lock_file(path: Path, content: bytes) -> int | Held:
    """Lock a file, created if it is missing. Return its descriptor, or its holder.

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
                    continue  # its holder removed the file in the meantime
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
            except OSError as error:
                why = f"cannot write a lease to {path.parent}: {error.strerror}"
                raise InfraError(why) from error
            undo.pop_all()
        return descriptor


def find_holding(path: Path) -> Held | None:
    """Return the holder of a file's lock, None if it is free. Raises InfraError."""
    descriptor = _open_file(path, create=False)
    if descriptor is None:
        return None
    try:
        return locked_by(descriptor)
    finally:
        os.close(descriptor)


def locked_by(descriptor: int) -> Held | None:
    """Return the holder of an open file's lock; None if it is free, and kept free until closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_held(descriptor)
    return None


def _read_held(descriptor: int) -> Held:
    """Read the holder of an open file's lock; a new holder gets some time to write its name."""
    for _ in range(_GLANCES):
        silent_s = max(0.0, time.time() - os.fstat(descriptor).st_mtime)
        holder = parse_holder(os.pread(descriptor, MAX_BYTES, 0))
        if holder is not None or silent_s > STALE_S:
            break
        time.sleep(_GLANCE_S)
    return Held(holder, silent_s)


def _open_file(path: Path, *, create: bool) -> int | None:
    """Open a lease's file; None if it is missing and `create` is False. Raises InfraError."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        _make_folder(path.parent)
        for attempt in itertools.count(1):
            try:
                descriptor = os.open(path, flags)
                break
            except FileNotFoundError:
                if not create:
                    return None
            except PermissionError:
                if attempt > _GLANCES:
                    raise
                time.sleep(_GLANCE_S)  # another account has just created it, and opens it to all
                continue
            # O_CREAT alone is refused for other users' files in such folders
            # (fs.protected_regular), hence two steps
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)
                break
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is not a regular file, or has several hard links")
    except OSError as error:
        raise InfraError(
            f"cannot write a lease to {path}: {error.strerror}; remove this file, or set "
            f"{LEASES_VARIABLE} to a folder that all users of the devices can write to"
        ) from error
    return descriptor


def _make_folder(folder: Path) -> None:
    try:
        os.mkdir(folder, 0o1777)
        os.chmod(folder, 0o1777)
    except FileExistsError:
        why = _danger(os.lstat(folder))
        if why is not None:
            raise OSError(errno.EPERM, why) from None
    except FileNotFoundError:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_folder(folder)


def _danger(folder: os.stat_result) -> str | None:
    """Return why others than their holders could remove leases from a folder, None if they cannot.

    In a sticky folder only the owner of a file, that of the folder, and root can do that; another
    user's folder is accepted if everybody may write to it.
    """
    if not stat.S_ISDIR(folder.st_mode):
        return "its parent is not a folder"
    sticky = bool(folder.st_mode & stat.S_ISVTX)
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        return "others can remove files from its folder; run chmod +t on the folder"
    if folder.st_uid not in (0, os.getuid()) and not (sticky and folder.st_mode & stat.S_IWOTH):
        return f"its folder belongs to user {folder.st_uid} and is not writable for all users"
    return None


def _in_place(descriptor: int, path: Path) -> bool:
    opened = os.fstat(descriptor)
    try:
        current = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)


def _lock(descriptor: int) -> bool:
    for _ in range(_GLANCES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            # a holder has written its name; who only looks has not, and is done at once
            if parse_holder(os.pread(descriptor, MAX_BYTES, 0)) is not None:
                return False
            time.sleep(_GLANCE_S)
    return False


ClaimKind = Literal["asks", "waits"]
_MAX_CLAIMS: Final = 1000
_MARK: Final = "~"


@dataclass(frozen=True)
class Claimant:
    """A process with a claim; `file` is the name of its file."""

    file: str
    holding: Held

    @property
    def is_person(self) -> bool:
        return self.file.partition(_MARK)[2].startswith("asks-")


class Claim(LockedFile):
    """A claim on a device, held until `close` or the end of this process."""

    def __init__(self, folder: Path, key: str, holder: Holder, kind: ClaimKind) -> None:
        """Claim a device, after all earlier claims of the same kind and turn. Raise InfraError."""
        now, token = time.monotonic_ns(), secrets.token_hex(4)
        self.file = f"{device_file(key)}{_MARK}{kind}-{holder.turn_ms:016}-{now:020}-{token}"
        # who looks at it as it is created has it locked for a moment
        path = folder / self.file
        while not isinstance(descriptor := lock_file(path, holder.content()), int):
            time.sleep(_GLANCE_S)
        super().__init__(descriptor, path)
        self.turn_ms, self.is_used = holder.turn_ms, False


def claimants(folder: Path, key: str, before: Claim | None = None) -> list[Claimant]:
    """Return those with a claim on a device, or with one in front of `before`, the first one first.

    Remove what dead ones left.
    """
    prefix = device_file(key) + _MARK
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(prefix))
    except OSError:
        return []
    claims = []
    for name in names[:_MAX_CLAIMS]:
        if before is not None and name >= before.file:
            break
        with contextlib.suppress(OSError):
            holding = _claim_holding(folder / name)
            if holding is not None and holding.silent_s <= STALE_S:
                claims.append(Claimant(name, holding))
    return claims


def _claim_holding(path: Path) -> Held | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        holding = locked_by(descriptor)
        if holding is None:
            os.unlink(path)
        return holding
    finally:
        os.close(descriptor)


_log = logging.getLogger(__name__)

_HOST: Final = socket.gethostname()
_POLL_S: Final = (0.01, 0.05)
"""The time between two attempts in the first second; it grows with the time waited."""
_SLOWEST_POLL: Final = 5.0
_SETTLE_S: Final = 5.0
_NEXT_CASE_S: Final = 1.0
"""The time that a run has to begin its next case before others whose turn is later."""
_LONGEST_LOAN_S: Final = 604800.0
"""The longest time that a person may keep a device."""


class DeviceHeld(InfraError):
    """A device is held by another process; the text names it."""

    def __init__(self, text: str, holding: Held) -> None:
        self.holding = holding
        super().__init__(text)


class LeaseLost(InfraError):
    """A device may have a second holder: its answers since then cannot be trusted."""


class Occupied(NamedTuple):
    """A device that could not be acquired: the key to wait for, and its holder."""

    name: str
    key: str
    holding: Held


class Lease(LockedFile):
    """A device held by this process, until `close` or its end.

    A lost lease is logged once as a warning.
    """

    def __init__(self, descriptor: int, path: Path, name: str, turn_ms: int) -> None:
        super().__init__(descriptor, path)
        self.name = name
        self.holders = 1
        self.turn_ms = turn_ms
        self.since = time.monotonic()
        self.device_lock: DeviceLock | None = None
        self._line = b""
        self._lost = ""

    def beat(self) -> None:
        """Show that its holder is alive, or warn that the lease is lost."""
        with contextlib.suppress(LeaseLost):
            self.require()
            self.touch()
            if self.device_lock is not None:
                self.device_lock.beat()

    def require(self) -> None:
        """Raise LeaseLost if its file is not in place, now or at any check before."""
        if self.is_gone:
            self._lose(f"{self._path} was removed or replaced, so another process may have taken")
        elif self._lost:
            self._lose(self._lost)

    def lock_on_device(self, lock: DeviceLock, line: bytes, *, wait: bool) -> Held | None:
        """Lock the device itself, or find out that it is still locked; return who has it if not.

        A device that does not answer counts as locked: its user then gets that error. Raises
        LeaseLost if somebody had it since it was locked here.
        """
        try:
            if self.device_lock is None:
                if not lock.try_acquire(line, wait=wait):
                    return Held(parse_holder(lock.last_holder), 0.0)
                self.device_lock, self._line = lock, line
            elif not self.device_lock.is_held():
                # while our own shell there has not noticed the cut link, it still has it
                self.device_lock.try_acquire(self._line, wait=False)
                if self.device_lock.last_holder.strip() != self._line.strip():
                    holder = parse_holder(self.device_lock.last_holder)
                    self._lose(f"its connection was cut, and {holder or 'another computer'} took")
        except DeviceError as error:
            _log.info(f"cannot lock device {self.name}: {error}")
        return None

    def close(self) -> None:
        """Free it, on the device, too; safe to call twice."""
        if self.device_lock is not None:
            self.device_lock.release()
        super().close()

    def _lose(self, why: str) -> NoReturn:
        text = f"the lease of device {self.name} is lost: {why} the device"
        if not self._lost:
            self._lost = why
            _log.warning(text)
        raise LeaseLost(text)


class Leases:
    """The leases of this process; `purpose` tells others what it does with the devices.

    Two names of one device share its lease, since one process uses it.
    """

    def __init__(
        self, folder: Path, *, purpose: str, of_run: bool = False, loan_s: float = 0.0
    ) -> None:
        """With `of_run`, other processes of this purpose belong to us, and share one claim.

        With `loan_s` a person takes devices for so many seconds, before all runs that wait.
        """
        self._folder = folder
        self._purpose = purpose
        self._of_run = of_run
        self._loan_s = loan_s
        self._leases: dict[str, Lease] = {}
        self._claims: dict[str, Claim] = {}
        self._last_case_ms = 0
        self._changing = threading.RLock()  # between the heartbeat and `acquire` and `free`
        self._closed = threading.Event()
        self._heart: threading.Event | None = None

    def require(self, key: str) -> None:
        """Raise LeaseLost if the lease of a device is lost, or was given back."""
        if (lease := self._leases.get(key)) is None:
            raise LeaseLost(f"the lease of {key} was released")
        lease.require()

    def lock_on_device(self, key: str, lock: DeviceLock, *, wait: bool) -> Held | None:
        """Lock a device that is held here on itself; return another computer that has it.

        Called again, it checks the lock. With `wait` the device keeps us in line for some seconds.
        Raises LeaseLost.
        """
        if (lease := self._leases.get(key)) is None:
            raise LeaseLost(f"the lease of {key} was released")
        return lease.lock_on_device(lock, self._holder().content(), wait=wait)

    def acquire(self, key: str, name: str, *, wait_s: float = 0.0) -> None:
        """Acquire the device `key`, called `name`, waiting as `wait_for` does."""

        def attempt() -> list[Occupied]:
            holding = self.try_acquire(key, name)
            return [] if holding is None else [Occupied(name, key, holding)]

        self.wait_for(attempt, wait_s=wait_s)

    def try_acquire(self, key: str, name: str) -> Held | None:
        """Acquire a device if it is free and nobody is ahead of us in line; else return its holder.

        Raises InfraError if leases cannot be kept.
        """
        with self._changing:
            if key in self._leases:
                self._leases[key].holders += 1
                return None
            path = self._folder / device_file(key)
            if first_claims := claimants(self._folder, key, self._claims.get(key)):
                return find_holding(path) or first_claims[0].holding
            claim = self._claims.get(key)
            turn_ms = claim.turn_ms if claim is not None else 0
            taken_file = lock_file(path, self._holder(turn_ms).content())
            if isinstance(taken_file, Held):
                return taken_file
            lease = Lease(taken_file, path, name, turn_ms)
            if first_claims := claimants(self._folder, key, self._claims.get(key)):
                lease.close()  # somebody came in between the look at the line and the lock
                return first_claims[0].holding
            self._leases[key] = lease
            self._leave_line([key])
            if self._heart is None:
                self._heart = threading.Event()
                threading.Thread(target=self._beat, args=(self._heart,), daemon=True).start()
            return None

    def wait_for(self, attempt: Callable[[], Sequence[Occupied]], *, wait_s: float | None) -> None:
        """Stand in line until an attempt to acquire one of several devices succeeds.

        Holders are reported. No holder is waited for longer than `wait_s` seconds, which does not
        count the time of a loan; a process of our own run is waited for in any case, unless
        `wait_s` is None. Raises DeviceHeld naming a holder.
        """
        start, reported, warned = time.monotonic(), "", ""
        since: dict[str, tuple[str, float]] = {}
        reporters: dict[str, Callable[..., None]] = {}
        claimed = set[str]()
        with contextlib.ExitStack() as waits:
            waits.callback(self._leave_line, claimed)
            while occupied := attempt():
                now = time.monotonic()
                for name, _, holding in occupied:
                    is_loan = holding.holder is not None and holding.holder.is_loan
                    # the time of a loan does not count, nor does that before it
                    if is_loan or name not in since or since[name][0] != str(holding.holder):
                        since[name] = str(holding.holder), now
                foreign = [entry for entry in occupied if not self.is_ours(entry.holding)]
                if wait_s is None:
                    left_s = 0.0
                elif len(foreign) < len(occupied):
                    left_s = math.inf  # a process of our own run is waited for in any case
                else:
                    left_s = max(
                        since[name][1] + self._patience_s(holding, wait_s) - now
                        for name, _, holding in occupied
                    )
                if left_s <= 0:
                    name, _, holding = occupied[0]
                    waited = f" (waited {now - start:.1f} s)" if wait_s else ""
                    raise DeviceHeld(f"device {name} is in use by {holding}{waited}", holding)
                for _, key, holding in occupied:
                    claimed.add(key)
                    self.stand_in_line(key, after=holding.holder)
                ours = [entry for entry in occupied if entry not in foreign]
                name, _, holding = (ours or occupied)[0]
                # a process that is just acquiring or freeing one has not written its name
                unclear = any(
                    entry.holding.holder is None and now - since[entry.name][1] < _SETTLE_S
                    for entry in occupied
                )
                if str(holding.holder) != reported and not unclear:
                    reported = str(holding.holder)
                    if name not in reporters:
                        reporters[name] = waits.enter_context(progress_reporter(name))
                    reporters[name](f"waiting: in use by {holding}")
                    is_loan = holding.holder is not None and holding.holder.is_loan
                    if not ours and (is_loan or warned != name):
                        warned = name
                        limit = "" if self._loan_s or is_loan else f" up to {wait_s:g} s"
                        _log.warning(f"waiting{limit} for device {name}, in use by {holding}")
                poll_s = random.uniform(*_POLL_S) * min(max(1.0, now - start), _SLOWEST_POLL)
                if self._closed.wait(min(left_s, poll_s)):
                    raise DeviceHeld(f"no longer waiting for device {name}", holding)
            if warned:
                waited_s = time.monotonic() - start
                _log.warning(f"no longer waiting for device {warned}, after {waited_s:.0f} s")

    def free(self, key: str) -> None:
        """Free a device when its last user here frees it; do nothing if it is not held.

        A run stays in line for a moment if others are: its next case may be the one whose turn
        it is.
        """
        with self._changing:
            lease = self._leases.get(key)
            if lease is None:
                return
            lease.holders -= 1
            if lease.holders:
                return
            del self._leases[key]
            self._last_case_ms = int(1000 * (time.monotonic() - lease.since))
            if self._of_run and claimants(self._folder, key):
                self.stand_in_line(key, after=self._holder(lease.turn_ms))
                if (claim := self._claims.get(key)) is not None:
                    leave = threading.Timer(_NEXT_CASE_S, self._leave_unused, (key, claim))
                    leave.daemon = True
                    leave.start()
            lease.close()

    def close(self) -> None:
        """Free all devices and end all waits; safe to call twice."""
        waits, self._closed = self._closed, threading.Event()
        waits.set()
        with self._changing:
            if self._heart is not None:
                self._heart.set()
                self._heart = None
            for file in (*self._leases.values(), *self._claims.values()):
                file.close()
            self._leases.clear()
            self._claims.clear()

    def own_holding(self) -> Held:
        """Return this process as the holder that others see."""
        return Held(self._holder(), 0.0)

    def is_ours(self, holding: Held) -> bool:
        """Return whether a process of our own run has it, and works."""
        holder = holding.holder
        if holder is None or not self._of_run or holding.silent_s > STALE_S:
            return False
        return (holder.host, holder.purpose) == (_HOST, self._purpose)

    @staticmethod
    def _patience_s(holding: Held, wait_s: float) -> float:
        is_loan = holding.holder is not None and holding.holder.is_loan
        return _LONGEST_LOAN_S if wait_s and is_loan else wait_s

    def stand_in_line(self, key: str, *, after: Holder | None = None) -> None:
        """Claim a device, so that later processes wait; one claim serves all processes of a run.

        `after` is the holder whose case began last.
        """
        with self._changing:
            if (claim := self._claims.get(key)) is not None and not claim.is_gone:
                claim.is_used = True
                claim.touch()
                return
            line = claimants(self._folder, key)
            runs = (claimant.holding for claimant in line if not claimant.is_person)
            if self._loan_s or not any(map(self.is_ours, runs)):
                self._leave_line([key])
                kind: ClaimKind = "asks" if self._loan_s else "waits"
                turn_ms = (after.turn_ms if after is not None else 0) + self._last_case_ms
                self._claims[key] = Claim(self._folder, key, self._holder(turn_ms), kind)

    def _leave_unused(self, key: str, claim: Claim) -> None:
        with self._changing:
            if self._claims.get(key) is claim and not claim.is_used:
                self._leave_line([key])

    def _leave_line(self, keys: Iterable[str]) -> None:
        with self._changing:
            for key in self._claims.keys() & set(keys):
                self._claims.pop(key).close()

    def _holder(self, turn_ms: int = 0) -> Holder:
        now = datetime.now(UTC)
        until = _format_time(now + timedelta(seconds=self._loan_s)) if self._loan_s else ""
        since, purpose = _format_time(now), self._purpose
        return Holder(_user(), _HOST, os.getpid(), since, purpose, until, turn_ms)

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            for lease in tuple(self._leases.values()):
                lease.beat()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _format_time(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
