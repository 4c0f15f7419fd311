"""The order in which pytest-xdist's workers get the cases of a run (pure).

`--dist worksteal` gives each worker an equal share of the tests, in their order. A worker that has
one test left takes half of what the longest share has at its end.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

_USUAL_S: Final = 1.0


@dataclass
class Share:
    """The tests that a worker gets at first, `room` of them; `seconds` is what they will take."""

    room: int
    tests: list[int] = field(default_factory=list)
    seconds: float = 0.0


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
        homes[device] = shares[len(homes) % workers]
    for number in ordered(cases, lengths):
        length = lengths.get(number, usual)
        at_home = [share for device in cases[number] if (share := homes[device]).room]
        candidates = at_home or [share for share in shares if share.room]
        share = min(candidates, key=lambda share: share.seconds)
        share.tests.append(number)
        share.room -= 1
        share.seconds += length
    others = iter([number for number in range(count) if number not in cases])
    for share in shares:
        half = (len(share.tests) + 1) // 2
        pairs = zip_longest(share.tests[:half], reversed(share.tests[half:]))
        share.tests = [number for pair in pairs for number in pair if number is not None]
        share.tests += [next(others) for _ in range(share.room)]
    return shares
