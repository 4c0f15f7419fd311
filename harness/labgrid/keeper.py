"""Holds places of a labgrid lab for one session, in a process of its own.

labgrid lets nobody's place go because a client died, so somebody must outlive the session: its
stdin, which the session keeps open, ends with the session, however that dies. And gRPC's threads
stay out of a process that runs tests. Nothing is asked of it after its start: it answers in lines
of JSON on stdout, and then in files of its folder, which the session's other processes read, too.

A place names exporter, group and class of its resources, each perhaps with a wildcard. In a lab of
40,000 places nobody can hold each of them against all resources.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import secrets
import select
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import grpc
from labgrid.remote.common import Place as LabgridPlace
from labgrid.remote.generated import (
    labgrid_coordinator_pb2 as pb,
    labgrid_coordinator_pb2_grpc as rpc,
)
from labgrid.util import labgrid_version

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.outgoing_text import counted
from harness.core.whole_file import read_json
from harness.labgrid.session import (
    ALIVE,
    HELD,
    MAX_BYTES,
    OWNER,
    Place,
    PlaceRequest,
    Service,
    changes,
    lost_file,
    no_place,
    places_of,
    tags_there,
    tell,
    waiting_text,
)

Key = tuple[str, str, str, str]
"""Exporter, group, class and name."""

_Value = TypeVar("_Value")
_WILD: Final = frozenset("*?[")


class Resources(Generic[_Value]):
    """Resources by exporter and group."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, dict[tuple[str, str], _Value]]] = {}

    def put(self, key: Key, value: _Value) -> _Value | None:
        """Takes a resource that is new or has changed; returns what it was before."""
        exporter, group, kind, name = key
        found = self._of.setdefault(exporter, {}).setdefault(group, {})
        before = found.get((kind, name))
        found[kind, name] = value
        return before

    def drop(self, exporter: str, group: str, name: str) -> list[_Value]:
        """Drops the resources of a name, of whatever class; returns them."""
        found = self._of.get(exporter, {}).get(group, {})
        return [found.pop(key) for key in [key for key in found if key[1] == name]]

    def near(self, patterns: Iterable[tuple[str, str]]) -> list[tuple[Key, _Value]]:
        """All that patterns of (exporter, group) can mean, in the order of their keys."""
        found: dict[Key, _Value] = {}
        for exporter, group in patterns:
            for one in _keys(self._of, exporter):
                for other in _keys(self._of[one], group):
                    for (kind, name), value in self._of[one][other].items():
                        found[one, other, kind, name] = value
        return sorted(found.items(), key=lambda item: item[0])


def _keys(held: dict[str, _Value], pattern: str) -> Iterator[str]:
    """The keys that a pattern may match: one if it has no wildcard, else all."""
    if _WILD.isdisjoint(pattern):
        if pattern in held:
            yield pattern
    else:
        yield from held


_ANSWER_S: Final = 10.0
# as labgrid's own client has them: a coordinator that stands still is noticed within 18 s
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 7500),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.ping_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
)
_AWAY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# of those that labgrid's client can switch, all whose name leaves no doubt what they switch
_POWER_PORTS: Final = frozenset(
    {
        "NetworkPowerPort",
        "NetworkSiSPMPowerPort",
        "NetworkUSBPowerPort",
        "NetworkYKUSHPowerPort",
        "PDUDaemonPort",
        "TasmotaPowerPort",
    }
)
_STATES: Final = ("waiting", "allocated", "acquired", "expired", "invalid")


MAX_SAID_BYTES: Final = 32 << 20
"""So many bytes of places and resources are kept; a lab of 10,000 places has a tenth of that."""


class Away(InfraError):
    """The coordinator does not answer, now."""


class Unlike(Away):
    """What listens there does not speak as a coordinator does, now."""


class Refused(InfraError):
    """The coordinator answered and said no."""


