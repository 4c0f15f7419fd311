"""One run of device tests: what it is asked for, what it leaves, and what its cases run with.

A device is leased for one attempt. A fault of the lab is no verdict: the case is tried again, on
another device if one shares it. What a device of one kind cannot do is asked of another kind, if
any will do. A device that failed is seen to meanwhile (`bench/workbench.py`), which keeps its
lease; a case that only this device can run waits for that.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from harness.core.ending import Ending
from harness.core.errors import ConfigError, HarnessError, NotYet
from harness.core.outgoing_text import counted
from harness.core.whole_file import read_json
from harness.plugin.asked import Selection
from harness.plugin.collected import (
    asked_of,
    files_sha256,
    placement_of,
    selection,
    test_code,
)
from harness.plugin.options import Options
from harness.plugin.terminal import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.bench.placement import Need, Placement
    from harness.bench.target import Target
    from harness.bench.workbench import Workbench
    from harness.lab.attach import LabDevice
    from harness.lab.lease import DeviceHeld, Missed
    from harness.plugin.collected import Collected
    from harness.plugin.terminal import Live


if TYPE_CHECKING:
    from harness.core.ending import Ending
    from harness.lab.health import LabEvent
    from harness.plugin.asked import Selection
    from harness.results.known_issues import CollectedTests
    from harness.results.record import CaseRecord, DeviceEvent
    from harness.results.run_folder import RunFolder

    Record = CaseRecord | DeviceEvent

_MAX_AGAIN_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class Records:
    """What a run leaves behind: its folder, once there is something to keep, and its journal."""

    def __init__(self, asked: Selection, ending: Ending, works_for: Path | None = None) -> None:
        """`works_for` is the folder of the run that an xdist worker is part of.

        `ending` begins to watch once there is something to end in order.
        """
        self.to_run = 0
        self.folder: RunFolder | None = None
        self.code: Mapping[str, str] = {}
        self._asked = asked
        self._ending = ending
        self._works_for = works_for
        self._held: RunFolder | None = None
        self._events: list[Record] = []

    @property
    def is_worker(self) -> bool:
        return self._works_for is not None

    @cached_property
    def planned_folder(self) -> Path:
        """Where the results will be; `open_folder` makes it once there is something to keep."""
        from harness.results.run_folder import RunFolder, new_run_id

        if self._asked.options.resume is not None:
            return RunFolder.open(self._asked.options.resume).path
        return self._works_for or self._asked.options.reports / new_run_id()

    def hold(self) -> None:
        """Keeps the run to be resumed from other processes. Raises ConfigError or InfraError."""
        if self._asked.options.resume is not None and not self.is_worker:
            from harness.results.run_folder import RunFolder

            self._held = RunFolder.held(self._asked.options.resume)

    def let_go(self) -> None:
        """Others may complete it."""
        for folder in (self.folder, self._held):
            if folder is not None:
                folder.close()

    def open_folder(self) -> RunFolder:
        """The folder of the run, made on first use. Raises ConfigError or InfraError."""
        from harness.results.run_folder import RunFolder

        if self.folder is None and self._works_for is not None:
            self.folder = RunFolder(self._works_for)
        elif self.folder is None and self._asked.options.resume is not None:
            self.folder = self._held or RunFolder.held(self._asked.options.resume)
            self.folder.resume(sys.argv)
        elif self.folder is None:
            self.folder = RunFolder.create(
                self._asked.options.reports,
                command=sys.argv,
                lab=self._asked.lab.model_dump(mode="json"),
                devices=[device.name for device in self._asked.devices],
                more={
                    "known_issues": {issue.id: issue.link for issue in self._asked.known_issues},
                    "selection": list(selection(sys.argv)),
                    "code": dict(self.code),
                },
                run_id=self.planned_folder.name,
            )
        return self.folder

    def last_durations(self) -> dict[str, float]:
        """How long each case took in the last run of the same selection."""
        from harness.history.previous import last_durations

        return last_durations(self.planned_folder, list(selection(sys.argv)))

    def withdraw(self) -> None:
        """Nothing stays of a run that was refused before a case of it had a record."""
        folder, begun_here = self.folder, self._asked.options.resume is None and not self.is_worker
        if folder is not None and begun_here and not folder.contents().records:
            folder.remove()
            self.folder = None

    @cached_property
    def earlier(self) -> dict[str, CaseRecord]:
        """With `--resume`, the last record of each case that the run holds already."""
        if self._asked.options.resume is None:
            return {}
        from harness.results.run_folder import RunFolder

        cases = RunFolder.open(self._asked.options.resume).contents().cases
        return {record.case: record for record in cases}

    @cached_property
    def again(self) -> dict[str, int] | None:
        """With `--again`, how often each case is to be run again. Raises ConfigError."""
        if (file := self._asked.options.again) is None:
            return None
        try:
            said = read_json(file, _MAX_AGAIN_BYTES)
            return {str(name): int(times) for name, times in said.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"says no times by node id: {error}", file=file) from error

    def is_done(self, item: pytest.Item) -> bool:
        """Whether a test need not be run now: a case that has its verdict, as far as it is not to
        be run again. Raises ConfigError."""
        if self.again is not None:
            return item.nodeid not in self.again
        return placement_of(item) is not None and self._has_verdict(item)

    def _has_verdict(self, item: pytest.Item) -> bool:
        """Whether a case ran on these very files, and has its verdict.

        Raises ConfigError where something else was asked of its file: that is another case.
        """
        from harness.results.coverage import LOST_TO

        record = self.earlier.get(item.nodeid)
        if record is None:
            return False
        if record.asked != (asked := asked_of(item, self._asked.options.contexts)):
            problem = f"asked something else of {item.nodeid} ({record.asked or 'no option'}) than "
            advice = f"is asked now ({asked or 'no option'}): name the same, or begin a new run"
            raise ConfigError(problem + advice, file=self.planned_folder)
        if record.standing in LOST_TO:
            return False
        return record.files_sha256 == files_sha256(item)

    def note_code(self, items: Sequence[pytest.Item]) -> None:
        """Takes note of what says what these tests do, so that runs tell whether it changed."""
        self.code = test_code(items, self._asked)

    def will_run(self, cases: Collection[str]) -> None:
        """Opens the run's folder: from now on every case that has no record was not run."""
        self._ending.watch()
        self.to_run = len(cases)
        folder = self.open_folder()
        if not self.is_worker:
            before = folder.selected_cases()
            folder.keep_selected(cases)
            added = len((folder.selected_cases() or before or set()) - (before or set()))
            if before and added:
                more = counted(added, "case")
                _log.warning("--resume adds %s to this run, which had %d", more, len(before))

    def note_event(self, event: LabEvent) -> None:
        """Takes note of what happened to a device, once there is a journal."""
        from harness.results.record import DeviceEvent

        if self.folder is not None:
            self._events.append(DeviceEvent.of(event, run=self.folder.run_id))

    def write_events(self) -> None:
        """Writes down what happened outside of any case."""
        for record in self.take_events():
            self.open_folder().journal.append(record)

    def take_events(self) -> list[Record]:
        """What happened to devices since this was last called."""
        taken = self._events[:]
        del self._events[: len(taken)]  # not what another thread adds meanwhile
        return taken

    def told_at_end(self) -> list[dict[str, Any]]:
        """The events of a worker that no case of it came to tell, as plain values."""
        return [record.model_dump(mode="json") for record in self.take_events()]

    def attach(self, records: Sequence[Record], report: pytest.TestReport) -> None:
        """Gives a report the lines for the journal; a worker's report takes plain values only."""
        plain = [record.model_dump(mode="json") for record in records if self.is_worker]
        setattr(report, RECORDS, plain or records)

    def remarks(self, cases: Iterable[CaseRecord], collected: CollectedTests | None) -> list[str]:
        """What else the user should know at the end of a run; `collected`: all there are."""
        from harness.report.summary import event_lines, preflight_lines
        from harness.results.journal import read_once
        from harness.results.known_issues import review_lines

        issues, today = self._asked.known_issues, datetime.now(UTC).date()
        review = partial(review_lines, issues=issues, today=today, collected=collected)
        found, reviewed = read_once(cases, preflight_lines, review)
        if self.folder is not None:
            found += event_lines(self.folder.contents().events)
            if self.to_run:
                found += [f"left out: {why}" for why in self._asked.runtimes.reasons]
        return [*found, *reviewed]

    def finish(
        self, exit_code: int, problem: str | None = None, *, other_failures: bool = False
    ) -> list[str]:
        """Closes the journal and writes the reports that are made from it.

        Returns what is to be printed for the CI system that runs this, if one does.
        """
        if self.folder is None or self.is_worker:
            return []
        from harness.history.previous import since_previous
        from harness.report import projections
        from harness.report.ci import tell_ci

        self.write_events()
        made_of = projections.finish(
            self.folder,
            exit_code=exit_code,
            problem=problem,
            other_failures=other_failures,
            since=since_previous(self.folder),
        )
        return tell_ci(made_of, self.folder.path, os.environ)


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
        from harness.lab.lease import DeviceHeld

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
        from harness.lab.lease import DeviceHeld

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
            from harness.bench.workbench import Workbench
            from harness.core.cache import cache_root, lease_root
            from harness.lab.lease import Leases

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
        from harness.bench.placement import by_placement

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
        from harness.core.errors import DeviceError, NotYet
        from harness.lab.lease import DeviceHeld

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
        from harness.core.errors import DeviceError, DeviceRefused, InfraError

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
