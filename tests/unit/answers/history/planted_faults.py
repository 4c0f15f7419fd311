"""Nights of farms in which faults are planted, so that it is known whose each is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.answers.history.whose_fault import Guilty, Sighting

WINDOW: Final = 30
"""So many runs are looked at."""
_FOR_EVER: Final = 10**6
_KINDS: Final[tuple[Guilty, ...]] = ("model", "runtime", "phone", "lab", "flaky", "unknown")


@dataclass(frozen=True)
class Planted:
    """A fault: from a night on, until another, these tests fail on these devices, so often.

    `version` is the place of the one that brings it. `allowed` are the answers that are right, also
    where nothing could tell more.
    """

    guilty: Guilty
    cause: str
    night: int
    devices: frozenset[str]
    tests: frozenset[str]
    rate: float
    until: int = _FOR_EVER
    version: int = 0
    allowed: frozenset[Guilty] = frozenset()

    def is_at(self, test: str, device: str, night: int, version: int) -> bool:
        """Whether it may show there."""
        here = test in self.tests and device in self.devices
        return here and self.night <= night < self.until and version >= self.version


@dataclass(frozen=True)
class PlantedFarm:
    """A farm: the SoC and the host of each device, and what each night saw."""

    devices: dict[str, tuple[str, str]]
    tests: tuple[str, ...]
    faults: tuple[Planted, ...]
    nights: list[list[Sighting]]

    def window(self, night: int, runs: int = WINDOW) -> list[Sighting]:
        """What is looked at in the morning after a night."""
        return [one for seen in self.nights[max(0, night + 1 - runs) : night + 1] for one in seen]

    @property
    def started(self) -> list[str]:
        """When each night began; a year has twelve months of thirty days."""
        return [
            f"{2026 + one // 360}-{1 + one // 30 % 12:02}-{1 + one % 30:02}T22:00:00Z"
            for one in range(len(self.nights))
        ]


def planted_farm(
    seed: int, nights: int = 100, faults: int = 5, devices: tuple[int, ...] = (3, 4, 6, 8, 12)
) -> PlantedFarm:
    """A farm by chance: its size, who is away when, how often versions come, what is planted."""
    draw = random.Random(seed)
    count = draw.choice(devices)
    socs, hosts = (draw.randint(1, min(3, count)) for _ in range(2))
    where = {
        f"phone-{one:02}": (f"SM8{one % socs}50", f"rack-{one * hosts // count}")
        for one in range(count)
    }
    tests = tuple(f"test_{one}" for one in range(draw.randint(4, 15)))
    every, both = draw.randint(5, 20), draw.random() < 0.3
    bare = PlantedFarm(where, tests, (), [])
    found = [_fault(draw, bare, f"cause {one}", nights, every) for one in range(faults)]
    if faults > 1 and draw.random() < 0.2:  # two have one signature
        alike = found[0].allowed | found[1].allowed
        found[:2] = [replace(one, cause="shared", allowed=alike) for one in found[:2]]
    away = draw.choice((0.0, 0.05, 0.2))
    farm = replace(bare, faults=tuple(found))
    for night in range(nights):
        newest = night // every
        versions = [newest - 1, newest] if both and newest else [newest]
        there = [device for device in where if draw.random() >= away]
        farm.nights.append(
            [
                _seen(draw, farm, night, version, test, device)
                for device in there
                for test in tests
                for version in versions
            ]
        )
    return farm


def _fault(draw: random.Random, farm: PlantedFarm, cause: str, nights: int, every: int) -> Planted:
    guilty = draw.choice(_KINDS)
    device, night = draw.choice([*farm.devices]), draw.randint(3, nights - 1)
    soc, host = farm.devices[device]
    everywhere = frozenset(farm.devices)
    of_soc, of_host = (
        frozenset(one for one, of in farm.devices.items() if of[at] == name)
        for at, name in enumerate((soc, host))
    )
    some = frozenset(draw.sample(farm.tests, draw.randint(1, 3)))
    alone = frozenset([draw.choice(farm.tests)])
    change: dict[str, Any]
    fault = Planted(guilty, cause, night, everywhere, alone, 1.0, allowed=frozenset([guilty]))
    if guilty == "runtime":
        version = draw.randint(1, max(1, (nights - 1) // every))
        change = {"night": version * every, "version": version, "rate": draw.choice((1.0, 0.9))}
        return replace(fault, devices=draw.choice((everywhere, of_soc)), tests=some, **change)
    if guilty == "phone":
        until = draw.choice((_FOR_EVER, night + draw.randint(3, 20)))
        allowed = fault.allowed if len(of_soc) > 1 else frozenset[Guilty]({"phone", "unknown"})
        change = {"rate": draw.uniform(0.3, 1), "until": until, "allowed": allowed}
        return replace(fault, devices=frozenset([device]), tests=frozenset(farm.tests), **change)
    if guilty == "lab":
        answers = {"lab", "phone", "unknown"} if len(of_host) == 1 else {"lab"}
        change = {"rate": draw.uniform(0.6, 1), "until": night + draw.randint(1, 3)}
        change |= {"tests": frozenset(farm.tests), "allowed": frozenset(answers)}
        return replace(fault, devices=of_host, **change)
    if guilty == "flaky":
        some_devices = draw.choice((everywhere, everywhere, frozenset([device])))
        return replace(fault, night=0, devices=some_devices, rate=draw.uniform(0.05, 0.5))
    if guilty == "unknown":  # what begins with a version would be told of that, and rightly
        night += night % every == 0
        return replace(fault, night=night, devices=draw.choice((everywhere, of_soc)), tests=some)
    return fault


def _seen(
    draw: random.Random, farm: PlantedFarm, night: int, version: int, test: str, device: str
) -> Sighting:
    """What became of a case in a night: what fails is run again three times, so that both shows."""
    changes = sum(
        one.guilty == "model" and test in one.tests and night >= one.night for one in farm.faults
    )
    soc, host = farm.devices[device]
    versions = (("qnn", f"2.{version}.0"), ("ort", None))
    seen = Sighting(test, night, device, soc, host, versions, f"{test} {changes}", None, 1)
    for one in _shown(draw, farm.faults, test, device, night, version):
        if one.guilty == "lab":
            return seen._replace(cause=one.cause, passed=0, lost=True)
        again = sum(draw.random() < one.rate for _ in range(3))
        return seen._replace(cause=one.cause, passed=3 - again, failed=1 + again)
    if draw.random() < 0.001:
        return seen._replace(cause="chance", passed=0, failed=1)
    return seen


def _shown(
    draw: random.Random,
    faults: tuple[Planted, ...],
    test: str,
    device: str,
    night: int,
    version: int,
) -> Iterator[Planted]:
    for one in faults:
        if one.is_at(test, device, night, version) and draw.random() < one.rate:
            yield one
