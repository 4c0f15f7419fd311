"""The order in which pytest-xdist's workers get the cases of a run, and their devices.

`--dist worksteal` gives each worker an equal share of the tests, in their order. A worker that has
one test left takes half of what the longest share has at its end. Near the end of a run a slow
device would begin a case that a faster one could finish sooner.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.core.bounded_json import parse_json

if TYPE_CHECKING:
    from harness.bench.case_placement import Placement

_USUAL_S: Final = 1.0
_LEAST_S: Final = 0.001
_ROUNDS: Final = 10
_DOUBT: Final = 2
"""The number of usual cases that are added to those of a kind."""
_LATE: Final = 6
"""A run is near its end if it has fewer cases than this for each device left."""
_UNKNOWN: Final = 2
"""So many times the usual length a case of unknown length is assumed to have on a slow device."""
_FASTER: Final = 0.8
"""A device is faster than another if it has less than this part of its pace."""


@dataclass
class Share:
    """The tests that a worker gets at first, `room` of them; it begins with `device`.

    `seconds` is what the device will take for them, since it takes `pace` times their length.
    """

    room: int
    device: str = ""
    pace: float = 1.0
    tests: list[int] = field(default_factory=list)
    seconds: float = 0.0


def learn_paces(
    seconds: Mapping[str, Mapping[str, float]], kinds: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return lengths of cases and paces of devices, from the seconds of each case on each device.

    A case takes its length times the device's pace. Cases that several devices have run tell the
    paces apart. Until there are some, as after a first run, a device has the pace of its kind: the
    mean of all cases that ran on it, by that of all; those of a few cases are nearer to 1.
    """
    of_kind = defaultdict[str, list[float]](list)
    for times in seconds.values():
        for device, taken_s in times.items():
            of_kind[kinds.get(device, device)].append(max(taken_s, _LEAST_S))
    usual = statistics.fmean(chain.from_iterable(of_kind.values())) if of_kind else _USUAL_S
    guesses = {
        kind: (sum(values) / usual + _DOUBT) / (len(values) + _DOUBT)
        for kind, values in of_kind.items()
    }
    paces = {d: guesses[kinds.get(d, d)] for times in seconds.values() for d in times}
    compared = [times for times in seconds.values() if len(times) > 1]
    for _ in range(_ROUNDS):
        ratios = defaultdict[str, list[float]](list)
        for times in compared:
            length = _length(times, paces)
            for device, taken_s in times.items():
                ratios[device].append(max(taken_s, _LEAST_S) / length)
        paces |= {device: statistics.median(values) for device, values in ratios.items()}
    return {case: _length(times, paces) for case, times in seconds.items()}, paces


def _length(times: Mapping[str, float], paces: Mapping[str, float]) -> float:
    lengths = [max(taken_s, _LEAST_S) / paces[device] for device, taken_s in times.items()]
    return statistics.median(lengths)


def ordered(cases: Mapping[int, Sequence[str]], lengths: Mapping[int, float]) -> list[int]:
    """Sort cases: those of few devices first, then long ones; unknown lengths are the median."""
    usual = statistics.median(lengths.values()) if lengths else _USUAL_S
    return sorted(cases, key=lambda case: (len(cases[case]), -lengths.get(case, usual), case))


