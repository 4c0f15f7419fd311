"""One run of device tests: its selection, its records, and the devices of its cases.

A device is leased for one attempt. A fault of the lab is no verdict: the case is tried again, on
another device if several share it. A case that one kind of device does not support is tried on
another kind, if any device will do. A device that failed is recovered in the background
(`bench/run_preparation.py`) under its lease; a case that only this device can run waits for it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from harness.core.end_signals import Ending
from harness.core.errors import ConfigError, HarnessError, NotYet
from harness.core.files import read_json
from harness.core.outgoing_text import counted
from harness.plugin.collection import file_options, files_sha256, placement_of, selection, test_code
from harness.plugin.options import Options
from harness.plugin.selection import Selection
from harness.plugin.terminal import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.bench.case_placement import Need, Placement
    from harness.bench.run_preparation import Workbench
    from harness.lab.health import DeviceEvent
    from harness.lab.lab_device import LabDevice
    from harness.lab.lease import Occupied
    from harness.models.contexts import Source
    from harness.plugin.collection import Collected
    from harness.plugin.scheduling import Forecast
    from harness.plugin.terminal import Failures, Live
    from harness.report.sections import RunData, Since
    from harness.results.journal import Records as JournaledRecords
    from harness.results.known_issues import CollectedTests
    from harness.results.record import CaseRecord
    from harness.results.run_folder import RunFolder

    Record = CaseRecord | DeviceEvent

_MAX_AGAIN_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class Records:
    """The records of a run: its folder, created when there is something to keep, and journal."""

    def __init__(
        self,
        selection: Selection,
        ending: Ending,
        worker_of: Path | None = None,
        recorded: int | None = None,
    ) -> None:
        """`worker_of` is the folder of the run that an xdist worker is part of.

        `recorded` is the number of records that a resumed run had as it was resumed: a worker that
        replaces another has to collect the same tests. `ending` watches for signals once the run
        has something to close.
        """
        self.to_run = 0
        self.folder: RunFolder | None = None
        self.code: Mapping[str, str] = {}
        self._selection = selection
        self._ending = ending
        self._worker_of = worker_of
        self._recorded = recorded
        self._locked: RunFolder | None = None
        self._events: list[Record] = []
        self.since: Since | None = None

    @property
    def is_worker(self) -> bool:
        return self._worker_of is not None

    @cached_property
    def planned_folder(self) -> Path:
        """The folder of the results; `open_folder` creates it."""
        from harness.results.run_folder import RunFolder, new_run_id

        if self._selection.options.resume is not None:
            return RunFolder.open(self._selection.options.resume).path
        return self._worker_of or self._selection.options.reports / new_run_id()

    def lock(self) -> None:
        """Lock the run to be resumed against other processes. Raises ConfigError or InfraError."""
        if self._selection.options.resume is not None and not self.is_worker:
            from harness.results.run_folder import RunFolder

            self._locked = RunFolder.reopen(self._selection.options.resume)

    def release(self) -> None:
        """Unlock the run, so that others may complete it."""
        for folder in (self.folder, self._locked):
            if folder is not None:
                folder.close()

    def open_folder(self) -> RunFolder:
        """Return the folder of the run, created at the first call.

        Raises ConfigError or InfraError.
        """
        from harness.results.run_folder import RunFolder

        known_issues = self._selection.known_issues  # a resumed run ends at their mistakes, too
        if self.folder is None and self._worker_of is not None:
            self.folder = RunFolder(self._worker_of)
        elif self.folder is None and self._selection.options.resume is not None:
            self.folder = self._locked or RunFolder.reopen(self._selection.options.resume)
            self.folder.resume(sys.argv)
        elif self.folder is None:
            self.folder = RunFolder.create(
                self._selection.options.reports,
                command=sys.argv,
                lab=self._selection.lab.model_dump(mode="json"),
                devices=[device.name for device in self._selection.devices],
                more={
                    "known_issues": {issue.id: issue.link for issue in known_issues},
                    "selection": list(selection(sys.argv)),
                    "code": dict(self.code),
                },
                run_id=self.planned_folder.name,
            )
        return self.folder

    def discard(self) -> None:
        """Remove the folder of a run that was refused before any case had a record."""
        folder = self.folder
        is_own = self._selection.options.resume is None and not self.is_worker
        if folder is not None and is_own and not folder.contents().records:
            folder.remove()
            self.folder = None

    @cached_property
    def earlier(self) -> dict[str, CaseRecord]:
        """With `--resume`, the last record of each case in the resumed run."""
        if self._selection.options.resume is None:
            return {}
        return {record.case: record for record in islice(self._resumed, self._recorded)}

    @cached_property
    def recorded(self) -> int | None:
        """With `--resume`, the number of records now, as it is sent to workers."""
        return None if self._selection.options.resume is None else len(self._resumed)

    @cached_property
    def _resumed(self) -> JournaledRecords:
        from harness.results.run_folder import RunFolder

        resumed = self._selection.options.resume
        assert resumed is not None
        return RunFolder.open(resumed).contents().records

    @cached_property
    def again(self) -> dict[str, int] | None:
        """With `qnn_again`, the number of further runs of each case. Raises ConfigError."""
        if (file := self._selection.options.again) is None:
            return None
        try:
            times = read_json(file, _MAX_AGAIN_BYTES)
            return {str(name): int(count) for name, count in times.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"is not a JSON object of node ids and numbers of runs: {error}", file=file
            ) from error

    def is_done(self, item: pytest.Item) -> bool:
        """Return whether a test is left out: it has its verdict, or `qnn_again` does not name it.

        A verdict is about the files as they are now. Raises ConfigError if a case's file had other
        options: that is another case.
        """
        if self.again is not None:
            return item.nodeid not in self.again
        record = self.earlier.get(item.nodeid) if placement_of(item) is not None else None
        if record is None:
            return False
        from harness.results.coverage import LOST_TO

        options = file_options(item, self._selection.options.contexts)
        if record.asked != options:
            problem = f"ran {item.nodeid} with other options ({record.asked or 'none'}, now "
            advice = f"{options or 'none'}); use the same options, or start a new run"
            raise ConfigError(problem + advice, file=self.planned_folder)
        return record.standing not in LOST_TO and record.files_sha256 == files_sha256(item)

    def note_code(self, items: Sequence[pytest.Item]) -> None:
        """Record the digests of the tests' code, so that runs show whether it changed."""
        self.code = test_code(items, self._selection)

    def announce(self, cases: Collection[str]) -> None:
        """Open the run's folder with the list of cases; those without a record were not run."""
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

    def note_event(self, event: DeviceEvent) -> None:
        """Record an event of a device, once there is a journal."""
        if self.folder is not None:
            self._events.append(event.model_copy(update={"run": self.folder.run_id}))

    def write_events(self) -> None:
        """Write the events that happened outside of any case."""
        for record in self.take_events():
            self.open_folder().journal.append(record)

    def take_events(self) -> list[Record]:
        events = self._events[:]
        del self._events[: len(events)]  # another thread may have added more
        return events

    def attach(self, records: Sequence[Record], report: pytest.TestReport) -> None:
        """Attach lines for the journal to a report; a worker's report takes plain values only."""
        plain = [record.model_dump(mode="json") for record in records if self.is_worker]
        setattr(report, RECORDS, plain or records)

    def remarks(
        self, cases: Iterable[CaseRecord], collected: CollectedTests | None, *, brief: bool
    ) -> list[str]:
        """Return notes for the end of a run; `brief` ones without findings of preflight."""
        from harness.report.summary import event_lines, gaps, preflight_lines
        from harness.results.journal import read_once
        from harness.results.known_issues import review_lines

        issues, today = self._selection.known_issues, datetime.now(UTC).date()
        review = partial(review_lines, issues=issues, today=today, collected=collected)
        reviewed, *others = read_once(cases, review, *(() if brief else (preflight_lines,)))
        lines = [*chain.from_iterable(others)]
        if self.folder is not None:
            lines += event_lines(self.folder.contents().events)
            lines += gaps(self.folder.info())
        return [*lines, *reviewed]

    def finish(
        self,
        exit_code: int,
        problem: str | None = None,
        *,
        other_failures: bool = False,
        not_started: Sequence[str] = (),
    ) -> RunData | None:
        if self.folder is None or self.is_worker:
            return None
        from harness.history.previous_run import since_previous
        from harness.report import report_files

        self.write_events()
        self.since = since_previous(self.folder)
        return report_files.finish(
            self.folder,
            self.since,
            exit_code=exit_code,
            problem=problem,
            other_failures=other_failures,
            left_out=self._selection.runtimes.reasons if self.to_run else (),
            not_started=not_started,
        )


