"""What a run leaves: its folder, once there is something to keep, and its journal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.ground.errors import ConfigError, InfraError
from harness.ground.errors.outgoing_text import counted
from harness.ground.files.whole_file import read_json
from harness.run.pytest_plugin.collected import parameters_of, placement_of, test_code
from harness.run.pytest_plugin.selection import selection
from harness.run.pytest_plugin.terminal import RECORDS

if TYPE_CHECKING:
    from harness.contexts.sources.contexts import Source
    from harness.device.lab.health import LabEvent
    from harness.ground.host.ending import Ending
    from harness.run.pytest_plugin.asked import Selection
    from harness.verdict.results.known_issue_lint import CollectedTests
    from harness.verdict.results.record import CaseRecord, DeviceEvent
    from harness.verdict.results.run_folder import RunFolder

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
        from harness.verdict.results.run_folder import RunFolder, new_run_id

        if self._asked.options.resume is not None:
            return RunFolder.open(self._asked.options.resume).path
        return self._works_for or self._asked.options.reports / new_run_id()

    def hold(self) -> None:
        """Keeps the run to be resumed from other processes. Raises ConfigError or InfraError."""
        if self._asked.options.resume is not None and not self.is_worker:
            from harness.verdict.results.run_folder import RunFolder

            self._held = RunFolder.held(self._asked.options.resume)

    def let_go(self) -> None:
        """Others may complete it."""
        for folder in (self.folder, self._held):
            if folder is not None:
                folder.close()

    def open_folder(self) -> RunFolder:
        """The folder of the run, made on first use. Raises ConfigError or InfraError."""
        from harness.verdict.results.run_folder import RunFolder

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
        from harness.answers.history.previous import last_durations

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
        from harness.verdict.results.run_folder import RunFolder

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
        """Whether a case ran on these very files, and has its verdict."""
        from harness.verdict.results.coverage import LOST_TO

        record = self.earlier.get(item.nodeid)
        if record is None or record.standing in LOST_TO:
            return False
        told = record.measurements.get("context_files")
        if not isinstance(told, dict) or not told:
            return True
        from harness.run.pytest_plugin.axes import sources_of

        sources = sources_of(parameters_of(item), item.path.parent)
        return not any(_is_other(one, told) for one in sources)

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
        from harness.verdict.results.record import DeviceEvent

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
        from harness.answers.report.summary import event_lines, preflight_lines
        from harness.verdict.results.known_issue_lint import review_lines
        from harness.verdict.results.one_pass import read_once

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
        from harness.answers.history.previous import since_previous
        from harness.answers.report import projections
        from harness.answers.report.ci import tell_ci

        self.write_events()
        made_of = projections.finish(
            self.folder,
            exit_code=exit_code,
            problem=problem,
            other_failures=other_failures,
            since=since_previous(self.folder),
        )
        return tell_ci(made_of, self.folder.path, os.environ)


def _is_other(source: Source, told: dict[str, Any]) -> bool:
    """Whether a file of the user's is not what a record tells of the one called so."""
    from harness.contexts.sources.context_file import ContextFile
    from harness.ground.files.cache import cache_root
    from harness.ground.files.hash_cache import HashCache

    name = str(source)
    # a second one of the same name is `name (2)`
    known = [told[one] for one in told if one == name or one.startswith(f"{name} (")]
    if not isinstance(source, ContextFile) or not known:
        return False
    path = source.path
    try:
        now = HashCache(cache_root(), path.parent).hashed({path.name: path})[path.name].sha256
    except InfraError:
        return True  # it is gone, which its case says
    return now not in [one.get("sha256") for one in known if isinstance(one, dict)]
