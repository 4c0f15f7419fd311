"""The attempts at a case: on which device each is made, and whether another one follows.

A fault of the lab is no verdict: the case is tried again there, or on another device that shares
it. What a device of one kind cannot do is asked of another kind, if any will do. With pytest-xdist
a worker gives such a case back, and the controller gives it to a worker with another device
(`Course`), which goes on counting (`MovedCase`). What was on the device is seen to meanwhile
(`workbench/beside.py`). A case that only one device can run waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from harness.ground.errors import HarnessError, NotYet
from harness.ground.host.deadline import Deadline

if TYPE_CHECKING:
    from harness.device.lab.attach import LabDevice
    from harness.run.workbench.placement import Placement
    from harness.run.workbench.workbench import Workbench

AttemptEnd = Literal["verdict", "cannot", "lab", "full", "hot"]
"""What an attempt came to: a verdict, that this target cannot do it, a fault of the lab, or that
there is no room on the device, or that it is too hot for a timed case, which are no faults that it
could be brought back from.
"""

_PATIENCE_S: Final = 1.0
"""How long a case waits for a device to be made ready while others can run it."""


@dataclass(frozen=True)
class MovedCase:
    """A case that goes from device to device, after `attempts`, with `left` more allowed.

    A worker tells its controller, in a report, which `device` gave it up; `cannot`: that said that
    it cannot do what the case is about. A controller tells a worker on which device it goes on.
    """

    device: str
    attempts: int
    left: int
    cannot: bool = False


class Twins:
    """Which of the devices that share a case take it, and when."""

    def __init__(self, workbench: Workbench, *, is_worker: bool) -> None:
        self._workbench = workbench
        self._is_worker = is_worker

    def device(self, placement: Placement) -> LabDevice:
        """The device that a placement is on now."""
        return self._workbench.lab.device(placement.device)

    def patience(self, placement: Placement) -> Deadline | None:
        """How long a case waits for a device; None for one that only this device can run."""
        return Deadline(_PATIENCE_S) if placement.is_shared else None

    def wait_for(self, placement: Placement) -> None:
        """Waits for a device that is lent, until that is ready, or that another process has.

        It is no time of a case. What goes wrong then is told when the device is used.
        """
        device = self.device(placement)
        with contextlib.suppress(HarnessError):
            if device.lease is not None and device.was_lent:
                device.lease.wait_back()
                self._workbench.ready(placement)
            elif device.lease is not None and not device.is_out:
                device.hold()

    def choose(
        self, placement: Placement, tried: Collection[str], unable: Collection[str] = ()
    ) -> Placement | None:
        """Where an attempt is made, if possible not among `tried`, once that is made ready.

        Those `unable` have said that they cannot do what it is about, and are not asked. None
        if this worker's device is not ready, and another worker may have one.
        """
        patience = self.patience(placement)
        if patience is None:
            return placement
        places = [one for one in self._places(placement) if one.device not in unable]
        while True:
            well = [one for one in places if self._workbench.problem(one) is None]
            if not well:
                return next((one for one in places if one.device not in tried), placement)
            well = [one for one in well if not self.device(one).is_taken] or well
            later = []
            for one in sorted(well, key=lambda one: self._rank(one, tried)):
                try:
                    self._workbench.ready(one, patience)
                except NotYet:
                    later.append(one)
                    continue
                except HarnessError:
                    if self._workbench.problem(one) is not None:
                        continue
                return one  # also with an error, which the case will tell
            if later and self._is_worker:
                return None
            if later:
                self._workbench.wait_for_any(later)
            patience = self.patience(placement)

    def gives_back(self, placement: Placement) -> bool:
        """Whether a controller gives a case to another device after a fault of the lab."""
        return self._is_worker and placement.is_shared

    def elsewhere(self, placement: Placement, tried: Collection[str] = ()) -> bool:
        """Whether this process has a device for a case that is not among `tried`."""
        return any(
            one.device not in tried and self._workbench.problem(one) is None
            for one in self._places(placement)
        )

    def is_unfit(self, placement: Placement) -> bool:
        """Whether a device was not what a case needs, before the case began."""
        return self._workbench.problem(placement) is not None

    def not_taken(self, placement: Placement) -> Placement:
        """The placement on another device, if another process has this one."""
        free = (one for one in self._places(placement) if not self.device(one).is_taken)
        return next(free, placement)

    def bring_back(self, placement: Placement, *, again: bool) -> None:
        """Brings a device back after a fault of the lab, or gives it up.

        `again`: another attempt is allowed. A case that other devices can run does not wait for it.
        """
        if not self.is_unfit(placement):
            within = Deadline(0) if placement.is_shared else None
            over = not again or within is not None
            self._workbench.recover(self.device(placement), case_over=over, within=within)

    def _places(self, placement: Placement) -> list[Placement]:
        others = [name for name in placement.candidates if name != placement.device]
        return [placement, *(placement.on(one) for one in others if not self._is_worker)]

    def _rank(self, placement: Placement, tried: Collection[str]) -> tuple[bool, bool]:
        later = self._workbench.is_busy(placement) or self.device(placement).is_out
        return later, placement.device in tried


class Attempts:
    """Those at one case in this process."""

    def __init__(
        self,
        twins: Twins,
        kinds: Mapping[str, str],
        placement: Placement,
        *,
        retries: int,
        before: int = 0,
        move: MovedCase | None = None,
        again: int = 0,
    ) -> None:
        """`kinds` has by device what it is; `retries` more are allowed after a fault of the lab.

        `before` attempts were made in a run that this one resumes. `move` says where a case goes on
        that another worker gave up. What has a verdict is run `again` until it has so many more.
        """
        if move is not None:
            placement = placement.on(move.device)
            before, retries = before + move.attempts, move.left - 1
        self._twins, self._kinds = twins, kinds
        self._placement, self._before, self._retries = placement, before, retries
        self._place = placement
        self._made = 0
        self._again, self.has_verdict = again, again > 0
        self._tried: list[str] = []
        self._unable: list[str] = []

    @property
    def number(self) -> int:
        return self._before + self._made

    def begin(self) -> Placement | None:
        """Where the next attempt is made; None if it is given back before anything was tried."""
        found = self._twins.choose(self._placement, self._tried, self._unable)
        if found is not None:
            self._place = found
            self._tried.append(found.device)
            self._made += 1
            self._twins.wait_for(found)
        return found

    def go_on(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        """Whether another attempt follows one that came to `end`; its device is brought back.

        `stop`: the run is to end. `is_last`: nobody uses the device after this case. What a device
        that was given up, is full or hot keeps from being tried costs none of the attempts allowed.
        """
        if end in ("verdict", "cannot"):
            self._twins.device(self._place).fitness.succeeded()
            if end == "verdict" and self._again > 1:
                self._again -= 1
                self._retries += 1
                self._placement = self._place
                self._tried.clear()
                return not stop
            return end == "cannot" and self._ask_another_kind()
        unfit = self._place.is_shared and (end == "hot" or self._twins.is_unfit(self._place))
        if unfit:
            self._retries += 1
        if end == "hot":
            self._unable.append(self._place.device)
        again = self._made <= self._retries
        if stop or (is_last and not again):
            return False
        if end == "lab":
            self._twins.bring_back(self._place, again=again)
        return (
            again and not self._twins.gives_back(self._place) and self._twins.elsewhere(self._place)
        )

    def given_up(self, end: AttemptEnd) -> MovedCase | None:
        """What the controller is told of a case whose last attempt here came to `end`."""
        case = self._placement
        cannot = end == "cannot" and len({self._kinds[name] for name in case.candidates}) > 1
        lost = end in ("lab", "full", "hot") and self._made <= self._retries and case.is_shared
        if not cannot and not lost:
            return None
        left = self._retries + 1 - self._made + cannot
        return MovedCase(self._place.device, self.number, left, cannot)

    def _ask_another_kind(self) -> bool:
        """Whether a device of another kind is asked, which costs none of the attempts allowed."""
        place, kinds = self._place, self._kinds
        alike = [one for one in place.candidates if kinds[one] == kinds[place.device]]
        if not self._twins.elsewhere(place, {*self._unable, *alike}):
            return False
        self._unable += alike
        self._retries += 1
        return True


@dataclass
class Course:
    """How a case fares that workers run, as their controller knows it.

    `said` are the reports of a case that is not `over`. `died_in` is the report of a worker that
    died in it, until another worker takes the case. `is_moving`: a worker still tells of a case
    that another will go on with.
    """

    died_in: Any = None
    over: bool = False
    said: list[Any] = field(default_factory=list)
    is_moving: bool = False
    _deaths: int = 0
    _move: MovedCase | None = None

    def died(self, retries: int) -> bool:
        """A worker died in it; whether another one is to run it."""
        self._deaths += 1
        return self._deaths <= max(1, retries)

    def goes_on(self, after: MovedCase) -> None:
        """Another worker will take it, once this one has told all."""
        self.is_moving, self._move = True, after

    def bound_to(self, device: str, own: str, retries: int) -> MovedCase | None:
        """What its worker is told when it gets it: `own` is the device that its name has."""
        if self._move is not None:
            return replace(self._move, device=device, cannot=False)
        return None if device == own else MovedCase(device, 0, retries + 1)
