"""`labgrid:` in devices.yaml, and what a place of labgrid is as a device of the lab (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictInt, WithJsonSchema
from pydantic_core import PydanticCustomError

from harness.device.lab.fields import LabName, Word, Workdir
from harness.device.labgrid.place import Place, Wanted
from harness.device.ssh.login import is_port
from harness.ground.facts.platforms import Target
from harness.ground.yaml_lines.models import Text, matching

_COORDINATOR = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_KEY = re.compile(r"[a-z][a-z0-9_]+", re.ASCII)
_PORT = 20408

_is_coordinator = matching(
    _COORDINATOR, "coordinator", "must be HOST or HOST:PORT of labgrid's coordinator"
)


def _coordinator(text: str) -> str:
    if not is_port(_COORDINATOR.fullmatch(_is_coordinator(text))[1]):  # type: ignore[index]
        raise PydanticCustomError("coordinator", "its port must be one of 1 to 65535")
    return text


def _filters(filters: object) -> object:
    if isinstance(filters, Mapping):
        for key, value in filters.items():
            is_value = isinstance(value, str | int) and not isinstance(value, bool)
            if not (_KEY.fullmatch(key) and is_value):
                raise PydanticCustomError(
                    "filters", "must be tags of places: lower-case words, each with a text"
                )
        return {key: str(value) for key, value in filters.items()}
    return filters


_IN_SCHEMA = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
Filters = Annotated[dict[str, str], BeforeValidator(_filters), WithJsonSchema(_IN_SCHEMA)]


class PlaceDevice(BaseModel, extra="forbid", frozen=True):
    """What is known of the devices of all places; tags of a place of these names win."""

    soc: Word | None = None
    """As of a device; here, or as tag `soc` of a place."""

    target: Target | None = None
    """As of a device; here, or as tag `target` of a place."""

    pool: LabName | None = None
    """As of a device; here, or as tag `pool` of a place."""

    workdir: Workdir | None = None
    """As of a device."""

    tags: tuple[Word, ...] = ()
    """As of a device."""


class LabgridConfig(BaseModel, extra="forbid", frozen=True):
    """Devices that hang on places of a labgrid lab, reserved for each run."""

    coordinator: Annotated[Text, AfterValidator(_coordinator)]
    """Its coordinator, as HOST or HOST:PORT; by default port 20408."""

    filters: Filters = Field(default_factory=dict)
    """The tags that a place must have; `name` asks for one place."""

    places: Annotated[StrictInt, Field(ge=1, le=1000)] = 1
    """How many places a run takes if so many are free when it gets its first."""

    wait_s: Annotated[float, Field(ge=0, le=604800)] = 600.0
    """How long the first place is waited for."""

    device: PlaceDevice = PlaceDevice()
    """What is known of the devices of all places."""

    @property
    def wanted(self) -> Wanted:
        bare = self.coordinator.rpartition("]")[2]
        address = self.coordinator if ":" in bare else f"{self.coordinator}:{_PORT}"
        return Wanted(address, self.filters, self.places, self.wait_s)


def described(place: Place, known: PlaceDevice) -> dict[str, Any]:
    """The entry of `devices` that a place is.

    A service is an adb server if the place has a tag `adb_serial`, else the device's own adbd.
    Raises ValueError saying why a place is no device.
    """
    named = [one for one in place.services if one.name == "adb"]
    found = named or list(place.services)
    if len(found) != 1:
        what = f"{len(found)} services, and not one that is named adb" if found else "no service"
        raise ValueError(f"its exporter shows {what}")
    host = f"[{found[0].address}]" if ":" in found[0].address else found[0].address
    at, serial = f"{host}:{found[0].port}", place.tags.get("adb_serial")
    tagged = {key: place.tags[key] for key in ("soc", "target", "pool") if key in place.tags}
    name = re.sub(r"[^a-z0-9._-]", "-", place.name.lower())
    return {
        "name": name,
        **known.model_dump(exclude_defaults=True),
        **tagged,
        **({"address": f"adb://{at}/{serial}"} if serial else {"serial": at}),
    }
