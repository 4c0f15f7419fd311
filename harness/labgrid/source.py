"""`labgrid` of devices.yaml, and what its places are as devices of the lab."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictInt, WithJsonSchema
from pydantic_core import PydanticCustomError

from harness.core.outgoing_text import counted
from harness.core.socs import Target
from harness.core.yaml_document import Name, Text, matching
from harness.lab.config_fields import Word, Workdir
from harness.lab.device_config import DeviceSource, SourceDevice
from harness.labgrid.session import (
    FoundPlace,
    FoundPlaces,
    Place,
    PlaceRequest,
    Session,
    found_places,
)
from harness.transport.ssh_connection import is_port

_log = logging.getLogger(__name__)

_COORDINATOR = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_KEY = re.compile(r"[a-z][a-z0-9_]+", re.ASCII)
_PORT = 20408

_is_coordinator = matching(
    _COORDINATOR, "coordinator", "must be HOST or HOST:PORT of labgrid's coordinator"
)


def _coordinator(text: str) -> str:
    if not is_port(_COORDINATOR.fullmatch(_is_coordinator(text))[1]):  # type: ignore[index]
        raise PydanticCustomError("coordinator", "the port must be 1 to 65535")
    return text


def _filters(filters: object) -> object:
    if isinstance(filters, Mapping):
        for key, value in filters.items():
            is_value = isinstance(value, str | int) and not isinstance(value, bool)
            if not (_KEY.fullmatch(key) and is_value):
                raise PydanticCustomError(
                    "filters", "must be tags of places: lower-case names, each with a text"
                )
        return {key: str(value) for key, value in filters.items()}
    return filters


_IN_SCHEMA = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
Filters = Annotated[dict[str, str], BeforeValidator(_filters), WithJsonSchema(_IN_SCHEMA)]


class PlaceDevice(BaseModel, extra="forbid", frozen=True):
    """Defaults for the devices of all places; a place's tags of the same names win."""

    soc: Word | None = None
    """The SoC, as for a device; or tag a place with `soc`."""

    target: Target | None = None
    """The target, as for a device; or tag a place with `target`."""

    pool: Name | None = None
    """The pool, as for a device; or tag a place with `pool`."""

    workdir: Workdir | None = None
    """The work folder, as for a device."""

    tags: tuple[Word, ...] = ()
    """The tags, as for a device."""


class LabgridConfig(DeviceSource):
    """Places of a labgrid lab, whose devices are reserved for each run."""

    section = "labgrid"

    coordinator: Annotated[Text, AfterValidator(_coordinator)]
    """Its coordinator, as HOST or HOST:PORT; by default port 20408."""

    filters: Filters = Field(default_factory=dict)
    """The tags that a place must have; `name` asks for one place."""

    places: Annotated[StrictInt, Field(ge=1, le=1000)] = 1
    """The most places for a run, if as many are free when it gets its first."""

    wait_s: Annotated[float, Field(ge=0, le=604800)] = 600.0
    """The longest wait (seconds) for the first place."""

    device: PlaceDevice = PlaceDevice()
    """The facts about the devices of all places."""

    @property
    def request(self) -> PlaceRequest:
        bare = self.coordinator.rpartition("]")[2]
        address = self.coordinator if ":" in bare else f"{self.coordinator}:{_PORT}"
        return PlaceRequest(address, self.filters, self.places, self.wait_s)

    @property
    def most(self) -> int:
        return self.places

    def find(self) -> Iterator[SourceDevice]:
        return self.devices_of(found_places(self.request))

    def reserve(self, until: ExitStack) -> Iterator[SourceDevice]:
        session = Session(self.request)
        until.callback(session.close)
        return self.devices_of(session.places)

    def devices_of(self, search: FoundPlaces) -> Iterator[SourceDevice]:
        """Yield the devices of places; others are left out with a warning."""
        for place in search.places:
            try:
                entry = device_entry(place, self.device)
            except ValueError as error:
                _log.warning(f"labgrid place {place.name} is left out: {error}")
                continue
            yield SourceDevice(entry, FoundPlace(place, search))


def device_entry(place: Place, known: PlaceDevice) -> dict[str, Any]:
    """Return the entry of `devices` for a place.

    A service is an adb server if the place has a tag `adb_serial`, else the device's own adbd.
    Raises ValueError if the place cannot be used as a device.
    """
    adb_services = [service for service in place.services if service.name == "adb"]
    services = adb_services or list(place.services)
    if len(services) != 1:
        problem = (
            f"{counted(len(services), 'service')}; exactly one must be named adb"
            if services
            else "no service"
        )
        raise ValueError(f"its exporter shows {problem}")
    host = f"[{services[0].address}]" if ":" in services[0].address else services[0].address
    address, serial = f"{host}:{services[0].port}", place.tags.get("adb_serial")
    tagged = {key: place.tags[key] for key in ("soc", "target", "pool") if key in place.tags}
    name = re.sub(r"[^a-z0-9._-]", "-", place.name.lower())
    return {
        "name": name,
        **known.model_dump(exclude_defaults=True),
        **tagged,
        **({"address": f"adb://{address}/{serial}"} if serial else {"serial": address}),
    }
