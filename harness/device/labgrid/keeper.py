"""Holds places of a labgrid lab for one session, in a process of its own.

labgrid lets nobody's place go because a client died, so somebody must outlive the session: its
stdin, which the session keeps open, ends with the session, however that dies. And gRPC's threads
stay out of a process that runs tests. Nothing is asked of it after its start: it answers in lines
of JSON on stdout, and then in files of its folder, which the session's other processes read, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Final

from harness.device.labgrid.place import Place, Wanted, no_place, tags_there, waiting_text
from harness.device.labgrid.session import (
    ALIVE,
    HELD,
    MAX_BYTES,
    OWNER,
    lost_file,
    tell,
)
from harness.device.labgrid.wire import Away, Coordinator, Refused, Unlike
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.files.whole_file import read_json

_LOOK_S: Final = 0.5
_POLL_S: Final = 1.0
_OTHERS_S: Final = 5.0
"""How long a place that is held waits for others that the session wants; not for `wait_s`."""
RELEASE_S: Final = 120.0
"""How long a coordinator that does not answer is asked to take places back."""


def own_names() -> tuple[str, str]:
    """What this user is called by labgrid's own client, and by a session of ours.

    The second is of this session alone: two sessions of a user must not take each other's places
    for their own. Each has one slash at most, as labgrid's client can read.
    """
    host = os.environ.get("LG_HOSTNAME", socket.gethostname())
    user = os.environ.get("LG_USERNAME", getuser())
    return f"{host}/{user}", f"{host}+qnn-{secrets.token_hex(6)}/{user}"


class Keeper:
    """The places of one session, from the queue to their release."""

    def __init__(self, wanted: Wanted, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._user, self._name = own_names()
        self._held: dict[str, Place] = {}
        self._tokens: list[str] = []
        self._passed_over: dict[str, str] = {}
        self._is_new = False
        self._told = ""
        self._until = time.monotonic() + wanted.wait_s
        try:
            self._coordinator = Coordinator(wanted.coordinator, self._name)
        except Unlike as error:  # later it may be one that is started anew
            raise ConfigError(str(error), field="labgrid.coordinator") from None

    def run(self) -> None:
        """Takes what is wanted, keeps it until stdin ends, and gives it back."""
        fitting = self._fitting()
        if not self._wanted.places:
            tell(user=self._user, places=[asdict(place) for place in fitting])
            self._coordinator.close()
            return
        owner = {"name": self._name, "coordinator": self._wanted.coordinator}
        (self._folder / OWNER).write_text(json.dumps(owner))
        self._clean_up_after_the_dead()
        try:
            if self._acquire(min(self._wanted.places, len(fitting))):
                self._watch()
        finally:
            self._release()

    def _fitting(self) -> list[Place]:
        places = self._coordinator.places()
        found = [place for place in places if place.fits(self._wanted.filters)]
        if not found:
            field, there = "labgrid.filters", tags_there(places)
            raise ConfigError(no_place(self._wanted, places), field=field, choices=there or None)
        return found

    def _acquire(self, number: int) -> bool:
        """Takes so many places, or those that are free once it has one; False if session ended."""
        self._tokens = [self._reserve() for _ in range(number)]
        until = self._until
        while self._is_waiting:
            had = bool(self._held)
            self._attempt(self._look_at_the_reservations)
            if self._held and not had:
                until = min(until, time.monotonic() + _OTHERS_S)
            if not self._is_waiting or time.monotonic() >= until:
                break
            if _session_ended(_POLL_S):
                return False
        if not self._held and self._passed_over and not self._tokens:
            names = ", ".join(self._passed_over)
            within = f"within {self._wanted.wait_s:g} s"
            raise InfraError(f"no exporter of labgrid shows a service for any of {names} {within}")
        if not self._held:
            raise InfraError(
                f"no place of labgrid was to be had within {self._wanted.wait_s:g} s"
                + (f" ({self._told})" if self._told else "")
            )
        for token in (*self._tokens, *self._passed_over.values()):
            self._coordinator.cancel(token)
        if self._tokens:
            tell(notice=f"goes on with {len(self._held)} of {number} places of labgrid")
        self._tokens.clear()
        held = [asdict(place) for place in self._held.values()]
        text = json.dumps({"wanted": asdict(self._wanted), "places": held})
        (self._folder / HELD).write_text(text)
        tell(user=self._name, places=held)
        return True

    @property
    def _is_waiting(self) -> bool:
        return bool(self._tokens or (self._passed_over and not self._held))

    def _look_at_the_reservations(self) -> None:
        for name in tuple(self._passed_over):
            place = self._coordinator.place(name)
            if place is not None and place.services:
                self._tokens.append(self._passed_over.pop(name))
        for token in tuple(self._tokens):
            self._advance(token)
        for token in self._passed_over.values():
            with contextlib.suppress(Refused):
                self._coordinator.poll(token)
        self._tell_waiting()

    def _reserve(self) -> str:
        return self._coordinator.reserve(dict(self._wanted.filters))

    def _advance(self, token: str) -> None:
        """Looks after one reservation: its place is taken once it is allocated."""
        try:
            state, name = self._coordinator.poll(token)
        except Refused:  # a coordinator that was started anew knows of no reservation
            state, name = "expired", ""
        if state == "waiting":
            return
        self._tokens.remove(token)
        if state not in ("allocated", "acquired"):
            self._tokens.append(self._reserve())
            return
        place = self._coordinator.place(name)
        if place is None or not place.services:
            # kept reserved for now, so that the next one is another place
            self._passed_over[name] = token
            tell(notice=f"place {name} of labgrid is passed over: its exporter shows no service")
            taken = len(self._tokens) + len(self._passed_over) + len(self._held)
            if taken < len(self._fitting()):
                self._tokens.append(self._reserve())
            return
        try:
            self._coordinator.acquire(name)
            self._held[name] = place
        except Refused as refused:
            tell(notice=f"place {name} of labgrid cannot be taken yet: {refused}")
            self._tokens.append(self._reserve())
        self._coordinator.cancel(token)

    def _tell_waiting(self) -> None:
        if not self._tokens:
            return
        filters, places = self._wanted.filters, self._coordinator.places()
        others = {place.acquired for place in places if place.fits(filters)} - {"", self._name}
        wait_s = min(self._wanted.wait_s, _OTHERS_S) if self._held else self._wanted.wait_s
        told = waiting_text(filters, others, wait_s)
        if told != self._told:
            self._told = told
            tell(notice=told)

    def _watch(self) -> None:
        while not _session_ended(_LOOK_S):
            self._attempt(self._look_at_the_places)

    def _look_at_the_places(self) -> None:
        for name in tuple(self._held):
            holder = self._holder(name)
            if holder == "" and self._is_new:
                # a coordinator that was started anew has forgotten who has what
                with contextlib.suppress(Refused):
                    self._coordinator.acquire(name)
                holder = self._holder(name)
            if holder != self._name:
                self._lose(name, holder)

    def _holder(self, name: str) -> str | None:
        place = self._coordinator.place(name)
        return None if place is None else place.acquired

    def _lose(self, name: str, holder: str | None) -> None:
        """Gives a place up for this session: whoever took it may use it."""
        del self._held[name]
        what = "was removed" if holder is None else f"was given to {holder}"
        why = "was released by somebody" if holder == "" else what
        lost_file(self._folder, name).write_text(
            f"place {name} of labgrid was taken from this run: it {why}"
        )

    def _attempt(self, act: Callable[[], None]) -> None:
        """Does something with the coordinator; if that is away now, the session goes on."""
        with contextlib.suppress(Away):
            if self._coordinator.is_down:
                self._is_new = True
                self._coordinator.close()
                self._coordinator = Coordinator(self._wanted.coordinator, self._name)
            act()
            self._is_new = False

    def _release(self) -> None:
        """Gives everything back; in vain, the next session of this user does it."""
        until = time.monotonic() + RELEASE_S
        while self._folder.exists() and time.monotonic() < until:
            with contextlib.suppress(HarnessError):
                self._attempt(self._give_all_back)
            if self._folder.exists():
                time.sleep(_POLL_S)

    def _give_all_back(self) -> None:
        self._coordinator.give_back(self._name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _clean_up_after_the_dead(self) -> None:
        """Gives back what sessions of this user left whose keepers died, too, as a reboot does."""
        for alive in self._folder.parent.glob(f"*/{ALIVE}"):
            folder = alive.parent
            with contextlib.suppress(OSError, ValueError, KeyError), open(alive, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owner = read_json(folder / OWNER, MAX_BYTES)
                if owner["coordinator"] == self._wanted.coordinator:
                    self._coordinator.give_back(str(owner["name"]))
                    shutil.rmtree(folder)


def _session_ended(wait_s: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)
