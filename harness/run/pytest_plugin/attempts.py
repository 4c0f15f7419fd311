"""The attempts at a case: which device each takes, and whether another one follows.

A device is leased for one attempt. A fault of the lab is no verdict: the case is tried again, on
another device if one shares it. What a device of one kind cannot do is asked of another kind, if
any will do. A device that failed is seen to meanwhile (`workbench/aside.py`), which keeps its
lease; a case that only this device can run waits for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal

from harness.ground.errors import HarnessError, NotYet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.device.lab.attach import LabDevice
    from harness.device.lab.lease import DeviceHeld, Missed
    from harness.run.workbench.placement import Placement
    from harness.run.workbench.workbench import Workbench

AttemptEnd = Literal["verdict", "cannot", "lab", "full", "hot"]
"""What an attempt came to: a verdict, that this target cannot do it, a fault of the lab, or that
there is no room on the device, or that it is too hot for a timed case, which are no faults that it
could be brought back from.
"""

_PATIENCE_S: Final = 1.0
"""How long a case waits for a device to be made ready while others can run it."""


class FreeDevices:
    """Takes devices for cases, and gives them back."""

    def __init__(self, workbench: Workbench, first: int = 0) -> None:
        """Looks at the devices of a case from the `first` on, so that workers begin with others."""
        self._workbench = workbench
        self._first = first
        self._last = ""

    def device(self, placement: Placement) -> LabDevice:
        """The device that a placement is on."""
        return self._workbench.lab.device(placement.device)

    def take(
        self,
        placement: Placement,
        tried: Collection[str] = (),
        unable: Collection[str] = (),
        *,
        rather: str = "",
        wait: bool = True,
    ) -> Placement:
        """Takes a free device for a case, if possible not among `tried`, and makes it ready.

        Of these the one that is named (`rather`), else the one used last, else one that has the
        files, else any. Waits if none is free; not for those `unable`, which have said that they
        cannot do it. A device that has a problem is only returned, and not held, if each has one.
        Raises DeviceHeld.
        """
        from harness.device.lab.lease import DeviceHeld

        places = [one for one in self._places(placement) if one.device not in unable]
        found: list[Placement] = []

        def attempt() -> Sequence[Missed]:
            missed, refused = [], list[DeviceHeld]()
            well = [one for one in places if self._workbench.problem(one) is None]
            for place in self._in_order(well, tried, rather or self._last):
                try:
                    who = self._workbench.take(self.device(place))
                except DeviceHeld as held:
                    refused.append(held)
                    continue
                if who is not None:
                    missed.append(who)
                elif self._is_of_use(place):
                    found.append(place)
                    return []
            if refused and not missed:
                raise refused[0]
            return missed

        while not found:
            if all(self._workbench.problem(one) is not None for one in places):
                return next((one for one in places if one.device not in tried), placement)
            self._workbench.wait_for(attempt, wait=wait)
        self._last = found[0].device
        return found[0]

    def give_back(self, placement: Placement) -> None:
        """Lets others have the device, unless it is seen to."""
        self._workbench.give_back(self.device(placement))

    def keep_out(self, placement: Placement, held: DeviceHeld) -> None:
        """Takes note of a device that was waited for in vain."""
        self._workbench.keep_out(self.device(placement), held)

    def elsewhere(self, placement: Placement, tried: Collection[str] = ()) -> bool:
        """Whether there is a device for a case that is not among `tried`."""
        return any(
            one.device not in tried and self._workbench.problem(one) is None
            for one in self._places(placement)
        )

    def is_unfit(self, placement: Placement) -> bool:
        """Whether a device was not what a case needs, before the case began."""
        return self._workbench.problem(placement) is not None

    def bring_back(self, placement: Placement, *, again: bool, is_last: bool) -> None:
        """Brings a device back after a fault of the lab, or gives it up.

        `again`: another attempt is allowed. A case that other devices can run does not wait for it.
        After the last case nothing is done but to tell whoever comes next.
        """
        device = self.device(placement)
        if is_last and not again:
            self._workbench.distrust(device)
        elif not self.is_unfit(placement):
            aside = placement.is_shared
            self._workbench.recover(device, case_over=aside or not again, aside=aside)

    def _places(self, placement: Placement) -> list[Placement]:
        """On each device that can run it, the placement's own first where that is only one."""
        names = placement.candidates
        begin = self._first % len(names)
        return [placement.on(name) for name in (*names[begin:], *names[:begin])]

    def _is_of_use(self, place: Placement) -> bool:
        """Makes a device ready that was taken; gives it back where that fails and others may do.

        Any other error is told by the case.
        """
        bench = self._workbench
        try:
            if place.is_shared:
                bench.ready(place, _PATIENCE_S)
            else:
                bench.make_fit(place, None)
        except NotYet:
            return False
        except HarnessError:
            if bench.problem(place) is not None:
                bench.give_back(self.device(place))
                return False
        return True

    def _in_order(
        self, places: Sequence[Placement], tried: Collection[str], first: str
    ) -> Iterator[Placement]:
        """Those not tried before the others; the `first` one, and then those that have the files.

        Files are only asked for where the first one is not to be had.
        """
        yield from (one for one in places if one.device == first and first not in tried)
        rest = [one for one in places if one.device != first or first in tried]
        has_files = self._workbench.has_files
        yield from sorted(rest, key=lambda one: (one.device in tried, not has_files(one)))


