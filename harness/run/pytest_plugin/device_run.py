"""One run of device tests: what it is asked for, what it leaves, and what its cases run with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.ground.errors import HarnessError
from harness.ground.host.ending import Ending
from harness.run.pytest_plugin.asked import Selection
from harness.run.pytest_plugin.attempts import Attempts, Twins
from harness.run.pytest_plugin.options import Options
from harness.run.pytest_plugin.records import Records

if TYPE_CHECKING:
    from harness.run.pytest_plugin.collected import Collected
    from harness.run.pytest_plugin.messages import Messages
    from harness.run.pytest_plugin.terminal import Live
    from harness.run.workbench.held_device import ReadyPlacement
    from harness.run.workbench.placement import Need, Placement
    from harness.run.workbench.workbench import Workbench


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
        self.asked = Selection(options)
        self.asked.takes_places = works_for is None
        self.records = Records(self.asked, self.ending, works_for)
        self.ended = self._rests = self._has_begun = False
        self._busy = threading.Lock()  # a case has it, and who lends devices while none runs
        self._busy.acquire()
        self.problem: HarnessError | None = None
        self.messages: Messages | None = None
        self.collected: Collected | None = None
        self.live: Live | None = None
        self._needs: Sequence[Need] = ()
        self._workbench: Workbench | None = None
        self.tell_controller: Callable[[str], None] = lambda word: None
        """Tells the scheduler, from a worker, how a device stands, or that a case is returned."""

    @property
    def workbench(self) -> Workbench:
        """What cases are run with; made on first use, ended by `close`."""
        if self._workbench is None:
            from harness.device.lab.lease import Leases
            from harness.ground.files.cache import cache_root, lease_root
            from harness.run.workbench.workbench import Workbench

            purpose = f"pytest, run {self.records.planned_folder.name}"
            leases = Leases(lease_root(), purpose=purpose)
            leases.at_beat = self._lend_at_rest
            self._workbench = Workbench(
                self.asked.lab,
                cache=cache_root(),
                tell=self.records.note_event,
                leases=leases,
                lease_wait_s=self.options.lease_timeout_s,
                catalog=self.asked.catalog,
                preflight=self.options.preflight,
                run=str(self.records.planned_folder),
                executorch=self.options.executorch,
                stands=lambda device, how: self.tell_controller(f"{how} {device.name}"),
            )
        return self._workbench

    def close(self) -> None:
        """Ends everything the run started."""
        if self._workbench is not None:
            self._workbench.close()
        self.asked.close()

    def will_run(self, cases: Collection[str]) -> None:
        """Opens the run's folder for cases, by their node ids, and shows them."""
        self.records.will_run(cases)
        if self.live is not None and self.records.folder is not None:
            self.live.begin(cases)

    def begin(self, needs: Sequence[Need]) -> None:
        """Makes everything ready that the cases need.

        Raises an error if no case at all can run and no device is to blame. A worker makes ready
        only what it is given, case by case.
        """
        from harness.run.workbench.placement import by_placement

        self._needs = needs = [
            replace(need, placement=self.twins.not_taken(need.placement)) for need in needs
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
        failed = {
            **self.workbench.prepare([one for one in needs if not one.placement.is_shared]),
            **self._prepare_shared([one for one in needs if one.placement.is_shared]),
        }
        self.records.write_events()
        if needs and all(need.placement in failed for need in needs):
            self._nothing_ready(list(failed.values()))

    def _prepare_shared(self, needs: Sequence[Need]) -> Mapping[Placement, HarnessError]:
        """Makes ready what other devices may do as well, and what is wrong with all of them."""
        from harness.ground.errors import DeviceError, NotYet

        if not needs:
            return {}
        failed = self.workbench.prepare(needs, self.twins.patience(needs[0].placement))
        of_device = (NotYet, DeviceError)
        return {place: why for place, why in failed.items() if not isinstance(why, of_device)}

    def _nothing_ready(self, errors: Sequence[HarnessError]) -> None:
        """Raises why no case can be run, unless a device is out of reach: that may come back."""
        from harness.ground.errors import DeviceError, DeviceRefused, InfraError

        if any(self.twins.device(need.placement).is_out for need in self._needs):
            return
        lost = [error for error in errors if isinstance(error, DeviceError)]
        if all(isinstance(error, DeviceRefused) for error in lost):
            raise next((error for error in errors if isinstance(error, InfraError)), errors[0])

    @cached_property
    def twins(self) -> Twins:
        return Twins(self.workbench, is_worker=self.records.is_worker)

    def attempts(self, node_id: str, placement: Placement) -> Attempts:
        """The attempts at a case that begins here, or goes on after others elsewhere."""
        earlier = self.records.earlier.get(node_id)
        again = (self.records.again or {}).get(node_id, 0)
        was_on = earlier.device.name if earlier and earlier.device else None
        if again and was_on in placement.among and not self.records.is_worker:
            placement = placement.on(str(was_on))
        return Attempts(
            self.twins,
            self.asked.kinds,
            placement,
            retries=self.options.retries,
            before=earlier.attempt if earlier else 0,
            move=self.messages.find(node_id) if self.messages else None,
            again=again,
        )

    def lend(self) -> None:
        """Hands over devices that persons ask for; to be called between cases."""
        if self._workbench is not None:
            self._workbench.lend_asked()

    def rest(self) -> None:
        """A worker has nothing to do until `resume`; devices are handed over meanwhile, too."""
        self._rests = True
        self._busy.release()

    def resume(self) -> None:
        """A case begins: the first when who asked for a device meanwhile has it."""
        if self._rests:
            self._busy.acquire()
            self._rests = False
        if not self._has_begun:
            self._has_begun = True
            self.lend()

    def _lend_at_rest(self) -> None:
        if self._busy.acquire(blocking=False):
            try:
                self.lend()
            finally:
                self._busy.release()

    def ready(self, placement: Placement) -> ReadyPlacement:
        """A placement, with all that its cases need there. Raises HarnessError."""
        return self.workbench.ready(placement, self.twins.patience(placement))
