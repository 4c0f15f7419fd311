"""The coordinator's gRPC service, as far as places are concerned; only the keeper imports it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
from labgrid.remote.common import Place as LabgridPlace
from labgrid.remote.generated import (
    labgrid_coordinator_pb2 as pb,
    labgrid_coordinator_pb2_grpc as rpc,
)
from labgrid.util import labgrid_version

from harness.device.labgrid.place import Place, Service
from harness.device.labgrid.resources import Resources
from harness.ground.errors import ConfigError, HarnessError, InfraError

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