class Attempts:
    """Those at one case in this process."""

    def __init__(
        self,
        devices: FreeDevices,
        kinds: Mapping[str, str],
        placement: Placement,
        *,
        retries: int,
        before: int = 0,
        again: int = 0,
        rather: str = "",
    ) -> None:
        """`kinds` has by device what it is; `retries` more are allowed after a fault of the lab.

        `before` attempts were made in a run that this one resumes. What has a verdict is run
        `again` until it has so many more, `rather` on the device that is named.
        """
        self._devices, self._kinds = devices, kinds
        self._placement, self._before, self._retries = placement, before, retries
        self._place, self._rather = placement, rather
        self._made = 0
        self._again, self.has_verdict = again, again > 0
        self._tried: list[str] = []
        self._unable: list[str] = []

    @property
    def number(self) -> int:
        return self._before + self._made

    def begin(self) -> Placement:
        """Where the next attempt is made; its device is held until `go_on`.

        Where none can be had, the attempt will tell why.
        """
        from harness.device.lab.lease import DeviceHeld

        try:
            self._place = self._devices.take(
                self._placement, self._tried, self._unable, rather=self._rather
            )
        except DeviceHeld as held:
            self._place = self._placement
            self._devices.keep_out(self._place, held)
        self._tried.append(self._place.device)
        self._made += 1
        return self._place

    def go_on(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        """Whether another attempt follows one that came to `end`; its device is given back.

        `stop`: the run is to end. `is_last`: nothing is run here after this case. What a device
        that was given up, is full or hot keeps from being tried costs none of the attempts allowed.
        """
        try:
            return self._goes_on(end, stop=stop, is_last=is_last)
        finally:
            self._devices.give_back(self._place)

    def _goes_on(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        if end in ("verdict", "cannot"):
            self._devices.device(self._place).fitness.succeeded()
            if end == "verdict" and self._again > 1:
                self._again -= 1
                self._retries += 1
                self._rather = self._place.device
                self._tried.clear()
                return not stop
            return end == "cannot" and self._ask_another_kind()
        unfit = self._place.is_shared and (end == "hot" or self._devices.is_unfit(self._place))
        if unfit:
            self._retries += 1
        if end == "hot":
            self._unable.append(self._place.device)
        again = self._made <= self._retries and not stop
        if end == "lab":
            self._devices.bring_back(self._place, again=again, is_last=is_last or stop)
        return again and self._devices.elsewhere(self._place, self._unable)

    def _ask_another_kind(self) -> bool:
        """Whether a device of another kind is asked, which costs none of the attempts allowed."""
        place, kinds = self._place, self._kinds
        alike = [one for one in place.candidates if kinds[one] == kinds[place.device]]
        if not self._devices.elsewhere(place, {*self._unable, *alike}):
            return False
        self._unable += alike
        self._retries += 1
        return True
