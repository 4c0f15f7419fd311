"""In which order workers of pytest-xdist run cases (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_USUAL_S: Final = 1.0


@dataclass
class _Share:
    """What `--dist worksteal` gives a worker at first: so many tests one after the other."""

    room: int
    tests: list[int] = field(default_factory=list)
    seconds: float = 0.0


def ordered(cases: Mapping[int, Sequence[Hashable]], seconds: Mapping[int, float]) -> list[int]:
    """Cases, by their numbers, in the order in which they are best begun.

    `cases` has the devices that each fits. What few devices fit comes first, then what takes long,
    by the `seconds` that are known; what is not known takes as long as most do.
    """
    usual_s = statistics.median(seconds.values()) if seconds else _USUAL_S
    return sorted(cases, key=lambda one: (len(cases[one]), -seconds.get(one, usual_s), one))


def dealt(
    count: int,
    cases: Mapping[int, Sequence[Hashable]],
    seconds: Mapping[int, float],
    workers: int,
) -> list[int]:
    """The numbers of `count` tests, so that each worker begins with the best of its share.

    `--dist worksteal` cuts them into shares of as many, one for each worker. Cases of one device go
    to one share where there is room, so that workers do not wait for each other; else to the share
    with the least work so far. Other tests stay together, behind them.
    """
    usual_s = statistics.median(seconds.values()) if seconds else _USUAL_S
    shares, left = list[_Share](), count
    for number in range(workers):
        shares.append(_Share(left // (workers - number)))
        left -= shares[-1].room
    homes: dict[Hashable, _Share] = {}
    for device in dict.fromkeys(device for one in cases.values() for device in one):
        homes[device] = shares[len(homes) % workers]
    for one in ordered(cases, seconds):
        at_home = [share for device in cases[one] if (share := homes[device]).room]
        share = min(at_home or [share for share in shares if share.room], key=_work)
        share.tests.append(one)
        share.room -= 1
        share.seconds += seconds.get(one, usual_s)
    others = iter([one for one in range(count) if one not in cases])
    for share in shares:
        share.tests += [next(others) for _ in range(share.room)]
    return [one for share in shares for one in share.tests]


def _work(share: _Share) -> float:
    return share.seconds
