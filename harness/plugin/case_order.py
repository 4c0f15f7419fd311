"""The order in which pytest-xdist's workers get the cases of a run (pure).

`--dist worksteal` gives each worker an equal share of the tests, in their order. A worker that has
one test left takes half of what the longest share has at its end.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Final

_USUAL_S: Final = 1.0
_LEAST_S: Final = 0.001
_ROUNDS: Final = 10
_DOUBT: Final = 2
"""The number of usual cases that are added to those of a kind."""


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
    """Sort cases, given by number with their devices: few devices first, then long ones.

    For unknown lengths the median is assumed.
    """
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
