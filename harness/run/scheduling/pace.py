"""How long devices take beside each other, learnt from what they ran (pure)."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final

_KEPT: Final = 31
_ENOUGH: Final = 3
_MANY: Final = 6
_ALIKE: Final = 1.15
_CHANGED: Final = 0.05
_TOLD: Final = 1.4
"""Paces of another run tell something from so many times the usual on."""


class Paces:
    """How many seconds each device takes for one that is expected.

    What is expected of a device counts until it has run a few cases; one of which nothing is known
    is like the others.
    """

    def __init__(self) -> None:
        self._ratios: dict[Hashable, deque[float]] = {}
        self._own: dict[Hashable, float] = {}
        self._usual = 1.0

    def expect(self, device: Hashable, pace: float) -> None:
        """What is known of a device before it has run anything."""
        self._own[device] = pace

    def learn(self, device: Hashable, expected_s: float, took_s: float) -> bool:
        """A device has taken so long for a case; whether that changes much of what is known."""
        if expected_s <= 0 or took_s <= 0:
            return False
        before = self._own.get(device, 0.0)
        ratios = self._ratios.setdefault(device, deque(maxlen=_KEPT))
        ratios.append(took_s / expected_s)
        if len(ratios) >= _ENOUGH:
            self._own[device] = statistics.median(ratios)
            self._usual = statistics.median(self._own.values())
        now = self._own.get(device, 0.0)
        return abs(now - before) > _CHANGED * now

    def of(self, device: Hashable) -> float:
        """The seconds that a device takes for an expected one."""
        return self._own.get(device, self._usual)

    def differ(self, devices: Iterable[Hashable]) -> bool:
        """Whether some of these devices take noticeably longer than others."""
        found = [self.of(one) for one in devices]
        return bool(found) and max(found) > _ALIKE * min(found)


def paces_of(
    took: Iterable[tuple[str, str, str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """How long cases take on a usual device, and the pace of each device, by what they took before.

    `took` has of each case its name, its test, its device and its seconds. The pace is how a device
    compares with the median of all that ran several cases of a test. One that differs by chance, as
    it may have run the longer ones, counts as usual.
    """
    rows = list(took)
    of_test: dict[str, dict[str, list[float]]] = {}
    for _, test, device, seconds in rows:
        of_test.setdefault(test, {}).setdefault(device, []).append(seconds)
    ratios: dict[str, list[float]] = {}
    for by_device in of_test.values():
        several = {device: found for device, found in by_device.items() if len(found) >= _MANY}
        middles = {device: statistics.median(found) for device, found in several.items()}
        usual = statistics.median(middles.values()) if len(middles) > 1 else 0.0
        if usual > 0:
            for device, middle in middles.items():
                ratios.setdefault(device, []).append(middle / usual)
    found_s = {device: statistics.median(found) for device, found in ratios.items()}
    paces = {one: pace for one, pace in found_s.items() if not 1 / _TOLD < pace < _TOLD}
    return {case: seconds / paces.get(device, 1.0) for case, _, device, seconds in rows}, paces
