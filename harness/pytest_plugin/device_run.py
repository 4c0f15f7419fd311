"""One run of device tests: what it is asked for, what it leaves, and what its cases run with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.pytest_plugin.asked import Asked
from harness.pytest_plugin.ending import Ending
from harness.pytest_plugin.options import Options
from harness.pytest_plugin.records import Records

if TYPE_CHECKING:
    from harness.host.guard import GuardedProcess
    from harness.lab.attach import LabDevice
    from harness.pytest_plugin.collected import Collected
    from harness.pytest_plugin.messages import Messages
    from harness.pytest_plugin.terminal import Live
    from harness.workbench import Need, Placement, ReadyPlacement, Workbench


class Run:
    """Made when pytest starts, but touches nothing until a device test is collected."""

    def __init__(
        self,
        options: Options,
        *,
        works_for: Path | None = None,
        ending: Ending | None = None,
    ) -> None:
        """`works_for` and `ending` are as in `Records`."""
        self.options = options
        self.ending = ending or Ending()
        self.asked = Asked(options)
        self.asked.takes_places = works_for is None
        self.records = Records(self.asked, self.ending, works_for)
        self.ended = False
        self.problem: HarnessError | None = None
        self.messages: Messages | None = None
        self.collected: Collected | None = None
        self.live: Live | None = None
        self._needs: Sequence[Need] = ()
        self._workbench: Workbench | None = None
        self._ahead: GuardedProcess | None = None

    @property
    def workbench(self) -> Workbench:
        """What cases are run with; made on first use, ended by `close`."""
        if self._workbench is None:
            from harness.files.cache import cache_root, lease_root
            from harness.lab.lease import Leases
            from harness.workbench import Workbench

            purpose = f"pytest, run {self.records.planned_folder.name}"
            self._workbench = Workbench(
                self.asked.lab,
                cache=cache_root(),
                tell=self.records.note_event,
                leases=Leases(lease_root(), purpose=purpose),
                lease_wait_s=self.options.lease_timeout_s,
                catalog=self.asked.catalog,
                preflight=self.options.preflight,
                run=str(self.records.planned_folder),
                executorch=self.options.executorch,
            )
        return self._workbench

    def close(self) -> None:
        """Ends everything the run started."""
        if self._ahead is not None:
            self._ahead.stop()
        if self._workbench is not None:
            self._workbench.close()
        self.asked.close()

    def will_run(self, cases: Mapping[str, str], side_by_side: int = 1) -> None:
        """Opens the run's folder for cases, {node id: device or pool}; who watches sees them.

        So many of them run at the same time.
        """
        self.records.will_run(cases)
        if self.live is not None and self.records.folder is not None:
            shared = Counter(self.asked.sharing.values())
            self.live.begin(cases, side_by_side, self.records.folder, shared)

    def begin(self, needs: Sequence[Need]) -> None:
        """Makes everything ready that the cases need.

        Raises an error if no case at all can run and no device is to blame. A worker makes ready
        what it is given, when it is given it.
        """
        from harness.workbench.placement import by_placement

        self._needs = needs = [
            replace(need, placement=self._not_taken(need.placement)) for need in needs
        ]
        self.workbench.needs = {
            placement.on(device): sources
            for placement, sources in by_placement(needs).items()
            for device in placement.candidates
        }
        if self.records.is_worker:
            if self.messages is not None:
                self.messages.ends_in_order()
            return
        failed = self.workbench.prepare(needs)
        self.records.write_events()
        if needs and all(need.placement in failed for need in needs):
            self._nothing_ready(list(failed.values()))

    def _nothing_ready(self, errors: Sequence[HarnessError]) -> None:
        """Raises why no case can be run, unless a device is out of reach: that may come back."""
        from harness.errors import DeviceError, DeviceRefused, InfraError

        if any(self.device(need.placement).is_out for need in self._needs):
            return
        lost = [error for error in errors if isinstance(error, DeviceError)]
        if all(isinstance(error, DeviceRefused) for error in lost):
            raise next((error for error in errors if isinstance(error, InfraError)), errors[0])

    def device(self, placement: Placement) -> LabDevice:
        """The device that a placement is on now."""
        return self.workbench.lab.device(placement.device)

    def _look_again(self, device: LabDevice) -> None:
        """Raises InfraError for a device that takes no cases, though looked at once in a while."""
        if device.is_out:
            self.workbench.look_again(device)

    def prepare_ahead(self) -> None:
        """Begins to make ready what `--ahead` asks for. Raises HarnessError."""
        if self.options.ahead and self._needs and not self.records.is_worker:
            from harness.pytest_plugin.prefetch import begin_ahead

            self._ahead = begin_ahead(self.asked, self.workbench, self._needs)

    def ready(self, placement: Placement) -> ReadyPlacement:
        """A placement, with all that its cases need there. Raises HarnessError."""
        self._look_again(self.device(placement))
        return self.workbench.ready(placement)

    def lab_failed(self, placement: Placement, *, again: bool) -> bool:
        """Brings a device back after a fault of the lab, or gives it up.

        `again`: another attempt is allowed. Returns whether it is worth while: not if neither this
        device nor another that shares the case can be used.
        """
        device = self.device(placement)
        if not device.is_out:
            over = not again or self.elsewhere(placement) is not None
            self.workbench.recover(device, case_over=over)
        return again and (not device.is_out or self.elsewhere(placement) is not None)

    def elsewhere(self, placement: Placement, tried: Collection[str] = ()) -> Placement | None:
        """The same on another device that shares the case, if one is fit and not among `tried`.

        A worker has the devices that it was given and no other: the controller moves its cases.
        """
        others = self._others(placement, tried)
        return self._free(others) or next(iter(others), None)

    def _others(self, placement: Placement, tried: Collection[str] = ()) -> list[Placement]:
        if self.records.is_worker:
            return []
        names = [name for name in placement.among if name not in (placement.device, *tried)]
        others = [placement.on(name) for name in names]
        return [one for one in others if not self.device(one).is_out]

    def _not_taken(self, placement: Placement) -> Placement:
        """The same on another of those that share the case, if another process has this one."""
        if not placement.among or not self.device(placement).is_taken:
            return placement
        return self._free(self._others(placement)) or placement

    def _free(self, placements: Iterable[Placement]) -> Placement | None:
        """The first on a device that no other process has."""
        return next((one for one in placements if not self.device(one).is_taken), None)

    def unable_alike(self, placement: Placement, tried: Collection[str]) -> list[str]:
        """The devices that are as unable as the one that a case was on.

        None if no other device can be asked: there may be none, or it is for the controller to say.
        """
        kinds = self.asked.kinds
        alike = [one for one in placement.among if kinds[one] == kinds[placement.device]]
        return alike if self.elsewhere(placement, {*tried, *alike}) is not None else []

    def place(self, placement: Placement, tried: Collection[str]) -> Placement:
        """Where the next attempt at a case runs, which failed on the devices `tried` before."""
        own_is_out = False
        try:
            self._look_again(self.device(placement))
        except HarnessError:
            own_is_out = True
        if tried or own_is_out:
            return self.elsewhere(placement, tried) or placement
        return self._not_taken(placement)
