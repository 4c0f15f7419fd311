"""What the coordinator says of a place, and what is wanted of it (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Service:
    """A `NetworkService` of an exporter: where something listens, and what the place calls it."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Place:
    """A place of the lab; `acquired` is who has it ("host/user"), "" if nobody has.

    `power_port` is what it calls the resource that switches its power, "" if it has none.
    """

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    services: Sequence[Service] = ()
    acquired: str = ""
    power_port: str = ""

    def fits(self, filters: Mapping[str, str]) -> bool:
        """Whether a reservation with these filters may be given it."""
        has = {**self.tags, "name": self.name}
        return all(has.get(key) == value for key, value in filters.items())


@dataclass(frozen=True)
class Wanted:
    """What a session asks of a lab: none of its `places` means that they are only listed."""

    coordinator: str
    filters: Mapping[str, str]
    places: int = 0
    wait_s: float = 0.0


def waiting_text(filters: Mapping[str, str], holders: Collection[str], wait_s: float) -> str:
    """Return the notice for somebody who waits for a place."""
    asked = " ".join(f"{key}={value}" for key, value in filters.items()) or "any tags"
    who = f"; they are held by {', '.join(sorted(set(holders)))}" if holders else ""
    return f"waiting up to {wait_s:g} s for a place of labgrid with {asked}{who}"


def no_place(wanted: Wanted, places: Sequence[Place]) -> str:
    """Why no place fits, with the tags that there are."""
    asked = " ".join(f"{key}={value}" for key, value in wanted.filters.items())
    if not places:
        return f"the coordinator at {wanted.coordinator} has no places"
    return f"no place of the coordinator at {wanted.coordinator} has {asked}"


def tags_there(places: Iterable[Place]) -> list[str]:
    """All tags that places have, as they are written in a filter."""
    return sorted({f"{key}={value}" for place in places for key, value in place.tags.items()})
