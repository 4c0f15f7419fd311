"""One holder per device among all processes and users of this computer, for one case at a time.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works. Who takes the file away
from under its holder lets a second one in: each holder looks at every beat whether its file is
still in its place, and gives the device up if it is not. Those who wait stand in line
(`lease_claims.py`).
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import math
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from harness.device.lab.lease_claims import Claim, ClaimKind, claimants
from harness.device.lab.lease_files import (
    HEARTBEAT_S,
    STALE_S,
    Held,
    Holder,
    LockedFile,
    device_file,
    held_file,
    take_file,
)
from harness.ground.errors import InfraError
from harness.ground.files.notices import working

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
