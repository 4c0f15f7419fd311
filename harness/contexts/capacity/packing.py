"""Will it fit: contexts packed into protection domains the way the backend does it (pure).

The backend puts a context into the first domain with room for all that it reserves for it; one
context cannot span two (QAIRT SDK docs, "Multiple cDSP Sessions"). What a context of a given file
takes, and how much there is, is measured (calibration.py) or given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.contexts.context.schedule import Move, schedule
from harness.ground.errors.outgoing_text import counted


@dataclass(frozen=True)
class Size:
    """Bytes that a context takes in its domain; `spill_fill` is a part of `total`."""

    total: int
    spill_fill: int = 0


@dataclass(frozen=True)
class Room:
    """How many bytes each protection domain has, and how many of them there are."""

    budget: int
    sessions: int = 1


@dataclass(frozen=True)
class RefusedLoad:
    """The first load that fails (from 0), of which context, and by how many bytes."""

    load: int
    context: int
    missing: int


@dataclass(frozen=True)
class Forecast:
    """What comes of a schedule: so many `loads` succeed, then one is `refused`, or none is.

    `domains` tells which contexts each domain holds at the refusal, else when most is taken, and
    `used` how many bytes they take.
    """

    loads: int
    refused: RefusedLoad | None
    domains: tuple[tuple[int, ...], ...]
    used: tuple[int, ...]

    @property
    def fits(self) -> bool:
        return self.refused is None


_Held = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]
"""The contexts of each domain, and how many bytes they take."""


class _Domain:
    """One protection domain; with `shares`, its contexts have one spill-fill buffer."""

    def __init__(self, shares: bool) -> None:
        self._shares = shares
        self.held: dict[int, Size] = {}
        self._own = 0
        self._shared = 0

    @property
    def used(self) -> int:
        return self._own + self._shared

    def used_with(self, size: Size) -> int:
        own, shared = self._parts(size)
        return self._own + own + max(self._shared, shared)

    def take(self, context: int, size: Size) -> None:
        own, shared = self._parts(size)
        self._own, self._shared = self._own + own, max(self._shared, shared)
        self.held[context] = size

    def free(self, context: int) -> None:
        if size := self.held.pop(context, None):
            self._own -= self._parts(size)[0]
            self._shared = max((self._parts(one)[1] for one in self.held.values()), default=0)

    def _parts(self, size: Size) -> tuple[int, int]:
        return (size.total - size.spill_fill, size.spill_fill) if self._shares else (size.total, 0)


def forecast(
    sizes: Sequence[Size], moves: Iterable[Move], room: Room, *, share_spill_fill: bool = False
) -> Forecast:
    """What comes of these moves; with `share_spill_fill` a domain has one buffer for all."""
    domains = [_Domain(share_spill_fill) for _ in range(room.sessions)]
    loads, fullest = 0, _held(domains)
    for move in moves:
        if move.verb == "load":
            size = sizes[move.context]
            for domain in domains:
                if domain.used_with(size) <= room.budget:
                    domain.take(move.context, size)
                    break
            else:
                missing = min(domain.used_with(size) for domain in domains) - room.budget
                return Forecast(loads, RefusedLoad(loads, move.context, missing), *_held(domains))
            loads += 1
        elif move.verb == "free":
            fullest = max(fullest, _held(domains), key=_used)
            for domain in domains:
                domain.free(move.context)
    fullest = max(fullest, _held(domains), key=_used)
    return Forecast(loads, None, *fullest)


def _held(domains: Sequence[_Domain]) -> _Held:
    return tuple(tuple(domain.held) for domain in domains), tuple(domain.used for domain in domains)


def _used(held: _Held) -> int:
    return sum(held[1])


@dataclass(frozen=True)
class Alternative:
    """What would come of doing it another way: how many contexts are loaded then, and whether
    that is all of them."""

    change: str
    fits: bool
    loads: int


def changes(sizes: Sequence[Size], room: Room) -> list[Alternative]:
    """What would come of the ways out that people know, if all contexts stayed loaded."""
    count, resident = len(sizes), schedule(len(sizes), "resident").moves

    by_size = sorted(sizes, key=lambda size: size.total)
    by_spill_fill = sorted(sizes, key=lambda size: -size.spill_fill)
    shared = forecast(by_spill_fill, resident, room, share_spill_fill=True)
    ways = {
        "smallest first": forecast(by_size, resident, room),
        "largest first": forecast(by_size[::-1], resident, room),
        "shared spill-fill, largest first": shared,
        "sequential": forecast(sizes, schedule(count, "sequential").moves, room),
    }
    found = [Alternative(way, one.fits, one.loads) for way, one in ways.items()]
    if most := _largest_window(sizes, room):
        window = f"only the last {most} kept loaded (--residency window --window {most})"
        found.append(Alternative(window, True, count))
    if all(size.total <= room.budget for size in sizes):
        enough = Room(room.budget, count)
        domains = [one for one in forecast(sizes, resident, enough).domains if one]
        found.append(Alternative(counted(len(domains), "protection domain"), True, count))
    # its graphs take what they took as contexts, measured with QNN 2.51
    fits = sum(size.total for size in sizes) <= room.budget
    found.append(Alternative("merged into one context", fits, count if fits else 0))
    for at, size in enumerate(sizes):
        if size.total > room.budget:
            parts = -(-size.total // room.budget)
            found.append(Alternative(f"context {at} split into {parts} or more", True, count))
    return found


def _largest_window(sizes: Sequence[Size], room: Room) -> int:
    """How many contexts can be kept loaded at a time; 0 if not even one."""
    fits, refused = 0, len(sizes) + 1
    while refused - fits > 1:
        middle = (fits + refused) // 2
        if forecast(sizes, schedule(len(sizes), "window", middle).moves, room).fits:
            fits = middle
        else:
            refused = middle
    return fits