def deal(
    count: int,
    cases: Mapping[int, Sequence[str]],
    lengths: Mapping[int, float],
    paces: Mapping[str, float],
    workers: int,
) -> list[Share]:
    """Deal `count` tests, of which `cases` need a device, to the workers.

    Cases of one device go to one share while it has room, so that workers do not wait for each
    other; else each goes where it will be over first. In a share the longest and the shortest
    alternate, so that what is stolen from its end is neither. Other tests come last, in order.
    """
    usual = statistics.median(lengths.values()) if lengths else _USUAL_S
    shares, remaining = list[Share](), count
    for worker in range(workers):
        shares.append(Share(remaining // (workers - worker)))
        remaining -= shares[-1].room
    homes: dict[str, Share] = {}
    for device in dict.fromkeys(device for devices in cases.values() for device in devices):
        homes[device] = share = shares[len(homes) % workers]
        if not share.device:
            share.device, share.pace = device, paces.get(device, 1.0)
    for number in ordered(cases, lengths):
        length = lengths.get(number, usual)
        at_home = [share for device in cases[number] if (share := homes[device]).room]
        share = min(
            at_home or [share for share in shares if share.room],
            key=lambda share: share.seconds + length * share.pace,
        )
        share.tests.append(number)
        share.room -= 1
        share.seconds += length * share.pace
    others = iter([number for number in range(count) if number not in cases])
    for share in shares:
        half = (len(share.tests) + 1) // 2
        pairs = zip_longest(share.tests[:half], reversed(share.tests[half:]))
        share.tests = [number for pair in pairs for number in pair if number is not None]
        share.tests += [next(others) for _ in range(share.room)]
    return shares


class _Known(NamedTuple):
    """Lengths of cases, their mean, and paces of devices."""

    lengths: Mapping[str, float]
    paces: Mapping[str, float]
    usual_s: float


class Forecast:
    """The cases of a run that no worker has begun, and how long they will take on a device.

    The workers tell each other what they begin and end: each appends lines to the file at `path`,
    and reads on from where it was. `cases` are given by name with their devices, `lengths` and
    `paces` as `learn_paces` returns them for earlier runs. Without those they are learned from what
    is over in this run.
    """

    def __init__(
        self,
        path: Path,
        cases: Mapping[str, Sequence[str]],
        lengths: Mapping[str, float],
        paces: Mapping[str, float],
        kinds: Mapping[str, str],
    ) -> None:
        self._path, self._read_bytes = path, 0
        self.in_use: set[str] = set()
        """The devices that have begun a case of this run, and had no fault since."""
        self._left, self._kinds = dict(cases), kinds
        self._seconds: dict[str, dict[str, float]] = {}
        self._is_learning = not lengths
        self._known: _Known | None = self._known_of(lengths, paces) if lengths else None

    def begin(self, case: str, device: str) -> None:
        self._left.pop(case, None)
        self.in_use.add(device)

    def end(self, case: str, device: str, taken_s: float | None) -> None:
        """Take the time of a case, None if there is no verdict because of its device."""
        if taken_s is None:
            self.in_use.discard(device)
        elif self._is_learning:
            self._seconds[case] = {device: taken_s}
            self._known = None

    def paces(self, devices: Collection[str]) -> dict[str, float]:
        """Return the paces of devices; 1 for one of which nothing is known."""
        known = self._learned().paces
        return {device: known.get(device, 1.0) for device in devices}

    def _learned(self) -> _Known:
        if self._known is None:
            self._known = self._known_of(*learn_paces(self._seconds, self._kinds))
        return self._known

    def _known_of(self, lengths: Mapping[str, float], paces: Mapping[str, float]) -> _Known:
        """Give devices without a pace that of their kind."""
        of_kind = {self._kinds.get(device, device): pace for device, pace in paces.items()}
        of_kinds = {d: of_kind[kind] for d, kind in self._kinds.items() if kind in of_kind}
        usual_s = statistics.fmean(lengths.values()) if lengths else _USUAL_S
        return _Known(lengths, of_kinds | dict(paces), usual_s)

    def in_order(self, case: str, places: Iterable[Placement]) -> list[Placement]:
        """Sort by the paces of devices; the first one stays there unless it is too slow."""
        first, *rest = places
        paces = self.paces([place.device for place in (first, *rest)])
        if not self.waits(case, first.device, [place.device for place in rest], 0.0):
            paces[first.device] = 0.0
        return sorted([first, *rest], key=lambda place: paces[place.device])

    def waits(self, case: str, device: str, in_use: Collection[str], waited_s: float) -> bool:
        """Return whether a case is over sooner if it waits for one of the devices `in_use`.

        Only faster ones count. They first take all that is left, and are in the middle of a case
        now, of which half is assumed to remain. A case of unknown length may be a long one. It has
        waited long enough when `device` would have run it.
        """
        paces = self.paces({device, *in_use})
        faster = {name for name in in_use if paces[name] < _FASTER * paces[device]}
        lengths, _, usual_s = self._learned()
        if not faster or not lengths:
            return False
        length_s = lengths.get(case, usual_s)
        here_s = (length_s if case in lengths else _UNKNOWN * usual_s) * paces[device]
        left_s = sum(
            lengths.get(name, usual_s)
            for name, devices in self._left.items()
            if not faster.isdisjoint(devices)
        )
        there_s = left_s / sum(1 / paces[name] for name in faster) + length_s / 2
        return max(waited_s, there_s) < here_s

    def note(self, case: str, device: str, *taken_s: float | None) -> None:
        """Tell that a case begins on a device or, with `taken_s` as in `end`, that it has ended."""
        line = json.dumps([case, device, *taken_s]).encode() + b"\n"
        with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
            file.write(line)

    def is_late(self, devices: int) -> bool:
        """Read what workers told, but no line cut short; return whether the run nears its end."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._read_bytes)
            lines, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(lines) + len(newline)
            for line in lines.splitlines():
                with contextlib.suppress(ValueError):
                    case, device, *taken_s = parse_json(line)
                    if taken_s:
                        self.end(case, device, *taken_s)
                    else:
                        self.begin(case, device)
        return len(self._left) < _LATE * devices
