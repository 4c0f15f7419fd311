"""Which case a device that is free runs next, so that all are busy until the last case (pure).

Devices of one kind can run the same cases. Cases that fit the same kinds wait together. A plan says
how much of each such group's work each kind does, so that all kinds are done together if the needs
of cases allow it. A free device takes the longest case of what is planned for its kind. If cases
are short against what is left, it takes one whose files it has. Where devices take longer than
others, they are reckoned by what they can do, and towards the end each case is left to the device
that would be done with it first, also if that is not free yet.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.run.scheduling.pace import Paces

_SWEEPS: Final = 12
_SETTLED: Final = 1e-3
_PLANNED_AGAIN: Final = 0.05
"""After this part of the work the plan is made anew, since devices do not quite keep to it."""
_OTHER_DEVICES: Final = 0.05
"""The plan is also made anew when this part of the devices has joined or left."""
_LOOKED_FOR: Final = 32
"""So many contents are remembered for each device."""
_MOST_WEIGHED: Final = 500
"""Of so many waiting cases each is weighed."""
_LEAST_LEFT: Final = 0.1
"""What takes longer than expected is expected to take this part of it more."""
_ENDGAME: Final = 3.0
"""A case is long if what is left takes each device less than so many times as long."""


CaseKinds = Collection[str]
"""The kinds of devices that can run a case; hashable."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A case to be run.

    `needs` has the kinds of devices that can run it, `seconds` how long it will take, by earlier
    runs. `content` is what must lie on a device: cases that share it are cheaper one after another.
    It is not tried again on the devices `not_on`.
    """

    case: int
    needs: CaseKinds
    seconds: float
    content: Hashable = None
    not_on: frozenset[Hashable] = frozenset()


@dataclass
class _Group:
    """Cases that fit the same kinds of devices; those of one content together, longest first."""

    work_s: float = 0.0
    count: int = 0
    heaps: dict[Hashable, list[tuple[float, int, Waiting]]] = field(default_factory=dict)
    longest: list[tuple[float, int, Hashable]] = field(default_factory=list)

    def add(self, one: Waiting) -> None:
        self.work_s += one.seconds
        self.count += 1
        heap = self.heaps.setdefault(one.content, [])
        entry = (-one.seconds, one.case, one)
        heapq.heappush(heap, entry)
        if heap[0] is entry:
            heapq.heappush(self.longest, (-one.seconds, one.case, one.content))

    def top(self) -> tuple[float, Hashable]:
        while True:
            seconds, case, content = self.longest[0]
            heap = self.heaps.get(content)
            if heap and heap[0][:2] == (seconds, case):
                return -seconds, content
            heapq.heappop(self.longest)

    def remove(self, one: Waiting) -> None:
        heap = self.heaps[one.content]
        heap.remove((-one.seconds, one.case, one))
        heapq.heapify(heap)
        self._without(one)

    def take(self, content: Hashable) -> Waiting:
        _, _, one = heapq.heappop(self.heaps[content])
        self._without(one)
        return one

    def _without(self, one: Waiting) -> None:
        if heap := self.heaps[one.content]:
            heapq.heappush(self.longest, (*heap[0][:2], one.content))
        else:
            del self.heaps[one.content]
        self.work_s -= one.seconds
        self.count -= 1


@dataclass
class _Device:
    kind: str
    has: dict[Hashable, None] = field(default_factory=dict)
    given: dict[int, Waiting] = field(default_factory=dict)
    since: float = 0.0
    has_run: bool = False


class Scheduler:
    """Gives cases to devices that ask for one; devices may join and leave at any time."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`paces` is for who knows something of devices before."""
        self._clock = clock
        self.paces = Paces()
        self._groups: dict[CaseKinds, _Group] = {}
        self._again: list[Waiting] = []
        self._devices: dict[Hashable, _Device] = {}
        self._kinds: dict[str, int] = {}
        self._plan: WorkShares = {}
        self._planned_s: float | None = None  # the work that it was made for, if there is a plan
        self._changed = 0
        self._able, self._slowest, self._differ = 1.0, 1.0, False

    @property
    def waiting(self) -> int:
        return len(self._again) + sum(group.count for group in self._groups.values())

    def add(self, one: Waiting) -> None:
        """Adds a case: a new one, or one whose device failed, which then comes first."""
        if one.not_on:
            self._again.append(one)
            self._again.sort(key=lambda other: -other.seconds)
            return
        if one.needs not in self._groups:
            self._groups[one.needs] = _Group()
            self._planned_s = None
        self._groups[one.needs].add(one)

    def join(self, device: Hashable, kind: str) -> None:
        """Adds a device, or one that is well again; nothing is on it."""
        if kind not in self._kinds:
            self._planned_s = None
        self._devices[device] = _Device(kind)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._changed += 1

    def leave(self, device: Hashable) -> list[Waiting]:
        """Removes a device; returns the cases that it has not finished, which are not added."""
        gone = self._devices.pop(device)
        self._kinds[gone.kind] -= 1
        if not self._kinds[gone.kind]:
            del self._kinds[gone.kind]
            self._planned_s = None
        self._changed += 1
        return list(gone.given.values())

    def finished(self, device: Hashable, case: int, took_s: float | None = None) -> None:
        """A device has done with a case that it was given; in `took_s` if that tells its pace."""
        known = self._devices[device]
        done = known.given.pop(case, None)
        # the first one waits for its files
        if done is not None and took_s is not None and known.has_run:
            self._changed += self.paces.learn(device, done.seconds, took_s)
        known.has_run = True

    def next(self, device: Hashable) -> Waiting | None:
        """The case that a device is to run now; None if none that waits can run there."""
        asks = self._devices[device]
        for place, one in enumerate(self._again):
            if device not in one.not_on and asks.kind in one.needs:
                del self._again[place]
                return self._given(asks, one)
        work_s = sum(group.work_s for group in self._groups.values())
        changed = self._changed > _OTHER_DEVICES * len(self._devices)
        if self._planned_s is None or changed or work_s < self._planned_s * (1 - _PLANNED_AGAIN):
            self._make_plan()
            self._planned_s, self._changed = work_s, 0
        plan = self._plan[asks.kind]
        best: tuple[tuple[bool, float], CaseKinds] | None = None
        for needs, planned in plan.items():
            if (group := self._groups.get(needs)) is None:
                continue
            seconds, _ = group.top()
            # what is planned here comes first, longest first; else where most is left for each
            due = planned > 0.5 * seconds
            rank = (due, seconds if due else planned)
            if best is None or rank > best[0]:
                best = rank, needs
        if best is None:
            return None
        left_s = work_s / self._able
        if not self._is_near_end(left_s):
            found = self._taken(asks, self._groups[best[1]], left_s / self.paces.of(device))
        elif (soonest := self._soonest_here(device)) is None:
            return None
        else:
            found = soonest
            self._groups[found.needs].remove(found)
        if not self._groups[found.needs].count:
            del self._groups[found.needs]
        plan[found.needs] = plan.get(found.needs, 0.0) - found.seconds
        return self._given(asks, found)

    def _is_near_end(self, left_s: float) -> bool:
        if not self._differ or self.waiting > _MOST_WEIGHED:
            return False
        longest_s = max(group.top()[0] for group in self._groups.values())
        return left_s < _ENDGAME * longest_s * self._slowest

    def _soonest_here(self, device: Hashable) -> Waiting | None:
        """The longest case with which this device is done before any other one would be."""
        now = self._clock()
        free_at = {name: self._free_in(name, one, now) for name, one in self._devices.items()}
        free_at[device] = 0.0
        heaps = (heap for group in self._groups.values() for heap in group.heaps.values())
        for _, _, one in sorted(entry for heap in heaps for entry in heap):
            ends = {
                name: at + one.seconds * self.paces.of(name)
                for name, at in free_at.items()
                if self._devices[name].kind in one.needs
            }
            if not ends:
                continue
            best = min(ends.values())
            if ends.get(device) == best:
                return one
            first = next(name for name, end in ends.items() if end == best)
            free_at[first] = best
        return None

    def _free_in(self, name: Hashable, one: _Device, now: float) -> float:
        takes_s = self.paces.of(name) * sum(each.seconds for each in one.given.values())
        return max(takes_s - (now - one.since), _LEAST_LEFT * takes_s)

    @staticmethod
    def _taken(asks: _Device, group: _Group, left_s: float) -> Waiting:
        seconds, content = group.top()
        if content not in asks.has and seconds * _ENDGAME < left_s:
            content = next((one for one in reversed(asks.has) if one in group.heaps), content)
        return group.take(content)

    def _given(self, asks: _Device, one: Waiting) -> Waiting:
        asks.given[one.case], asks.since = one, self._clock()
        asks.has.pop(one.content, None)
        asks.has[one.content] = None  # as the last
        if len(asks.has) > _LOOKED_FOR:
            del asks.has[next(iter(asks.has))]
        return one

    def work_for(self, device: Hashable, kind: str) -> float:
        """How many seconds of what waits a device of a kind can do; it need not have joined."""
        fitting = (group.work_s for needs, group in self._groups.items() if kind in needs)
        again = (one for one in self._again if device not in one.not_on and kind in one.needs)
        return sum(fitting) + sum(one.seconds for one in again)

    def without_device(self) -> Iterator[Waiting]:
        """The cases that no device there is can run."""
        for needs, group in self._groups.items():
            if not any(kind in needs for kind in self._kinds):
                for heap in group.heaps.values():
                    yield from (one for _, _, one in heap)
        for one in self._again:
            here = self._devices.items()
            if not any(it.kind in one.needs and name not in one.not_on for name, it in here):
                yield one

    def _make_plan(self) -> None:
        work = {needs: group.work_s for needs, group in self._groups.items()}
        able: dict[str, float] = defaultdict(float)
        for name, one in self._devices.items():
            able[one.kind] += 1 / self.paces.of(name)
        # of all, as of now: nobody reckons that again for each case
        self._able, self._differ = sum(able.values()), self.paces.differ(self._devices)
        self._slowest = max(map(self.paces.of, self._devices))
        self._plan = spread(work, able, self._plan)