AttemptEnd = Literal["verdict", "unsupported", "lab", "full", "hot"]
"""The end of an attempt: a verdict, also that the target does not support it, or a fault of the
lab. A full device, or one that is too hot for a timed case, is no fault to recover from.
"""

_PATIENCE_S: Final = 1.0
"""The time that a case waits for a device to be prepared while others can run it."""


class FreeDevices:
    """Acquires devices for cases, and releases them."""

    def __init__(self, workbench: Workbench, forecast: Forecast | None = None) -> None:
        """`forecast` is what is known of the run's cases, if pytest-xdist's workers share them."""
        self.workbench, self.forecast = workbench, forecast
        self.last = ""
        """The device that was used last."""

    def device(self, placement: Placement) -> LabDevice:
        return self.workbench.lab.device(placement.device)

    def acquire(
        self,
        placement: Placement,
        tried: Collection[str] = (),
        unable: Collection[str] = (),
        *,
        case: str = "",
        preferred: str = "",
        wait: bool = True,
    ) -> Placement:
        """Acquire and prepare a free device for a case, if possible one that was not `tried`.

        The order is: the `preferred` one, the one used last, one that has the files, any other.
        Near the end of the run faster ones come first, and `case` may wait for one on which another
        worker of ours runs a case. Waits if none is free, but never for those `unable` to run the
        case. If all devices have problems, one of them is returned without being held. Raises
        DeviceHeld.
        """
        from harness.lab.lease import DeviceHeld

        places = [place for place in self._places(placement) if place.device not in unable]
        acquired: list[Placement] = []
        forecast = None if tried or preferred or len(places) < 2 else self.forecast
        start = time.monotonic()

        def attempt() -> Sequence[Occupied]:
            occupied, refused, ours = [], list[DeviceHeld](), list[str]()
            well = [candidate for candidate in places if self.workbench.problem(candidate) is None]
            in_order = self._in_order(well, tried, preferred or self.last)
            late = forecast if well and forecast and forecast.is_late(len(well)) else None
            for place in in_order if late is None else late.in_order(case, in_order):
                waited_s = time.monotonic() - start
                if late is not None and late.waits(case, place.device, ours, waited_s):
                    continue
                try:
                    holder = self.workbench.acquire(self.device(place))
                except DeviceHeld as error:
                    refused.append(error)
                    continue
                if holder is not None:
                    occupied.append(holder)
                    in_use = late is not None and place.device in late.in_use
                    if in_use and self.workbench.is_ours(holder):
                        ours.append(place.device)
                elif self._prepare(place):
                    acquired.append(place)
                    return []
                else:
                    self.note(case, place, None)
            if refused and not occupied:
                raise refused[0]
            return occupied

        while not acquired:
            if all(self.workbench.problem(place) is not None for place in places):
                return next((place for place in places if place.device not in tried), placement)
            self.workbench.wait_for(attempt, wait=wait)
        self.last = acquired[0].device
        return acquired[0]

    def note(self, case: str, place: Placement, *taken_s: float | None) -> None:
        """Tell the other workers of a case, as `Forecast.note`."""
        if self.forecast is not None:
            self.forecast.note(case, place.device, *taken_s)

    def has_other(self, placement: Placement, tried: Collection[str] = ()) -> bool:
        """Return whether a usable device for a case is not among `tried`."""
        return any(
            place.device not in tried and self.workbench.problem(place) is None
            for place in self._places(placement)
        )

    def recover(self, placement: Placement, *, again: bool, is_last: bool) -> None:
        """Recover a device after a fault of the lab, or give it up.

        `again`: another attempt is allowed. A case that other devices can run does not wait. After
        the last case the device is only marked for its next user.
        """
        device = self.device(placement)
        if is_last and not again:
            self.workbench.distrust(device)
        elif self.workbench.problem(placement) is None:
            shared = placement.is_shared
            self.workbench.recover(device, case_over=shared or not again, background=shared)

    def _places(self, placement: Placement) -> list[Placement]:
        return [placement.on(name) for name in placement.candidates]

    def _prepare(self, place: Placement) -> bool:
        """Prepare a device that was acquired; release it if that fails and others may do."""
        bench = self.workbench
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
        """Yield untried placements before others: the `first` one, then those with the files.

        Files are looked up only if the first one is not free.
        """
        yield from (place for place in places if place.device == first and first not in tried)
        rest = [place for place in places if place.device != first or first in tried]
        has_files = self.workbench.has_files
        yield from sorted(rest, key=lambda place: (place.device in tried, not has_files(place)))