class Coordinator:
    """One connection. What it says of places and resources is followed by a thread."""

    def __init__(self, address: str, name: str) -> None:
        """Connects as `name` ("host/user"). Raises Away, and ConfigError for no such service."""
        self.address = address
        self._places: dict[str, Any] = {}
        self._resources = Resources[Any]()
        self._said: queue.Queue[Any] = queue.Queue()
        self._synced, self._down = threading.Event(), threading.Event()
        self._why: grpc.RpcError | None = None
        self._said_bytes, self._says_too_much = 0, False
        self._lock = threading.Lock()
        self._asked = 0
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._stub = rpc.CoordinatorStub(self._channel)
        self._stream = self._stub.ClientStream(iter(self._said.get, None))
        threading.Thread(target=self._follow, daemon=True).start()
        startup = pb.StartupDone(version=labgrid_version(), name=name)
        self._said.put(pb.ClientInMessage(startup=startup))
        self._said.put(pb.ClientInMessage(subscribe=pb.Subscribe(all_places=True)))
        self._said.put(pb.ClientInMessage(subscribe=pb.Subscribe(all_resources=True)))
        try:
            self._sync()
        except HarnessError:
            self.close()
            raise

    @property
    def is_down(self) -> bool:
        return self._down.is_set()

    def close(self) -> None:
        """Ends the connection; places stay as they are."""
        self._said.put(None)
        self._stream.cancel()
        self._channel.close()

    def places(self) -> list[Place]:
        """All places, as they are now."""
        with self._lock:
            return [self._place(one) for one in self._places.values()]

    def place(self, name: str) -> Place | None:
        """One of them; None if there is none of that name."""
        with self._lock:
            said = self._places.get(name)
            return None if said is None else self._place(said)

    def reserve(self, filters: dict[str, str]) -> str:
        """Queues for a place; the reservation's token."""
        main = {"main": pb.Reservation.Filter(filter=filters)}
        request = pb.CreateReservationRequest(filters=main)
        return str(self._ask(self._stub.CreateReservation, request).reservation.token)

    def poll(self, token: str) -> tuple[str, str]:
        """Keeps a reservation; its state, and its place if it is allocated one."""
        request = pb.PollReservationRequest(token=token)
        found = self._ask(self._stub.PollReservation, request).reservation
        state = _STATES[found.state] if 0 <= found.state < len(_STATES) else "invalid"
        return state, str(found.allocations.get("main", ""))

    def cancel(self, token: str) -> None:
        """Ends a reservation; one that is not there is fine."""
        with contextlib.suppress(Refused):
            self._ask(self._stub.CancelReservation, pb.CancelReservationRequest(token=token))

    def acquire(self, place: str) -> None:
        """Takes a place. Raises Refused if somebody has it, or something of it."""
        self._ask(self._stub.AcquirePlace, pb.AcquirePlaceRequest(placename=place))
        self._sync()

    def give_back(self, holder: str) -> None:
        """Ends all reservations of `holder` and gives back all places that it has."""
        answer = self._ask(self._stub.GetReservations, pb.GetReservationsRequest())
        for one in answer.reservations:
            if one.owner == holder:
                self.cancel(one.token)
        self._sync()
        for place in self.places():
            if place.acquired == holder:
                request = pb.ReleasePlaceRequest(placename=place.name, fromuser=holder)
                with contextlib.suppress(Refused):
                    self._ask(self._stub.ReleasePlace, request)

    def _sync(self) -> None:
        """Waits until all that the coordinator knows by now is known here, too."""
        self._asked += 1
        self._synced.clear()
        self._said.put(pb.ClientInMessage(sync=pb.Sync(id=self._asked)))
        if self._down.is_set() or not self._synced.wait(_ANSWER_S) or self._down.is_set():
            raise self._problem(self._why)

    def _ask(self, method: Callable[..., Any], request: object) -> Any:
        try:
            return method(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            raise self._problem(error) from None

    def _problem(self, error: grpc.RpcError | None) -> InfraError | ConfigError:
        if self._says_too_much:
            most = MAX_SAID_BYTES >> 20
            return InfraError(
                f"labgrid's coordinator at {self.address} says more than a lab can be: over {most} "
                "MB of places and resources"
            )
        code = error.code() if error is not None else None
        why = (error.details() if error is not None else None) or "no answer"
        told = (
            f"what listens at {self.address} is no coordinator that labgrid "
            f"{labgrid_version()} can talk to: {why}"
        )
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return ConfigError(told, field="labgrid.coordinator")
        if code in _AWAY and "parsing HTTP/2" in why:
            return Unlike(told)
        if code in (None, *_AWAY):
            return Away(f"labgrid's coordinator at {self.address} does not answer: {why}")
        return Refused(f"labgrid's coordinator at {self.address}: {why}")

    def _follow(self) -> None:
        try:
            for message in self._stream:
                with self._lock:
                    for update in message.updates:
                        self._take(update)
                if self._said_bytes > MAX_SAID_BYTES:
                    self._says_too_much = True
                    self._stream.cancel()
                    break
                if message.sync.id == self._asked:
                    self._synced.set()
        except grpc.RpcError as error:
            self._why = error
        finally:
            self._down.set()
            self._synced.set()

    def _take(self, update: Any) -> None:
        kind = update.WhichOneof("kind")
        if kind == "place":
            self._count(self._places.get(update.place.name), update.place)
            self._places[update.place.name] = update.place
        elif kind == "del_place":
            self._count(self._places.pop(update.del_place, None), None)
        elif kind == "resource":
            path = update.resource.path
            key = path.exporter_name, path.group_name, update.resource.cls, path.resource_name
            self._count(self._resources.put(key, update.resource), update.resource)
        elif kind == "del_resource":
            path = update.del_resource
            for gone in self._resources.drop(
                path.exporter_name, path.group_name, path.resource_name
            ):
                self._count(gone, None)

    def _count(self, before: Any, what: Any) -> None:
        for one, sign in ((before, -1), (what, 1)):
            self._said_bytes += sign * one.ByteSize() if one is not None else 0

    def _place(self, said: Any) -> Place:
        services, power_port = [], ""
        for kind, name, params in self._matched(said):
            if kind == "NetworkService":
                address, port = (params[one] for one in ("address", "port"))
                services.append(Service(name, address.string_value, int(port.uint_value)))
            elif kind in _POWER_PORTS:
                power_port = power_port or name
        return Place(said.name, dict(said.tags), tuple(services), said.acquired, power_port)

    def _matched(self, said: Any) -> Iterator[tuple[str, str, Any]]:
        """Class, name and parameters of the resources that a place has now."""
        place = LabgridPlace.from_pb2(said)
        patterns = ((match.exporter, match.group) for match in place.matches)
        for key, resource in self._resources.near(patterns):
            match = place.getmatch(key)
            if resource.avail and match is not None:
                yield key[2], match.rename or key[3], resource.params


_LOOK_S: Final = 0.5
_POLL_S: Final = 1.0
_RESTART_S: Final = 20.0
"""So long a coordinator may take to start anew before a run that begins."""
_LEAVE_S: Final = 15.0
"""So long a lost place is left to whoever took it: a reservation would shut them out."""
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


@dataclass
class _Lost:
    """A place that was taken away, when, and the reservation that it is queued for by."""

    place: Place
    since: float
    token: str = ""


class Keeper:
    """The places of one session, from the queue to their release."""

    def __init__(self, wanted: PlaceRequest, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._user, self._name = own_names()
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            if wanted.places:  # else there is no folder
                self._name = str(read_json(folder / OWNER, MAX_BYTES)["name"])
        self._held: dict[str, Place] = {}
        self._lost: dict[str, _Lost] = {}
        self._tokens: list[str] = []
        self._passed_over: dict[str, str] = {}
        self._is_new = False
        self._told = ""
        self._until = time.monotonic() + wanted.wait_s
        try:
            self._coordinator = self._first_contact()
        except Unlike as error:  # later it may be one that is started anew
            raise ConfigError(str(error), field="labgrid.coordinator") from None

    def _first_contact(self) -> Coordinator:
        """The coordinator; one that is just started anew costs no night, if there is time."""
        until = time.monotonic() + min(self._wanted.wait_s, _RESTART_S)
        told = not self._wanted.places
        while True:
            try:
                return Coordinator(self._wanted.coordinator, self._name)
            except Away as away:
                if not self._wanted.places or time.monotonic() >= until or _session_ended(_POLL_S):
                    raise
                if not told:
                    tell(notice=f"{away}; asked again for up to {_RESTART_S:g} s")
                    told = True

    def run(self) -> None:
        """Takes what is wanted, keeps it until stdin ends, and gives it back."""
        goes_on = self._wanted.places > 0 and self._goes_on()
        fitting = [] if goes_on else self._fitting()
        if not self._wanted.places:
            tell(user=self._user, places=[asdict(place) for place in fitting])
            self._coordinator.close()
            return
        owner = {"name": self._name, "coordinator": self._wanted.coordinator}
        (self._folder / OWNER).write_text(json.dumps(owner))
        self._clean_up_after_the_dead()
        try:
            if goes_on or self._acquire(min(self._wanted.places, len(fitting))):
                self._watch()
        finally:
            self._release()

    def _goes_on(self) -> bool:
        """Takes over from a keeper of this session that died; False if there was none."""
        try:
            held = places_of(read_json(self._folder / HELD, MAX_BYTES))
        except (OSError, ValueError):
            return False
        for place in held:
            if len(changes(self._folder, place.name)) % 2:
                self._lost[place.name] = _Lost(place, time.monotonic())
            else:
                self._held[place.name] = place
        return True

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
            tell(notice=f"goes on with {len(self._held)} of {counted(number, 'place')} of labgrid")
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
        for name, lost in tuple(self._lost.items()):
            if time.monotonic() >= lost.since + _LEAVE_S:
                self._queue_again(name, lost)

    def _holder(self, name: str) -> str | None:
        place = self._coordinator.place(name)
        return None if place is None else place.acquired

    def _lose(self, name: str, holder: str | None) -> None:
        self._lost[name] = _Lost(self._held.pop(name), time.monotonic())
        what = "was removed" if holder is None else f"was given to {holder}"
        why = "was released by somebody" if holder == "" else what
        self._say_of(name, f"place {name} of labgrid was taken from this run: it {why}")

    def _queue_again(self, name: str, lost: _Lost) -> None:
        """Queues for a lost place, as long as for a first one; it must come back as it was."""
        place, state = self._coordinator.place(name), ""
        if lost.token:
            with contextlib.suppress(Refused):
                state, _ = self._coordinator.poll(lost.token)
        if time.monotonic() >= lost.since + _LEAVE_S + self._wanted.wait_s:
            self._forget(name, lost)
        elif state not in ("waiting", "allocated", "acquired"):
            filters = {**self._wanted.filters, "name": name}
            lost.token = self._coordinator.reserve(filters)
        elif state != "waiting" and place is not None and place.services:
            if (place.services, place.tags) != (lost.place.services, lost.place.tags):
                self._forget(name, lost)
                return
            with contextlib.suppress(Refused):  # something of it is in use, as part of another
                if place.acquired != self._name:  # as after an answer that was lost
                    self._coordinator.acquire(name)
                self._held[name] = place
                del self._lost[name]
                self._say_of(name, f"place {name} of labgrid is this run's again")
            self._coordinator.cancel(lost.token)

    def _forget(self, name: str, lost: _Lost) -> None:
        del self._lost[name]
        self._coordinator.cancel(lost.token)

    def _say_of(self, name: str, what: str) -> None:
        with lost_file(self._folder, name).open("a") as file:
            file.write(f"{what}\n")

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