WorkShares = dict[str, dict[CaseKinds, float]]
"""How many seconds of the work of each needs a kind of devices is to do."""


def spread(
    work: Mapping[CaseKinds, float], devices: Mapping[str, float], before: WorkShares
) -> WorkShares:
    """Spreads the work of each needs over the kinds it fits, so that loads are level.

    `devices` is how much those of each kind can do, in expected seconds a second. Needs by needs,
    the work fills the kinds up to one level above what others have put there; after some sweeps
    nothing changes any more. It begins with the plan before, which is not far off.
    """
    shares: dict[CaseKinds, dict[str, float]] = {}
    loads: dict[str, float] = defaultdict(float)  # seconds for each device of the kind
    for needs in work:
        if kinds := [kind for kind in devices if kind in needs]:
            shares[needs] = {kind: before.get(kind, {}).get(needs, 0.0) for kind in kinds}
            for kind, part in shares[needs].items():
                loads[kind] += part / devices[kind]
    order = sorted(shares, key=lambda needs: len(shares[needs]))
    for _ in range(_SWEEPS):
        moved = 0.0
        for needs in order:
            share = shares[needs]
            for kind, part in share.items():
                loads[kind] -= part / devices[kind]
            level = _level(work[needs], [(loads[kind], devices[kind]) for kind in share])
            for kind, part in share.items():
                share[kind] = max(0.0, level - loads[kind]) * devices[kind]
                moved += abs(share[kind] - part)
                loads[kind] += share[kind] / devices[kind]
        if moved <= _SETTLED * sum(work.values()):
            break
    # of two as good, the one that fits fewer kinds comes first
    return {
        kind: {one: shares[one][kind] for one in order if kind in shares[one]} for kind in devices
    }


def _level(work: float, kinds: list[tuple[float, float]]) -> float:
    """Up to where work fills kinds, each of a load and of what its devices can do.

    Below this level the kinds cannot take all the work; those loaded less take it just at it.
    """
    level, held, devices = math.inf, 0.0, 0.0
    for load, number in sorted(kinds):
        held += load * number
        devices += number
        level = min(level, (work + held) / devices)
    return level
