"""One holder per device among all processes and users of this computer.

A lease is a lock (flock) on a file that all users share, so the kernel frees it at once when its
holder ends in any way. The file tells who holds it; its time of modification is a heartbeat, by
which a holder that was stopped or hangs can be told from one that works. Who takes the file away
from under its holder lets a second one in: each holder looks at every beat whether its file is
still in its place, and gives the device up if it is not. Those who wait stand in a queue
(`lease_queue.py`), and who lends a device to a person stands first in it.
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

from harness.device.lab.lease_files import (
    HEARTBEAT_S,
    Held,
    Holder,
    LockedFile,
    device_file,
    held_file,
    take_file,
)
from harness.device.lab.lease_queue import ASKS, LENT, LeaseWaiter, QueuePlace, rank_of, waiting
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

    def __init__(
        self, folder: Path, *, purpose: str, priority: int = 0, loan_s: float = 0.0
    ) -> None:
        """`priority` (of `PRIORITIES`) is that in the queue for a device that others have.

        With `loan_s` runs are asked to lend it for so many seconds.
        """
        self._folder = folder
        self._purpose = purpose
        self._rank = ASKS if loan_s else rank_of(priority)
        self._loan_s = loan_s
        self._own: dict[str, Lease] = {}
        self._lent: dict[str, QueuePlace] = {}
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

        Waits up to `wait_s` seconds, first come, first served, and says who has it and how many
        are in front. The time of a loan comes on top, and who lent the device waits for its end in
        any case. Raises DeviceHeld naming the holder, InfraError if leases cannot be kept.
        """
        place, closed = self._lent.get(key), self._closed
        began, told, lent = time.monotonic(), ("", 0), place is not None
        until = began + wait_s
        with contextlib.ExitStack() as waits:
            if place is not None:
                waits.callback(self._end_place, key)
            tell: Callable[..., None] | None = None
            while (held := self._try(key, name, place)) is not None:
                now = time.monotonic()
                if (wait_s or lent) and held.holder is not None and held.holder.is_loan:
                    until = min(now + wait_s + _POLL_S, began + wait_s + _LONGEST_LOAN_S)
                if now >= until:
                    waited = f" (waited {wait_s:g} s)" if wait_s else ""
                    raise DeviceHeld(f"device {name} is held by {held}{waited}", held)
                if place is None or place.is_gone:
                    place = waits.enter_context(contextlib.closing(self._queue(key, name)))
                place.touch()
                number = 1 + len(waiting(self._folder, key, place))
                if (str(held.holder), number) != told:
                    told = str(held.holder), number
                    text = f"place {number} in its queue"
                    most = "" if lent or self._loan_s else f" up to {wait_s:g} s"
                    _log.warning(f"waiting{most} for device {name}: held by {held}; {text}")
                    tell = tell or waits.enter_context(working(name))
                    tell(f"waiting: {text}, held by {held}")
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
        """Frees a device and stands first in the queue of runs, to have it back."""
        with self._changing:
            self._lent[key] = self._queue(key, name, LENT)
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
            self._end_place(key)
            self.free(key)

    def look(self, key: str) -> Held | None:
        """Who else holds a device, or will next, None if nobody does."""
        if key in self._own:
            return None
        held = held_file(self._folder / device_file(key))
        queue = self.queue(key) if held is None else []
        return queue[0].held if queue else held

    def queue(self, key: str) -> list[LeaseWaiter]:
        """Who else waits for a device, the first one first."""
        own = self._lent.get(key)
        return [one for one in waiting(self._folder, key) if own is None or one.file != own.file]

    def loan(self, key: str) -> Held | None:
        """The person who has a device, or asks for it, as far as `until` or the queue tells."""
        held = self.look(key)
        if held is not None and held.holder is not None and held.holder.is_loan:
            return held
        return next((one.held for one in self.queue(key) if one.asks), None)

    def _try(self, key: str, name: str, place: QueuePlace | None) -> Held | None:
        """Takes a device that is free, and for which nobody waits in front; else who has it."""
        with self._changing:
            if key in self._own:
                return None
            path = self._folder / device_file(key)
            if front := waiting(self._folder, key, place):
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

    def _queue(self, key: str, name: str, rank: int | None = None) -> QueuePlace:
        content = self._holder().content()
        return QueuePlace(self._folder, key, name, content, self._rank if rank is None else rank)

    def _end_place(self, key: str) -> None:
        with self._changing:
            if (place := self._lent.pop(key, None)) is not None:
                place.close()

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
            for key, place in tuple(self._lent.items()):
                place.touch()
                with contextlib.suppress(InfraError):
                    if self._try(key, place.name, place) is None:
                        self._end_place(key)
            self.at_beat()


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
