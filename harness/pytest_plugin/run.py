"""One run of device tests: the lab and catalog behind it, and the folder its results go to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ConfigError, HarnessError
from harness.pytest_plugin.options import Options
from harness.pytest_plugin.terminal import end_in_order_on_sigterm

if TYPE_CHECKING:
    from harness.adb.guard import GuardedProcess
    from harness.lab.events import LabEvent
    from harness.lab.inventory import DeviceConfig, Lab
    from harness.pytest_plugin.offered import Collected
    from harness.pytest_plugin.parallel import Moves
    from harness.pytest_plugin.versions import DeviceRuntimes
    from harness.results.known_issues import KnownIssue
    from harness.results.record import CaseRecord, Fixed
    from harness.results.rundir import RunFolder
    from harness.runtimes.catalog import Catalog
    from harness.workbench import Need, Placement, Workbench


class Run:
    """Made when pytest starts, but touches nothing until a device test is collected."""

    def __init__(
        self,
        options: Options,
        notify: Callable[[str], None],
        warn: Callable[[str], None],
        *,
        works_for: Path | None = None,
    ) -> None:
        """`works_for` is the folder of the run that an xdist worker is part of."""
        self.options = options
        self.problem: HarnessError | None = None
        self.folder: RunFolder | None = None
        self.unfit: dict[str, list[str]] = {}
        self.moves: Moves | None = None
        self.collected: Collected | None = None
        self._works_for = works_for
        self._needs: Sequence[Need] = ()
        self._prepared: set[Placement] = set()
        self._events: list[dict[str, object]] = []
        self._notify = notify
        self.warn = warn
        self._workbench: Workbench | None = None
        self._ahead: GuardedProcess | None = None

    @cached_property
    def lab(self) -> Lab:
        """The lab; raises ConfigError naming file, line and field."""
        from harness.lab.inventory import load_lab

        return load_lab(self.options.lab)

    @cached_property
    def devices(self) -> Sequence[DeviceConfig]:
        """The devices asked for, or all enabled ones."""
        return self.lab.select(self.options.devices or None)

    @cached_property
    def known_issues(self) -> Sequence[KnownIssue]:
        """The expected failures; raises ConfigError like the lab."""
        from harness.results.known_issues import load_known_issues

        path = self.options.known_issues
        return load_known_issues(path) if path else ()

    def note_problem(self, error: HarnessError) -> None:
        """Tells whoever started the run what keeps it from its cases, if that was asked for."""
        if self.options.problem_file is not None:
            from harness.pytest_plugin.problem import Problem, write_problem

            write_problem(self.options.problem_file, Problem.of(error))

    @property
    def workbench(self) -> Workbench:
        """What cases are run with; made on first use, ended by `close`."""
        if self._workbench is None:
            from harness.cache import cache_root
            from harness.lab.lease import Leases, lease_root
            from harness.workbench import Workbench

            purpose = f"pytest, run {self.planned_folder.name}"
            self._workbench = Workbench(
                self.lab,
                cache=cache_root(),
                notify=self._notify,
                warn=self.warn,
                tell=self._note_event,
                leases=Leases(lease_root(), purpose=purpose),
                lease_wait_s=self.options.lease_timeout_s,
                catalog=self.catalog,
                preflight=self.options.preflight,
            )
        return self._workbench

    def close(self) -> None:
        """Ends everything the run started."""
        if self._ahead is not None:
            self._ahead.stop()
        if self._workbench is not None:
            self._workbench.close()

    def placements(self, requirements: dict[str, Any]) -> tuple[list[Placement], list[str]]:
        """The placements of a test with these requirements, and why the others do not fit.

        Raises ConfigError for an unknown device, version, backend or requirement.
        """
        from harness.pytest_plugin.axes import placements
        from harness.qnn.backends import BACKENDS

        options = self.options
        for backend in options.backends:
            if backend not in BACKENDS:
                raise ConfigError(
                    f"unknown backend {backend!r}", field="--backend", choices=BACKENDS
                )
        found, reasons = placements(
            self.devices,
            requirements,
            options.backends,
            self.runtimes.compilers,
            self.runtimes.orts,
        )
        return found, [*reasons, *self.runtimes.reasons]

    @cached_property
    def catalog(self) -> Catalog:
        """Where libraries come from. Raises ConfigError for a source that cannot be."""
        from harness.cache import cache_root
        from harness.runtimes.catalog import Catalog

        return Catalog.of(self.lab, os.environ, cache_root(), notify=self._notify, warn=self.warn)

    @cached_property
    def runtimes(self) -> DeviceRuntimes:
        """The runtimes and compilers of each device. Raises ConfigError for an unknown one."""
        from harness.pytest_plugin.versions import device_runtimes

        return device_runtimes(
            self.catalog,
            self.devices,
            self.options.qnn,
            self.options.compilers,
            self.options.ort,
        )

    @property
    def is_worker(self) -> bool:
        """Whether another process keeps the journal and writes the reports."""
        return self._works_for is not None

    @cached_property
    def planned_folder(self) -> Path:
        """Where the results will be; `open_folder` makes it once there is something to keep."""
        from harness.results.rundir import RunFolder, new_run_id

        if self.options.resume is not None:
            return RunFolder.open(self.options.resume).path
        return self._works_for or self.options.reports / new_run_id()

    @property
    def device_names(self) -> list[str]:
        """The names of the devices asked for; none if the lab cannot be read."""
        try:
            return [device.name for device in self.devices]
        except HarnessError:
            return []

    def check(self) -> None:
        """Raises ConfigError for anything wrong in the lab, the known issues or the options."""
        _ = self.known_issues
        self.placements({})

    def open_folder(self) -> RunFolder:
        """The folder of the run, made on first use. Raises ConfigError or InfraError."""
        from harness.results.rundir import RunFolder

        if self.folder is None and self._works_for is not None:
            self.folder = RunFolder(self._works_for)
        elif self.folder is None and self.options.resume is not None:
            self.folder = RunFolder.resume(self.options.resume, command=sys.argv)
        elif self.folder is None:
            self.folder = RunFolder.create(
                self.options.reports,
                command=sys.argv,
                lab=self.lab.model_dump(mode="json"),
                devices=[device.name for device in self.devices],
                more={"known_issues": {issue.id: issue.link for issue in self.known_issues}},
                run_id=self.planned_folder.name,
            )
        return self.folder

    @cached_property
    def earlier(self) -> dict[str, CaseRecord]:
        """With `--resume`, the last record of each case that the run holds already."""
        from harness.results.record import final_attempts
        from harness.results.rundir import RunFolder

        if self.options.resume is None:
            return {}
        records = RunFolder.open(self.options.resume).records()
        return {record.case: record for record in final_attempts(records)}

    def has_verdict(self, node_id: str) -> bool:
        """Whether a case need not run again: it did, and the lab survived it."""
        record = self.earlier.get(node_id)
        return record is not None and record.cause != "infra"

    def begin(self, needs: Sequence[Need]) -> None:
        """Opens the run's folder and makes everything ready that its cases need.

        Raises the first error if no case at all can run. A worker makes ready what it is given,
        when it is given it.
        """
        self._needs = needs
        self.open_folder()
        if self.is_worker:
            return
        end_in_order_on_sigterm()
        self._prepared.update(need.placement for need in needs)
        failed = self.workbench.prepare(needs)
        self._write_events()
        if needs and all(need.placement in failed for need in needs):
            raise next(iter(failed.values()))

    def prepare_ahead(self) -> None:
        """Begins to make ready what `--ahead` asks for. Raises HarnessError."""
        if self.options.ahead and not self.is_worker:
            from harness.pytest_plugin.ahead import begin_ahead

            self._ahead = begin_ahead(self, self._needs)

    def ready(self, placement: Placement) -> Workbench:
        """The workbench, with all that cases of this placement need. Raises HarnessError."""
        from harness.workbench import Need

        if placement not in self._prepared:
            self._prepared.add(placement)
            needs = [need for need in self._needs if need.placement == placement]
            self.workbench.prepare(needs or [Need(placement, ())])
        self.workbench.require(placement)
        return self.workbench

    def identity(self, placement: Placement) -> dict[str, object]:
        """The `device` of a record before the device itself has said anything."""
        (config,) = self.lab.select([placement.device])
        keys = ("name", "serial", "soc", "target", "simulated")
        return {key: getattr(config, key) for key in keys}

    def lab_failed(self, placement: Placement, *, again: bool) -> bool:
        """Brings a device back after a fault of the lab, or gives it up.

        `again`: another attempt is allowed. Returns whether it is worth while: not if neither this
        device nor a twin of it can be used.
        """
        if not self.workbench.is_out(placement.device):
            over = not again or self.elsewhere(placement) is not None
            self.workbench.recover(placement.device, case_over=over)
            self._prepared = {place for place in self._prepared if place.device != placement.device}
        usable = not self.workbench.is_out(placement.device)
        return again and (usable or self.elsewhere(placement) is not None)

    def twins(self, name: str) -> list[str]:
        """The devices asked for that can stand in for one."""
        from harness.lab.matching import twins

        (own,) = self.lab.select([name])
        return [device.name for device in twins(own, self.devices)]

    def elsewhere(self, placement: Placement, tried: Collection[str] = ()) -> Placement | None:
        """The same on a twin of its device, if one is fit and not among `tried`.

        A worker has the devices that it was given and no other: the controller moves its cases.
        """
        if self.is_worker:
            return None
        for twin in self.twins(placement.device):
            if twin not in tried and not self.workbench.is_out(twin):
                return replace(placement, device=twin)
        return None

    def place(self, placement: Placement, tried: Collection[str]) -> Placement:
        """Where the next attempt at a case runs, which failed on the devices `tried` before."""
        own_is_out = self.workbench.is_out(placement.device)
        if tried or own_is_out:
            return self.elsewhere(placement, tried) or placement
        return placement

    def _note_event(self, event: LabEvent) -> None:
        from harness.results.record import DeviceEvent

        if self.folder is not None:
            record = DeviceEvent.of(event, run=self.folder.run_id)
            self._events.append(record.model_dump(mode="json"))

    def _write_events(self) -> None:
        """Writes down what happened outside of any case."""
        for record in self.take_events():
            self.open_folder().journal.append(record)

    def take_events(self) -> list[dict[str, object]]:
        """What happened to devices since it was last asked, as records."""
        taken, self._events = self._events, []
        return taken

    def remarks(self, records: Sequence[CaseRecord]) -> list[str]:
        """What else the user should know at the end of a run."""
        from harness.results.known_review import review_lines
        from harness.results.summary import event_lines, preflight_lines

        found = []
        missing = len(self._needs) - len({record.case for record in records} - set(self.earlier))
        if self._needs and missing > 0:
            found.append(f"{missing} of {len(self._needs)} cases were not run")
        found += preflight_lines(records)
        if self.folder is not None:
            found += event_lines(self.folder.events())
            if self._needs:
                found += [f"left out: {why}" for why in self.runtimes.reasons]
        offered = self.collected.offered() if self.collected else None
        today = datetime.now(UTC).date()
        return found + review_lines(records, self.known_issues, today, offered)

    def finish(self, exit_code: int, problem: str | None = None) -> None:
        """Closes the journal and writes the reports that are made from it."""
        if self.folder is not None and not self.is_worker:
            self._write_events()
            self.folder.finish(exit_code=exit_code, problem=problem)

    def expected(self, record: CaseRecord) -> KnownIssue | None:
        """The known issue that explains this record, if there is one."""
        from harness.results.known_issues import match

        return match(record, self.known_issues)

    def fixed(self, record: CaseRecord) -> Fixed | None:
        """What a case that passed says of known issues that it was expected to show."""
        from harness.results.known_issues import passed_anyway
        from harness.results.record import Fixed

        found = passed_anyway(record, self.known_issues)
        if not found:
            return None
        names = tuple(issue.id for issue in found)
        return Fixed(known_issues=names, fails=self.options.strict_known)
