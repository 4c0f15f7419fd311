"""One holder per device among all processes and users of this computer.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works. Who takes the file away
from under its holder lets a second one in: each holder looks at every beat whether its file is
still in its place, and gives the device up if it is not. Those who wait try again and again. A
person who asks for a device comes before them, and then the run that lent it (`lease_claims.py`).
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from harness.device.lab.lease_claims import Claim, Claimant, ClaimKind, claimants
from harness.device.lab.lease_files import (
    HEARTBEAT_S,
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

_POLL_S: Final = 0.2
_LONGEST_LOAN_S: Final = 604800.0
"""So long a person may keep a device that was asked for."""


class DeviceHeld(InfraError):
    """A device is held by another process; the text names it."""

    def __init__(self, text: str, held: Held) -> None:
        self.held = held
        super().__init__(text)


class DeviceLent(DeviceHeld):
    """A device that this process lent to a person, and that is not back."""


class LeaseLost(InfraError):
    """A device may have got a second holder: what it answered since is not to be believed."""


class Lease(LockedFile):
    """A device held by this process, until `close` or its end.

    A warning tells once if the lease is lost.
    """

    def __init__(self, descriptor: int, path: Path, name: str) -> None:
        super().__init__(descriptor, path)
        self.name = name
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
    """The leases of this process; `purpose` tells others what it does with the devices."""

    def __init__(self, folder: Path, *, purpose: str, loan_s: float = 0.0) -> None:
        """With `loan_s` runs are asked to lend their devices for so many seconds."""
        self._folder = folder
        self._purpose = purpose
        self._loan_s = loan_s
        self._own: dict[str, Lease] = {}
        self._lent: dict[str, Claim] = {}
        self._changing = threading.RLock()  # between the heart and who takes, lends and frees
        self._ended, self._closed = threading.Event(), threading.Event()
        self._heart: threading.Thread | None = None
        self.at_beat: Callable[[], object] = lambda: None
        """Called by the heart, every five seconds while anything is held."""

    def require(self, key: str) -> None:
        """Raises LeaseLost if a device that this object took has lost its lease."""
        if key in self._own:
            self._own[key].require()

    def take(self, key: str, name: str, *, wait_s: float = 0.0) -> None:
        """Takes the device `key`, called `name`; at once if it is held by this object already.

        Waits up to `wait_s` seconds, and says who has it. The time of a loan comes on top, and who
        lent the device waits for its end in any case. Raises DeviceHeld naming the holder,
        InfraError if leases cannot be kept.
        """
        claim, closed = self._lent.get(key), self._closed
        began, told, lent = time.monotonic(), "", claim is not None
        kind: ClaimKind = "lent" if lent else "asks"
        until = began + wait_s
        with contextlib.ExitStack() as waits:
            if lent:
                waits.callback(self._end_claim, key)
            tell: Callable[..., None] | None = None
            while (held := self._try(key, name, claim)) is not None:
                now = time.monotonic()
                if (wait_s or lent) and held.holder is not None and held.holder.is_loan:
                    until = min(now + wait_s + _POLL_S, began + wait_s + _LONGEST_LOAN_S)
                if now >= until:
                    waited = f" (waited {wait_s:g} s)" if wait_s else ""
                    raise DeviceHeld(f"device {name} is held by {held}{waited}", held)
                if claim.is_gone if claim is not None else self._loan_s:
                    claim = waits.enter_context(contextlib.closing(self._claim(key, name, kind)))
                if claim is not None:
                    claim.touch()
                if str(held.holder) != told:
                    told = str(held.holder)
                    most = "" if lent or self._loan_s else f" up to {wait_s:g} s"
                    _log.warning(f"waiting{most} for device {name}: held by {held}")
                    tell = tell or waits.enter_context(working(name))
                    tell(f"waiting: held by {held}")
                if closed.wait(_POLL_S):
                    raise DeviceHeld(f"device {name} is not waited for any more", held)
            if tell is not None:
                waited_s = time.monotonic() - began
                _log.warning(f"device {name} is had, after {waited_s:.0f} s of waiting")

    def free(self, key: str) -> None:
        """Gives a device back; nothing happens if this object does not hold it."""
        with self._changing:
            lease = self._own.pop(key, None)
            if lease is not None:
                lease.close()

    def lend(self, key: str, name: str) -> None:
        """Frees a device, to have it back before all other runs."""
        with self._changing:
            self._lent[key] = self._claim(key, name, "lent")
            self.free(key)

    def is_lent(self, key: str) -> bool:
        """Whether it is not back yet."""
        return key in self._lent

    def close(self) -> None:
        """Gives all devices back, and ends what waits for one; safe to call twice."""
        self._ended.set()
        waits, self._closed = self._closed, threading.Event()
        waits.set()
        for key in (*self._own, *self._lent):
            self._end_claim(key)
            self.free(key)

    def look(self, key: str) -> Held | None:
        """Who else holds a device, or will next, None if nobody does."""
        if key in self._own:
            return None
        held = held_file(self._folder / device_file(key))
        others = self._others(key) if held is None else []
        return others[0].held if others else held

    def loan(self, key: str) -> Held | None:
        """The person who has a device, or asks for it."""
        held = self.look(key)
        if held is not None and held.holder is not None and held.holder.is_loan:
            return held
        return next((one.held for one in self._others(key) if one.asks), None)

    def _others(self, key: str) -> list[Claimant]:
        claim = self._lent.get(key)
        return [
            one for one in claimants(self._folder, key) if claim is None or one.file != claim.file
        ]

    def _try(self, key: str, name: str, claim: Claim | None) -> Held | None:
        """Takes a device that is free, and on which nobody else has a claim; else who has it."""
        with self._changing:
            if key in self._own:
                return None
            path = self._folder / device_file(key)
            if front := claimants(self._folder, key, claim):
                return held_file(path) or front[0].held
            found = take_file(path, self._holder().content())
            if isinstance(found, Held):
                return found
            self._own[key] = Lease(found, path, name)
            if self._heart is None or not self._heart.is_alive():
                self._ended.clear()
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()
            return None

    def _claim(self, key: str, name: str, kind: ClaimKind) -> Claim:
        return Claim(self._folder, key, name, self._holder().content(), kind)

    def _end_claim(self, key: str) -> None:
        with self._changing:
            if (claim := self._lent.pop(key, None)) is not None:
                claim.close()

    def _holder(self) -> Holder:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = f"user {os.getuid()}"
        now = datetime.now(UTC)
        until = _shown(now + timedelta(seconds=self._loan_s)) if self._loan_s else ""
        return Holder(user, socket.gethostname(), os.getpid(), _shown(now), self._purpose, until)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            for lease in tuple(self._own.values()):
                lease.beat()
            for key, claim in tuple(self._lent.items()):
                claim.touch()
                with contextlib.suppress(InfraError):
                    if self._try(key, claim.name, claim) is None:
                        self._end_claim(key)
            self.at_beat()


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
