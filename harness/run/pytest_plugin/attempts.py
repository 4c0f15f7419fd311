"""The attempts at a case: on which device each is made, and whether another one follows.

A fault of the lab is no verdict: the case is tried again there, or on another device that shares
it. What a device of one kind cannot do is asked of another kind, if any will do. With pytest-xdist
a worker tries on its own devices. If those do not serve, the controller gives the case to a worker
with another device (`Course`), which goes on counting (`MovedCase`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from harness.ground import HarnessError, InfraError

if TYPE_CHECKING:
    from harness.device import LabDevice
    from harness.run.workbench import Placement, Workbench

AttemptEnd = Literal["verdict", "cannot", "lab"]
"""What an attempt came to: a verdict, that this target cannot do it, or a fault of the lab."""


@dataclass(frozen=True)
class MovedCase:
    """A case that goes on elsewhere: on `device`, after `attempts`, with `left` more allowed."""

    device: str
    attempts: int
    left: int


@dataclass(frozen=True)
class GivenUp:
    """A case that another device may still do, and that `device` gave up.

    `cannot`: the device said that it cannot do what the case is about. `attempts` and `left` are as
    in `MovedCase`. It crosses from a worker to its controller in a report.
    """

    device: str
    cannot: bool
    attempts: int
    left: int


class Twins:
    """Which of the devices that share a case can take it."""

    def __init__(self, workbench: Workbench, *, is_worker: bool) -> None:
        """A worker has the devices that it was given and no other."""
        self._workbench = workbench
        self._is_worker = is_worker

    def device(self, placement: Placement) -> LabDevice:
        """The device that a placement is on now."""
        return self._workbench.lab.device(placement.device)

    def look_again(self, placement: Placement) -> None:
        """Raises InfraError for a device that takes no cases, which is looked at now and then."""
        device = self.device(placement)
        if device.is_out:
            self._workbench.look_again(device)

    def wait_for(self, placement: Placement) -> None:
        """Waits for a device that is lent, or that another process has.

        It is no time of a case. What goes wrong then is told when the device is used.
        """
        device = self.device(placement)
        with contextlib.suppress(InfraError):
            if device.lease is not None and device.lease.is_lent:
                device.lease.wait_back()
            elif device.lease is not None and not device.is_out:
                device.hold()

    def elsewhere(self, placement: Placement, tried: Collection[str] = ()) -> Placement | None:
        """The placement on another device that is fit and not among `tried`, if there is one."""
        others = self._others(placement, tried)
        return self._free(others) or next(iter(others), None)

    def not_taken(self, placement: Placement) -> Placement:
        """The placement on another device, if another process has this one."""
        if not placement.among or not self.device(placement).is_taken:
            return placement
        return self._free(self._others(placement)) or placement

    def bring_back(self, placement: Placement, *, again: bool) -> bool:
        """Brings a device back after a fault of the lab, or gives it up.

        `again`: another attempt is allowed. Returns whether it is worth while: not if neither this
        device nor another that shares the case can be used.
        """
        device = self.device(placement)
        if not device.is_out:
            over = not again or self.elsewhere(placement) is not None
            self._workbench.recover(device, case_over=over)
        return again and (not device.is_out or self.elsewhere(placement) is not None)

    def _others(self, placement: Placement, tried: Collection[str] = ()) -> list[Placement]:
        if self._is_worker:
            return []
        names = [name for name in placement.among if name not in (placement.device, *tried)]
        others = [placement.on(name) for name in names]
        return [one for one in others if not self.device(one).is_out]

    def _free(self, placements: Iterable[Placement]) -> Placement | None:
        """The first on a device that no other process has."""
        return next((one for one in placements if not self.device(one).is_taken), None)


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

    @property
    def number(self) -> int:
        """The number of the attempt that was begun last, the first is 1."""
        return self._before + self._made

    def begin(self) -> Placement:
        """Where the next attempt is made."""
        placement, twins = self._placement, self._twins
        own_is_out = False
        try:
            twins.look_again(placement)
        except HarnessError:
            own_is_out = True
        if self._tried or own_is_out:
            self._place = twins.elsewhere(placement, self._tried) or placement
        else:
            self._place = twins.not_taken(placement)
        self._tried.append(self._place.device)
        self._made += 1
        twins.wait_for(self._place)
        return self._place

    def go_on(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        """Whether another attempt follows one that came to `end`; its device is brought back.

        `stop`: the run is to end. `is_last`: nobody uses the device after this case.
        """
        if end != "lab":
            self._twins.device(self._place).fitness.succeeded()
            if end == "verdict" and self._again > 1:
                self._again -= 1
                self._retries += 1
                self._placement = self._place
                self._tried.clear()
                return not stop
            return end == "cannot" and self._ask_another_kind()
        again = self._made <= self._retries
        if stop or (is_last and not again):
            return False
        return self._twins.bring_back(self._place, again=again)

    def given_up(self, end: AttemptEnd) -> GivenUp | None:
        """What the controller is told of a case whose last attempt here came to `end`."""
        candidates = self._placement.candidates
        cannot = end == "cannot" and len({self._kinds[name] for name in candidates}) > 1
        if not cannot and (end != "lab" or self._made > self._retries):
            return None
        left = self._retries + 1 - self._made + cannot
        return GivenUp(self._place.device, cannot, self.number, left)

    def _ask_another_kind(self) -> bool:
        """Whether a device of another kind is asked, which costs none of the attempts allowed."""
        place, kinds = self._place, self._kinds
        alike = [one for one in place.among if kinds[one] == kinds[place.device]]
        if self._twins.elsewhere(place, {*self._tried, *alike}) is None:
            return False
        self._tried += alike
        self._retries += 1
        return True


@dataclass
class Course:
    """How a case fares that workers run, as their controller knows it.

    `said` are the reports of a case that is not `over`. `died_in` is the report of a worker that
    died in it, until another worker takes the case.
    """

    died_in: Any = None
    over: bool = False
    said: list[Any] = field(default_factory=list)
    _deaths: int = 0
    _moves: bool = False
    _move: MovedCase | None = None

    def died(self, retries: int) -> bool:
        """A worker died in it; whether another one is to run it."""
        self._deaths += 1
        return self._deaths <= max(1, retries)

    def goes_on(self, after: GivenUp) -> None:
        """Another worker will take it, once this one has told all."""
        self._moves = True
        self._move = MovedCase("", after.attempts, after.left)

    @property
    def is_moving(self) -> bool:
        """Whether a worker still tells of a case that another will go on with."""
        return self._moves

    def arrived(self) -> None:
        """Takes note that the worker which gave it up has told all."""
        self._moves = False

    def bound_to(self, device: str, own: str, retries: int) -> MovedCase | None:
        """What its worker is told when it gets it: `own` is the device that its name has."""
        if self._move is not None:
            return replace(self._move, device=device)
        return None if device == own else MovedCase(device, 0, retries + 1)
