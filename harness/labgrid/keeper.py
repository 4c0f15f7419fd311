"""Holds places of a labgrid lab for one session, in a process of its own.

If another user waits for a place, they get it between two cases: the keeper takes its lease as a
person would, and keeps that until it has got the place back.

labgrid does not release a place when its client dies, so a process must outlive the session: its
stdin, which the session keeps open, ends with the session, however that dies. And gRPC's threads
stay out of a process that runs tests. It gets no requests after its start: it answers in lines
of JSON on stdout, and then in files of its folder, which the session's other processes read, too.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from labgrid.remote.common import Place as LabgridPlace
from labgrid.remote.generated import (
    labgrid_coordinator_pb2 as pb,
    labgrid_coordinator_pb2_grpc as rpc,
)
from labgrid.util import labgrid_version

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import read_json
from harness.core.outgoing_text import counted
from harness.core.state_folders import lease_root
from harness.lab.lease import Leases
from harness.labgrid.session import (
    ALIVE,
    HELD,
    MAX_BYTES,
    OWNER,
    Place,
    PlaceRequest,
    Service,
    lease_key,
    lost_file,
    send,
    waiting_text,
)

_WILD: Final = frozenset("*?[")
_ANSWER_S: Final = 10.0
# as in labgrid's own client: a coordinator that hangs is noticed within 18 s
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
# those ports of labgrid's client that are certain to switch the power of one device
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


MAX_RECEIVED_BYTES: Final = 32 << 20
"""Limit on places and resources, in bytes; a lab of 10,000 places needs a tenth of it."""


class CoordinatorUnreachable(InfraError):
    """The coordinator does not answer at present."""


class NotACoordinator(CoordinatorUnreachable):
    """The server at this address does not answer as a labgrid coordinator."""


class CoordinatorRefused(InfraError):
    """The coordinator refused a request."""


class Waiting(NamedTuple):
    """A reservation that waits for a place."""

    owner: str
    filters: Mapping[str, str]


def places_to_lend(queue: Iterable[Waiting], places: Sequence[Place]) -> dict[str, str]:
    """Return for each of our places that others wait for who is to have it next (pure).

    The coordinator lets nobody wait for whom a place is free.
    """
    borrowers: dict[str, str] = {}
    for owner, filters in queue:
        fitting = [place.name for place in places if place.fits(filters)]
        if (name := next((name for name in fitting if name not in borrowers), None)) is not None:
            borrowers[name] = owner
    return borrowers


def _state(reservation: Any) -> str:
    return _STATES[reservation.state] if 0 <= reservation.state < len(_STATES) else "invalid"


class Coordinator:
    """A connection to the coordinator. A thread follows its updates of places and resources."""

    def __init__(self, address: str, name: str) -> None:
        """Connect as `name` ("host/user").

        Raises CoordinatorUnreachable, and ConfigError for no such service.
        """
        self.address = address
        self._places: dict[str, Any] = {}
        self._resources: dict[str, dict[tuple[str, str, str], Any]] = {}
        self._outbox: queue.Queue[Any] = queue.Queue()
        self._synced, self._down = threading.Event(), threading.Event()
        self._why: grpc.RpcError | None = None
        self._received_bytes, self._is_too_large = 0, False
        self._lock = threading.Lock()
        self._sync_id = 0
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._stub = rpc.CoordinatorStub(self._channel)
        self._stream = self._stub.ClientStream(iter(self._outbox.get, None))
        threading.Thread(target=self._follow, daemon=True).start()
        startup = pb.StartupDone(version=labgrid_version(), name=name)
        self._outbox.put(pb.ClientInMessage(startup=startup))
        self._outbox.put(pb.ClientInMessage(subscribe=pb.Subscribe(all_places=True)))
        self._outbox.put(pb.ClientInMessage(subscribe=pb.Subscribe(all_resources=True)))
        try:
            self._sync()
        except HarnessError:
            self.close()
            raise

    @property
    def is_down(self) -> bool:
        return self._down.is_set()

    def close(self) -> None:
        """End the connection; places stay as they are."""
        self._outbox.put(None)
        self._stream.cancel()
        self._channel.close()

    def places(self) -> list[Place]:
        """Return the present state of all places."""
        with self._lock:
            return [self._place(place) for place in self._places.values()]

    def place(self, name: str) -> Place | None:
        """Return a place; None if there is none of that name."""
        with self._lock:
            raw = self._places.get(name)
            return None if raw is None else self._place(raw)

    def reserve(self, filters: dict[str, str]) -> str:
        """Queue for a place. Return the reservation's token."""
        main = {"main": pb.Reservation.Filter(filter=filters)}
        request = pb.CreateReservationRequest(filters=main)
        return str(self._call(self._stub.CreateReservation, request).reservation.token)

    def poll(self, token: str) -> tuple[str, str]:
        """Renew a reservation. Return its state, and its place if one is allocated."""
        request = pb.PollReservationRequest(token=token)
        reservation = self._call(self._stub.PollReservation, request).reservation
        return _state(reservation), str(reservation.allocations.get("main", ""))

    def cancel(self, token: str) -> None:
        """End a reservation; ignore one that does not exist."""
        with contextlib.suppress(CoordinatorRefused):
            self._call(self._stub.CancelReservation, pb.CancelReservationRequest(token=token))

    def acquire(self, place: str) -> None:
        """Acquire a place. Raises CoordinatorRefused if it, or a resource of it, is held."""
        self._call(self._stub.AcquirePlace, pb.AcquirePlaceRequest(placename=place))
        self._sync()

    def waiting(self) -> list[Waiting]:
        """Return the reservations that wait for a place, the first one first."""
        answer = self._call(self._stub.GetReservations, pb.GetReservationsRequest())
        waiting = [entry for entry in answer.reservations if _state(entry) == "waiting"]
        waiting.sort(key=lambda entry: (-entry.prio, entry.created))
        return [Waiting(entry.owner, dict(entry.filters["main"].filter)) for entry in waiting]

    def release(self, place: str, holder: str) -> None:
        """Release a place if that is its holder."""
        request = pb.ReleasePlaceRequest(placename=place, fromuser=holder)
        with contextlib.suppress(CoordinatorRefused):
            self._call(self._stub.ReleasePlace, request)

    def give_back(self, holder: str) -> None:
        """End all reservations of `holder` and release all its places."""
        answer = self._call(self._stub.GetReservations, pb.GetReservationsRequest())
        for reservation in answer.reservations:
            if reservation.owner == holder:
                self.cancel(reservation.token)
        self._sync()
        for place in self.places():
            if place.acquired == holder:
                self.release(place.name, holder)

    def _sync(self) -> None:
        """Wait until the coordinator's present state has arrived here."""
        self._sync_id += 1
        self._synced.clear()
        self._outbox.put(pb.ClientInMessage(sync=pb.Sync(id=self._sync_id)))
        if self._down.is_set() or not self._synced.wait(_ANSWER_S) or self._down.is_set():
            raise self._problem(self._why)

    def _call(self, method: Callable[..., Any], request: object) -> Any:
        try:
            return method(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            raise self._problem(error) from None

    def _problem(self, error: grpc.RpcError | None) -> InfraError | ConfigError:
        if self._is_too_large:
            limit = MAX_RECEIVED_BYTES >> 20
            return InfraError(
                f"labgrid's coordinator at {self.address} sent over {limit} MB of places and "
                "resources"
            )
        code = error.code() if error is not None else None
        why = (error.details() if error is not None else None) or "no answer"
        text = (
            f"the server at {self.address} is not a coordinator that labgrid "
            f"{labgrid_version()} supports: {why}"
        )
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return ConfigError(text, field="labgrid.coordinator")
        if code in _AWAY and "parsing HTTP/2" in why:
            return NotACoordinator(text)
        where = f"labgrid's coordinator at {self.address}"
        if code in (None, *_AWAY):
            return CoordinatorUnreachable(f"{where} does not answer: {why}")
        return CoordinatorRefused(f"{where}: {why}")

    def _follow(self) -> None:
        try:
            for message in self._stream:
                with self._lock:
                    for update in message.updates:
                        self._apply(update)
                if self._received_bytes > MAX_RECEIVED_BYTES:
                    self._is_too_large = True
                    self._stream.cancel()
                    break
                if message.sync.id == self._sync_id:
                    self._synced.set()
        except grpc.RpcError as error:
            self._why = error
        finally:
            self._down.set()
            self._synced.set()

    def _apply(self, update: Any) -> None:
        kind = update.WhichOneof("kind")
        if kind == "place":
            self._count(self._places.get(update.place.name), update.place)
            self._places[update.place.name] = update.place
        elif kind == "del_place":
            self._count(self._places.pop(update.del_place, None), None)
        elif kind == "resource":
            path = update.resource.path
            resources = self._resources.setdefault(path.exporter_name, {})
            key = path.group_name, update.resource.cls, path.resource_name
            self._count(resources.get(key), update.resource)
            resources[key] = update.resource
        elif kind == "del_resource":
            path = update.del_resource
            resources = self._resources.get(path.exporter_name, {})
            for key in tuple(resources):
                if (key[0], key[2]) == (path.group_name, path.resource_name):
                    self._count(resources.pop(key), None)

    def _count(self, before: Any, after: Any) -> None:
        for message, sign in ((before, -1), (after, 1)):
            self._received_bytes += sign * message.ByteSize() if message is not None else 0

    def _place(self, raw: Any) -> Place:
        services, power_port = [], ""
        for kind, name, params in self._matched(raw):
            if kind == "NetworkService":
                address, port = (params[key] for key in ("address", "port"))
                services.append(Service(name, address.string_value, int(port.uint_value)))
            elif kind in _POWER_PORTS:
                power_port = power_port or name
        return Place(raw.name, dict(raw.tags), tuple(services), raw.acquired, power_port)

    def _matched(self, raw: Any) -> Iterator[tuple[str, str, Any]]:
        place = LabgridPlace.from_pb2(raw)
        exporters = {match.exporter for match in place.matches}
        if any(not _WILD.isdisjoint(pattern) for pattern in exporters):
            exporters = set(self._resources)
        for exporter in sorted(exporters):
            for key, resource in sorted(self._resources.get(exporter, {}).items()):
                match = place.getmatch((exporter, *key))
                if resource.avail and match is not None:
                    yield key[1], match.rename or key[2], resource.params


_LOOK_S: Final = 0.5
_POLL_S: Final = 1.0
_OTHERS_S: Final = 5.0
"""The time to wait for more places once the session holds one, in place of `wait_s`."""
RELEASE_S: Final = 120.0
"""The time to retry the release of places at a coordinator that does not answer."""
_LOAN_S: Final = 86400.0
"""The longest time that cases wait for a place that another has."""


def user_and_session_names() -> tuple[str, str]:
    """Return this user's name in labgrid's own client, and in this session.

    The second is unique: two sessions of a user must not take each other's places
    for their own. Each has one slash at most, as labgrid's client requires.
    """
    host = os.environ.get("LG_HOSTNAME", socket.gethostname())
    user = os.environ.get("LG_USERNAME", getuser())
    return f"{host}/{user}", f"{host}+qnn-{secrets.token_hex(6)}/{user}"


@dataclass
class _Loan:
    """A place that another shall have: `leases` keep our cases off it.

    `token` is the reservation by which we get it back, "" before it is released.
    """

    leases: Leases
    token: str = ""


class Keeper:
    """The places of one session, from the queue to their release."""

    def __init__(self, request: PlaceRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder
        self._user, self._name = user_and_session_names()
        self._places: dict[str, Place] = {}
        self._tokens: list[str] = []
        self._passed_over: dict[str, str] = {}
        self._loans: dict[str, _Loan] = {}
        self._is_new = False
        self._last_notice = ""
        self._until = time.monotonic() + request.wait_s
        try:
            self._coordinator = Coordinator(request.coordinator, self._name)
        except NotACoordinator as error:  # later it may be a coordinator that restarts
            raise ConfigError(str(error), field="labgrid.coordinator") from None

    def run(self) -> None:
        """Acquire the requested places, hold them until stdin ends, and release them."""
        fitting = self._fitting()
        if not self._request.places:
            send(user=self._user, places=[asdict(place) for place in fitting])
            self._coordinator.close()
            return
        owner = {"name": self._name, "coordinator": self._request.coordinator}
        (self._folder / OWNER).write_text(json.dumps(owner))
        self._release_abandoned()
        try:
            if self._acquire(min(self._request.places, len(fitting))):
                self._watch()
        finally:
            for name in tuple(self._loans):
                self._end_loan(name)
            self._release()

    def _fitting(self) -> list[Place]:
        places = self._coordinator.places()
        fitting = [place for place in places if place.fits(self._request.filters)]
        if not fitting:
            wanted = " ".join(f"{key}={value}" for key, value in self._request.filters.items())
            coordinator = f"the coordinator at {self._request.coordinator}"
            problem = f"no place of {coordinator} has {wanted}"
            if not places:
                problem = f"{coordinator} has no places"
            tags = {f"{key}={value}" for place in places for key, value in place.tags.items()}
            raise ConfigError(problem, field="labgrid.filters", choices=sorted(tags) or None)
        return fitting

    def _acquire(self, number: int) -> bool:
        """Acquire up to `number` places, at least one. Return False if the session ended."""
        self._tokens = [self._reserve() for _ in range(number)]
        until = self._until
        while self._is_waiting:
            had_places = bool(self._places)
            self._attempt(self._check_reservations)
            if self._places and not had_places:
                until = min(until, time.monotonic() + _OTHERS_S)
            if not self._is_waiting or time.monotonic() >= until:
                break
            if _session_ended(_POLL_S):
                return False
        if not self._places and self._passed_over and not self._tokens:
            names = ", ".join(self._passed_over)
            limit = f"within {self._request.wait_s:g} s"
            raise InfraError(f"no labgrid exporter offered a network service for {names} {limit}")
        if not self._places:
            raise InfraError(
                f"no labgrid place became free within {self._request.wait_s:g} s"
                + (f" ({self._last_notice})" if self._last_notice else "")
            )
        for token in (*self._tokens, *self._passed_over.values()):
            self._coordinator.cancel(token)
        if self._tokens:
            places = counted(number, "place")
            send(notice=f"continuing with {len(self._places)} of {places} from labgrid")
        self._tokens.clear()
        acquired = [asdict(place) for place in self._places.values()]
        text = json.dumps({"wanted": asdict(self._request), "places": acquired})
        (self._folder / HELD).write_text(text)
        send(user=self._name, places=acquired)
        return True

    @property
    def _is_waiting(self) -> bool:
        return bool(self._tokens or (self._passed_over and not self._places))

    def _check_reservations(self) -> None:
        for name in tuple(self._passed_over):
            place = self._coordinator.place(name)
            if place is not None and place.services:
                self._tokens.append(self._passed_over.pop(name))
        for token in tuple(self._tokens):
            self._advance(token)
        for token in self._passed_over.values():
            with contextlib.suppress(CoordinatorRefused):
                self._coordinator.poll(token)
        self._report_waiting()

    def _reserve(self) -> str:
        return self._coordinator.reserve(dict(self._request.filters))

    def _advance(self, token: str) -> None:
        """Renew a reservation, and acquire its place once that is allocated."""
        try:
            state, name = self._coordinator.poll(token)
        except CoordinatorRefused:  # a coordinator that was restarted has no reservations
            state, name = "expired", ""
        if state == "waiting":
            return
        self._tokens.remove(token)
        if state not in ("allocated", "acquired"):
            self._tokens.append(self._reserve())
            return
        place = self._coordinator.place(name)
        if place is None or not place.services:
            # stays reserved for now, so that the next reservation gets another place
            self._passed_over[name] = token
            send(notice=f"labgrid place {name} is skipped: its exporter offers no network service")
            in_use = len(self._tokens) + len(self._passed_over) + len(self._places)
            if in_use < len(self._fitting()):
                self._tokens.append(self._reserve())
            return
        try:
            self._coordinator.acquire(name)
            self._places[name] = place
        except CoordinatorRefused as error:
            send(notice=f"labgrid place {name} cannot be acquired yet: {error}")
            self._tokens.append(self._reserve())
        self._coordinator.cancel(token)

    def _report_waiting(self) -> None:
        if not self._tokens:
            return
        filters, places = self._request.filters, self._coordinator.places()
        others = {place.acquired for place in places if place.fits(filters)} - {"", self._name}
        wait_s = min(self._request.wait_s, _OTHERS_S) if self._places else self._request.wait_s
        notice = waiting_text(filters, others, wait_s)
        if notice != self._last_notice:
            self._last_notice = notice
            send(notice=notice)

    def _watch(self) -> None:
        answered = time.monotonic()
        while not _session_ended(_LOOK_S):
            with contextlib.suppress(HarnessError):
                if self._attempt(self._check_places):
                    answered = time.monotonic()
                    if self._attempt(self._lend):
                        continue
            is_lost = time.monotonic() - answered > RELEASE_S
            for name, loan in tuple(self._loans.items()):
                if not loan.token:
                    self._end_loan(name)
                elif is_lost:
                    self._lose(
                        name, "the coordinator does not answer, and another user has the place"
                    )

    def _lend(self) -> None:
        """Give places to others who wait, each between two cases, and get them back."""
        for name, loan in tuple(self._loans.items()):
            if loan.token:
                with contextlib.suppress(CoordinatorRefused):
                    self._get_back(name, loan)
        places = [place for name, place in self._places.items() if not self._is_lent(name)]
        places.sort(key=lambda place: place.name not in self._loans)
        others = (entry for entry in self._coordinator.waiting() if entry.owner != self._name)
        borrowers = places_to_lend(others, places)
        for name in self._loans.keys() - borrowers.keys():
            if not self._is_lent(name):
                self._end_loan(name)
        for name, owner in borrowers.items():
            if name not in self._loans:
                purpose = f"labgrid: waits for {owner[:100]}"
                self._loans[name] = _Loan(Leases(lease_root(), purpose=purpose, loan_s=_LOAN_S))
            loan, key = self._loans[name], lease_key(self._folder, name)
            if loan.leases.try_acquire(key, name) is not None:
                loan.leases.stand_in_line(key)
                continue
            loan.token = self._coordinator.reserve({"name": name})
            self._get_back(name, loan)

    def _get_back(self, name: str, loan: _Loan) -> None:
        try:
            state, _ = self._coordinator.poll(loan.token)
        except CoordinatorRefused:
            state = "expired"
        holder = self._holder(name)
        if holder is None:
            self._lose(name, "the place was removed")
        elif state in ("allocated", "acquired"):
            if state == "allocated":
                self._coordinator.acquire(name)
            self._coordinator.cancel(loan.token)
            self._end_loan(name)
        elif state != "waiting":
            loan.token = self._coordinator.reserve({"name": name})
        elif holder == self._name:
            self._coordinator.release(name, holder)

    def _is_lent(self, name: str) -> bool:
        return name in self._loans and bool(self._loans[name].token)

    def _end_loan(self, name: str) -> None:
        if (loan := self._loans.pop(name, None)) is not None:
            loan.leases.close()

    def _lose(self, name: str, why: str) -> None:
        del self._places[name]
        lost = f"this run lost the labgrid place {name}: {why}"
        lost_file(self._folder, name).write_text(lost)
        self._end_loan(name)

    def _check_places(self) -> None:
        for name in [name for name in self._places if not self._is_lent(name)]:
            holder = self._holder(name)
            if holder == "" and self._is_new:
                # a coordinator that was restarted has forgotten the holders
                with contextlib.suppress(CoordinatorRefused):
                    self._coordinator.acquire(name)
                holder = self._holder(name)
            if holder != self._name:
                change = "was removed" if holder is None else f"was given to {holder}"
                why = "was released by somebody" if holder == "" else change
                self._lose(name, f"the place {why}")

    def _holder(self, name: str) -> str | None:
        place = self._coordinator.place(name)
        return None if place is None else place.acquired

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Call an action that uses the coordinator, and return whether that answered."""
        with contextlib.suppress(CoordinatorUnreachable):
            if self._coordinator.is_down:
                self._is_new = True
                self._coordinator.close()
                self._coordinator = Coordinator(self._request.coordinator, self._name)
            action()
            self._is_new = False
            return True
        return False

    def _release(self) -> None:
        """Release everything; if that fails, the next session of this user does it."""
        until = time.monotonic() + RELEASE_S
        while self._folder.exists() and time.monotonic() < until:
            with contextlib.suppress(HarnessError):
                self._attempt(self._give_all_back)
            if self._folder.exists():
                time.sleep(_POLL_S)

    def _give_all_back(self) -> None:
        self._coordinator.give_back(self._name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _release_abandoned(self) -> None:
        """Release the places of this user's sessions whose keepers died, as after a reboot."""
        for alive in self._folder.parent.glob(f"*/{ALIVE}"):
            folder = alive.parent
            with contextlib.suppress(OSError, ValueError, KeyError), open(alive, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owner = read_json(folder / OWNER, MAX_BYTES)
                if owner["coordinator"] == self._request.coordinator:
                    self._coordinator.give_back(str(owner["name"]))
                    shutil.rmtree(folder)


def _session_ended(wait_s: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)
