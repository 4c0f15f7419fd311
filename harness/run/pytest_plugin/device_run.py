"""One run of device tests: what it is asked for, what it leaves, and what its cases run with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.ground.errors import HarnessError
from harness.ground.host.ending import Ending
from harness.run.pytest_plugin.asked import Selection
from harness.run.pytest_plugin.attempts import Attempts, FreeDevices
from harness.run.pytest_plugin.options import Options
from harness.run.pytest_plugin.records import Records

if TYPE_CHECKING:
    from harness.run.pytest_plugin.collected import Collected
    from harness.run.pytest_plugin.terminal import Live
    from harness.run.workbench.placement import Need, Placement
    from harness.run.workbench.target import Target
    from harness.run.workbench.workbench import Workbench


class Run:
    """Made when pytest starts, but touches nothing until a device test is collected."""

    def __init__(
        self,
        options: Options,
        *,
        works_for: Path | None = None,
        worker: str = "",
        ending: Ending | None = None,
    ) -> None:
        """`works_for` and `ending` are as in `Records`; `worker` is its name with pytest-xdist."""
        self.options = options
        self.ending = ending or Ending()
        self.asked = Selection(options)
        self.asked.takes_places = works_for is None
        self.records = Records(self.asked, self.ending, works_for)
        self.ended = False
        self.problem: HarnessError | None = None
        self.collected: Collected | None = None
        self.live: Live | None = None
        self._worker = worker
        self._workbench: Workbench | None = None

    @property
    def workbench(self) -> Workbench:
        """What cases are run with; made on first use, ended by `close`."""
        if self._workbench is None:
            from harness.device.lab.lease import Leases
            from harness.ground.files.cache import cache_root, lease_root
            from harness.run.workbench.workbench import Workbench

            purpose = f"pytest, run {self.records.planned_folder.name}"
            leases = Leases(lease_root(), purpose=purpose, of_run=True)
            self._workbench = Workbench(
                self.asked.lab,
                cache=cache_root(),
                tell=self.records.note_event,
                leases=leases,
                lease_wait_s=self.options.lease_timeout_s,
                catalog=self.asked.catalog,
                preflight=self.options.preflight,
                run=str(self.records.planned_folder),
                process=self._worker,
                executorch=self.options.executorch,
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
        """Takes note of what the cases need, and makes ready what can be had at once.

        Raises an error if no case at all can run and no device is to blame. A worker makes ready
        only what it is given, case by case.
        """
        from harness.run.workbench.placement import by_placement

        wanted = by_placement(needs)
        self.workbench.needs = {
            placement.on(device): sources
            for placement, sources in wanted.items()
            for device in placement.candidates
        }
        if self.records.is_worker:
            return
        failed = {placement: self._first_problem(placement) for placement in wanted}
        self.records.write_events()
        if wanted and all(failed.values()):
            self._nothing_ready(list(wanted), list(filter(None, failed.values())))

    def _first_problem(self, placement: Placement) -> HarnessError | None:
        """Makes a placement ready on a device that is free; what is wrong with all of them."""
        from harness.device.lab.lease import DeviceHeld
        from harness.ground.errors import DeviceError, NotYet

        place = placement
        try:
            place = self.devices.take(placement, wait=False)
            self.workbench.ready(place)
        except HarnessError as error:
            passing = (DeviceHeld, NotYet, DeviceError) if placement.is_shared else DeviceHeld
            return None if isinstance(error, passing) else error
        finally:
            self.devices.give_back(place)
        return None

    def _nothing_ready(
        self, placements: Sequence[Placement], errors: Sequence[HarnessError]
    ) -> None:
        """Raises why no case can be run, unless a device is out of reach: that may come back."""
        from harness.ground.errors import DeviceError, DeviceRefused, InfraError

        places = (one.on(name) for one in placements for name in one.candidates)
        if any(self.devices.device(place).is_out for place in places):
            return
        lost = [error for error in errors if isinstance(error, DeviceError)]
        if all(isinstance(error, DeviceRefused) for error in lost):
            raise next((error for error in errors if isinstance(error, InfraError)), errors[0])

    @cached_property
    def devices(self) -> FreeDevices:
        number = self._worker.removeprefix("gw")
        return FreeDevices(self.workbench, int(number) if number.isdecimal() else 0)

    def attempts(self, node_id: str, placement: Placement) -> Attempts:
        """The attempts at a case that begins here, or goes on after those of an earlier run."""
        earlier = self.records.earlier.get(node_id)
        again = (self.records.again or {}).get(node_id, 0)
        was_on = earlier.device.name if again and earlier and earlier.device else ""
        return Attempts(
            self.devices,
            self.asked.kinds,
            placement,
            retries=self.options.retries,
            before=earlier.attempt if earlier else 0,
            again=again,
            rather=was_on,
        )

    def ready(self, placement: Placement) -> Target:
        """A placement, with all that its cases need there. Raises HarnessError."""
        return self.workbench.ready(placement)