class Attempts:
    """The attempts at one case in this process."""

    def __init__(
        self,
        devices: FreeDevices,
        kinds: Mapping[str, str],
        placement: Placement,
        *,
        retries: int,
        before: int = 0,
        again: int = 0,
        preferred: str = "",
        case: str = "",
    ) -> None:
        """`kinds` maps devices to kinds; `retries` more are allowed after a fault of the lab.

        `before` attempts were made in a run that this one resumes. A case with a verdict is run
        until it has `again` more, if possible on the device `preferred`. `case` is its node id.
        """
        self._devices, self._kinds = devices, kinds
        self._placement, self._before, self._retries = placement, before, retries
        self._place, self._preferred, self._case = placement, preferred, case
        self._start = time.monotonic()
        self._count = 0
        self._again, self.has_verdict = again, again > 0
        self._tried: list[str] = []
        self._unable: list[str] = []

    @property
    def number(self) -> int:
        return self._before + self._count

    def begin(self) -> Placement:
        """Return the placement of the next attempt; its device is held until `finish`.

        If no device is free, the attempt will report why.
        """
        from harness.lab.lease import DeviceHeld

        try:
            self._place = self._devices.acquire(
                self._placement,
                self._tried,
                self._unable,
                case=self._case,
                preferred=self._preferred,
            )
            self._start = time.monotonic()
            self._devices.note(self._case, self._place)
        except DeviceHeld as error:
            self._place = self._placement
            self._devices.workbench.keep_out(self._devices.device(self._place), error)
        self._tried.append(self._place.device)
        self._count += 1
        return self._place

    def finish(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        """Release the device of an attempt that ended with `end`; return whether another follows.

        `stop`: the run is to end. `is_last`: no case follows here. An attempt that failed because
        the device was given up, is full or hot does not count against `retries`.
        """
        try:
            return self._continues(end, stop=stop, is_last=is_last)
        finally:
            self._devices.workbench.give_back(self._devices.device(self._place))

    def _continues(self, end: AttemptEnd, *, stop: bool, is_last: bool) -> bool:
        if end in ("verdict", "unsupported"):
            self._devices.device(self._place).fitness.succeeded()
            if end == "verdict":
                self._devices.note(self._case, self._place, time.monotonic() - self._start)
            if end == "verdict" and self._again > 1:
                self._again -= 1
                self._retries += 1
                self._preferred = self._place.device
                self._tried.clear()
                return not stop
            return end == "unsupported" and self._ask_another_kind()
        problem = self._devices.workbench.problem(self._place)
        if self._place.is_shared and (end == "hot" or problem is not None):
            self._retries += 1
        if end == "hot":
            self._unable.append(self._place.device)
        again = self._count <= self._retries and not stop
        if end == "lab":
            self._devices.note(self._case, self._place, None)
            self._devices.recover(self._place, again=again, is_last=is_last or stop)
        return again and self._devices.has_other(self._place, self._unable)

    def _ask_another_kind(self) -> bool:
        """Exclude this kind of device; return whether another kind is left to try."""
        place, kinds = self._place, self._kinds
        alike = [name for name in place.candidates if kinds[name] == kinds[place.device]]
        if not self._devices.has_other(place, {*self._unable, *alike}):
            return False
        self._unable += alike
        self._retries += 1
        return True


class Run:
    """A run; created when pytest starts, but inactive until a device test is collected."""

    def __init__(
        self,
        options: Options,
        *,
        worker_of: Path | None = None,
        recorded: int | None = None,
        worker: str = "",
        ending: Ending | None = None,
    ) -> None:
        """All but `worker`, its name with pytest-xdist, are as in `Records`."""
        self.options = options
        self.ending = ending or Ending()
        self.selection = Selection(options)
        self.selection.reserves_places = worker_of is None
        self.records = Records(self.selection, self.ending, worker_of, recorded)
        self.ended = False
        self.problem: HarnessError | None = None
        self.uncollected: HarnessError | None = None
        self.collected: Collected | None = None
        self.live: Live | None = None
        self.failures: Failures | None = None
        self.forecast: Forecast | None = None
        self.homes: Mapping[str, str] = {}
        """The device with which a worker of pytest-xdist begins that gets this case first."""
        self._worker = worker
        self._workbench: Workbench | None = None

    @property
    def workbench(self) -> Workbench:
        """The preparation of devices; created on first access, ended by `close`."""
        if self._workbench is None:
            from harness.bench.run_preparation import Workbench
            from harness.core.state_folders import cache_root, lease_root
            from harness.lab.lease import Leases

            purpose = f"pytest, run {self.records.planned_folder.name}"
            leases = Leases(lease_root(), purpose=purpose, of_run=True)
            self._workbench = Workbench(
                self.selection.lab,
                cache=cache_root(),
                on_event=self.records.note_event,
                leases=leases,
                lease_wait_s=self.options.lease_timeout_s,
                catalog=self.selection.catalog,
                preflight=self.options.preflight,
                run=str(self.records.planned_folder),
                process=self._worker,
                builds=self.options.builds,
            )
        return self._workbench

    def close(self) -> None:
        if self._workbench is not None:
            self._workbench.close()
        self.selection.close()

    def announce(self, cases: Collection[str]) -> None:
        """Open the run's folder for cases, by their node ids, and show their progress."""
        self.records.announce(cases)
        if self.live is not None and self.records.folder is not None:
            self.live.begin(cases)

    def begin(self, needs: Sequence[Need]) -> None:
        """Register the needs of all cases, and prepare the devices that are free.

        Raises an error if no case can run and no device is to blame, or if a rule of a plug-in is
        wrong. A worker prepares devices case by case; its controller has checked the rules.
        """
        sources_of: dict[Placement, dict[Source, None]] = {}
        for need in needs:
            sources_of.setdefault(need.placement, {}).update(dict.fromkeys(need.sources))
        self.workbench.needs = {
            placement.on(device): tuple(sources)
            for placement, sources in sources_of.items()
            for device in placement.candidates
        }
        if self.records.is_worker:
            return
        from harness.diagnosis.rule_sources import all_rules

        all_rules()
        failed = {placement: self._first_problem(placement) for placement in sources_of}
        self.records.write_events()
        if sources_of and all(failed.values()):
            self._nothing_ready(list(sources_of), list(filter(None, failed.values())))

    def _first_problem(self, placement: Placement, *, again: bool = False) -> HarnessError | None:
        """Prepare a placement on a free device; return the error that all of them have."""
        from harness.core.errors import DeviceError, InfraError, NotYet
        from harness.lab.lease import DeviceHeld

        place, was_trusted = placement, False
        try:
            place = self.devices.acquire(placement, wait=False)
            self.workbench.ready(place)
        except HarnessError as error:
            passing = (DeviceHeld, NotYet, DeviceError) if placement.is_shared else DeviceHeld
            if isinstance(error, passing):
                return None
            device = self.devices.device(place)
            was_trusted = isinstance(error, InfraError) and device.fitness.is_fit
            if not was_trusted or again:
                return error
            self.workbench.distrust(device)
        finally:
            self.workbench.give_back(self.devices.device(place))
        # it was found well by others a moment ago, and is checked now
        return self._first_problem(placement, again=True) if was_trusted else None

    def _nothing_ready(
        self, placements: Sequence[Placement], errors: Sequence[HarnessError]
    ) -> None:
        """Raise the error that stops all cases, unless a lost device may come back."""
        from harness.core.errors import DeviceError, DeviceRefused, InfraError

        places = (placement.on(name) for placement in placements for name in placement.candidates)
        if any(self.devices.device(place).is_offline for place in places):
            return
        lost = [error for error in errors if isinstance(error, DeviceError)]
        if all(isinstance(error, DeviceRefused) for error in lost):
            raise next((error for error in errors if isinstance(error, InfraError)), errors[0])

    @cached_property
    def devices(self) -> FreeDevices:
        return FreeDevices(self.workbench, self.forecast)

    def attempts(self, node_id: str, placement: Placement) -> Attempts:
        """Return the attempts at a case, counted on from those of a resumed run."""
        earlier = self.records.earlier.get(node_id)
        again = (self.records.again or {}).get(node_id, 0)
        self.devices.last = self.devices.last or self.homes.get(node_id, "")
        was_on = earlier.device.name if again and earlier and earlier.device else ""
        return Attempts(
            self.devices,
            self.selection.kinds,
            placement,
            retries=self.options.retries,
            before=earlier.attempt if earlier else 0,
            again=again,
            preferred=was_on,
            case=node_id,
        )
