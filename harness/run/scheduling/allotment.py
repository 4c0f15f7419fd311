"""Which device a worker gets beside those that it has, and which of its devices gets a case.

A worker keeps a device for its life. It takes another that nobody has when its own have nothing to
do. Here devices are only names: other processes hold them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from harness.run.scheduling.scheduling import Scheduler, Waiting

_ASKED_LAST: Final = 1e300
"""Until when a device is out whose worker will say that it is back; one that is lent: infinity."""
_LOOK_AGAIN_S: Final = 60.0
"""For so many seconds a device that was given up gets no case that another device could run."""


@dataclass(eq=False)
class FarmDevice:
    """A device that cases can run on.

    `is_held`: a worker has it. `joined`: it takes cases now. `is_away`: its worker sees to it, and
    will say when it takes cases again. One that refused a case, or was given up, has `out_until`,
    when it is tried again.
    """

    name: str
    kind: str
    is_held: bool = False
    joined: bool = False
    is_away: bool = False
    out_until: float | None = None

    @property
    def is_usable(self) -> bool:
        return self.out_until is None and (self.joined or self.is_away or not self.is_held)

    def can(self, case: Waiting) -> bool:
        """Whether a case may be run on it."""
        return self not in case.not_on and self.kind in case.needs


class Allotment:
    """The devices of a run's workers, and the cases that wait for them."""

    def __init__(
        self,
        *,
        is_taken: Callable[[str], bool],
        is_lent: Callable[[str], bool] = lambda device: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_taken` tells whether another session has a device.

        No worker waits for that as long as there are others, nor for a device that its holder lends
        to a person (`is_lent`).
        """
        self._is_taken, self._is_lent, self._clock = is_taken, is_lent, clock
        self._farm = Scheduler(clock)
        self._devices: dict[str, FarmDevice] = {}
        self._stopped: dict[int, Waiting] = {}  # what a dead worker or a bad device was at

    @property
    def waiting(self) -> int:
        return self._farm.waiting

    def know(self, device: str, kind: str, pace: float | None = None) -> None:
        """A device that cases can run on, of which kind it is, and how fast, as `Paces` have it."""
        self._devices[device] = made = FarmDevice(device, kind)
        if pace is not None:
            self._farm.paces.expect(made, pace)

    def add(self, case: Waiting) -> None:
        """A case more."""
        self._farm.add(case)

    def take_free(self) -> FarmDevice | None:
        """Takes the device that nobody has and for which most work waits."""
        found = self._free()
        if found is not None:
            self._join(found)
        return found

    def next_for(
        self, held: list[FarmDevice], *, may_add: bool = True
    ) -> tuple[FarmDevice, Waiting] | None:
        """The next case for a holder of these devices, to which a free device may be added.

        None if there is none for it now.
        """
        for device in held:
            lent = self._is_lent(device.name)
            if lent and device.joined:
                self._leave(device)
                device.out_until = math.inf
            elif not lent and device.out_until == math.inf:
                device.out_until = None
                if not device.joined:
                    self._join(device)
            if device.joined and (case := self._farm.next(device)) is not None:
                return device, case
        if may_add and (free := self.take_free()) is not None:
            held.append(free)
            case = self._farm.next(free)
            return None if case is None else (free, case)
        for device in held:
            until = device.out_until
            if until is not None and self._is_worth_a_try(device, until):
                self._join(device)
                if (case := self._farm.next(device)) is not None:
                    return device, case
        return None

    def finished(self, device: FarmDevice, case: int, took_s: float | None = None) -> None:
        """A device has done with a case, in `took_s` if that is known."""
        if device.joined:
            self._farm.finished(device, case, took_s)

    def let_go(self, held: Collection[FarmDevice]) -> None:
        """Whoever held these devices is gone."""
        for device in held:
            self._leave(device)
            device.is_held, device.is_away, device.out_until = False, False, None

    def stopped(self, case: Waiting) -> None:
        """A case that nobody runs before `go_on`."""
        self._stopped[case.case] = case

    def go_on(self, number: int) -> bool:
        """Has a stopped case wait again; whether there is such a case."""
        case = self._stopped.pop(number, None)
        if case is not None:
            self.add(case)
        return case is not None

    def give_up(self, device: str, case: Waiting | None) -> bool:
        """A device could not run a case; whether it, or another device, may still do so.

        The case is stopped then. Until it goes on no device gets it.
        """
        if case is None:
            return False
        lost = self._devices[device]
        if lost.out_until is not None:
            self._leave(lost)  # it was tried in vain
        again = replace(case, not_on=case.not_on | {lost})
        usable = [one for one in self._devices.values() if one.is_usable]
        # rather there a second time than not at all
        for one in (again, replace(case, not_on=frozenset())):
            if any(device.can(one) for device in usable):
                self.stopped(one)
                return True
        return False

    def stands(self, device: str, how: str) -> None:
        """Its worker says how a device stands: as in `Beside`, or `full`, which may pass."""
        found = self._devices[device]
        self._leave(found)
        until = {"out": _ASKED_LAST, "full": self._clock() + _LOOK_AGAIN_S}
        found.is_away, found.out_until = how == "away", until.get(how)
        if how == "back" and found.is_held:
            self._join(found)

    def cannot(self, device: str, case: Waiting) -> bool:
        """A device says that it cannot do what a case is about; whether one of another kind may.

        The case is stopped then, as by `give_up`.
        """
        unable = self._devices[device].kind
        needs = tuple(kind for kind in case.needs if kind != unable)
        again = replace(case, needs=needs)
        if not any(one.can(again) for one in self._devices.values()):
            return False
        self.stopped(again)
        return True

    def _free(self) -> FarmDevice | None:
        """A free device, of another session only if none of ours can run a waiting case."""
        work = {
            device: self._farm.work_for(device, device.kind) / (1 + self._count(device.kind))
            for device in self._devices.values()
            if not device.is_held
        }
        found = sorted((one for one in work if work[one] > 0), key=lambda one: -work[one])
        free = next((device for device in found if not self._is_taken(device.name)), None)
        return free or next((device for device in found if self._is_wanted(device)), None)

    def _count(self, kind: str) -> int:
        return sum(one.kind == kind for one in self._devices.values() if one.joined)

    def _is_worth_a_try(self, device: FarmDevice, until: float) -> bool:
        if self._clock() >= until:
            device.out_until = None
            return self._farm.work_for(device, device.kind) > 0
        return self._is_wanted(device)

    def _is_wanted(self, device: FarmDevice) -> bool:
        away = [one for one in self._devices.values() if one.is_away]
        return any(
            device.can(case) and not any(one.can(case) for one in away)
            for case in self._farm.without_device()
        )

    def _join(self, device: FarmDevice) -> None:
        device.is_held, device.joined, device.is_away = True, True, False
        self._farm.join(device, device.kind)

    def _leave(self, device: FarmDevice) -> None:
        if device.joined:
            device.joined = False
            self._farm.leave(device)
