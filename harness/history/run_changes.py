"""Changes of cases, causes and devices over the stored runs."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Row, bindparam, func, select

from harness.core.bounded_json import parse_model
from harness.diagnosis.error_record import ErrorRecord
from harness.history.attempts import CaseAttempts
from harness.history.case_states import format_versions, versions_of
from harness.history.database import Database, attempts, device_runs, runs
from harness.history.importing import list_runs, stored_attempts
from harness.history.timeline import (
    MARKS,
    CaseLine,
    CauseFacts,
    Filter,
    NightChange,
    StoredRun,
    Tested,
    by_run,
    changes_of,
    facts_of,
    lines_of,
)
from harness.results.coverage import Coverage

NOTHING_NEW: Final[Mapping[int, Collection[str]]] = MappingProxyType({})
WINDOW: Final = 60
"""The number of runs from which the state of a case is judged, and which are drawn."""


class GroupLines(NamedTuple):
    """The cases of a group, which differ in versions only: through all runs that are read, and
    through the last `WINDOW` of them, which pages show."""

    key: str
    read: list[CaseLine]
    drawn: list[CaseLine]


def earlier_runs(
    database: Database, before: Sequence[StoredRun], group: GroupLines, line: CaseLine
) -> list[CaseAttempts]:
    """Return the case of a line in the runs `before`, the oldest first. Raises InfraError."""
    if not before:
        return []
    # in a group of several versions, only its name tells it from the others
    named = line.runs[0].last.case if len(group.read) > 1 else None
    order = {run.run: place for place, run in enumerate(before)}
    attempts_before = (
        entry
        for entry in stored_attempts(database, Filter(case_group=group.key))
        if entry[1] in order and named in (None, entry[2].case)
    )
    return [earlier for _, of_run in by_run(attempts_before, order) for earlier in of_run.values()]


class StoredCause(NamedTuple):
    """A cause of failures: how many cases had it, by the index of the run; the other fields are
    those of the last of these runs."""

    cause: str
    cases: Mapping[int, int]
    outcome: str
    kind: str
    diagnosis: str | None
    error: str | None
    test: str

    @property
    def first(self) -> int:
        return min(self.cases)

    @property
    def last(self) -> int:
        return max(self.cases)

    @property
    def record(self) -> ErrorRecord | None:
        with contextlib.suppress(ValueError):
            return None if self.error is None else parse_model(ErrorRecord, self.error)
        return None


def list_causes(database: Database, runs: Sequence[StoredRun]) -> list[StoredCause]:
    """Return all causes, the last seen first. Raises InfraError."""
    order = {run.run: index for index, run in enumerate(runs)}
    counts_of: dict[str, dict[int, int]] = defaultdict(dict)
    columns = attempts.c
    counts = (
        select(columns.cause_id, columns.run, func.count(columns.case_group.distinct()))
        .where(columns.cause_id.is_not(None), columns.counts)
        .group_by(columns.cause_id, columns.run)
    )
    kind = func.coalesce(columns.diagnosis, columns.signature, columns.outcome)
    newest = (
        select(columns.outcome, kind, columns.diagnosis, columns.error, columns.test)
        .where(
            columns.cause_id == bindparam("cause"),
            columns.run == bindparam("of_run"),
            columns.counts,
        )
        .order_by(columns.line)
        .limit(1)
    )
    with database.transaction(writes=False) as connection:
        for cause, run, cases in connection.execute(counts):
            if run in order:
                counts_of[cause][order[run]] = cases
        causes = [
            StoredCause(cause, cases, *row)
            for cause, cases in counts_of.items()
            for row in connection.execute(newest, {"cause": cause, "of_run": runs[max(cases)].run})
        ]
    return sorted(causes, key=lambda cause: (-cause.last, cause.cause))


DeviceRow = Row[Any]
"""A row of `device_runs`: a device in a run."""


def device_rows(
    database: Database, stored: Sequence[StoredRun], first: int
) -> dict[tuple[str, int], DeviceRow]:
    """Return the row of each device in each run from index `first` on. Raises InfraError."""
    order = {run.run: index for index, run in enumerate(stored) if index >= first}
    since = min((run.started for run in stored[first:]), default="")
    query = select(device_runs).join(runs).where(runs.c.started >= since).order_by(runs.c.started)
    with database.transaction(writes=False) as connection:
        rows = connection.execute(query).all()
    return {(row.device, order[row.run]): row for row in rows if row.run in order}


class StandingCounts(Counter[str]):
    """The number of cases by standing; `flaky` of those that passed failed in another attempt."""

    flaky: int = 0

    def add(self, attempts: CaseAttempts) -> None:
        self[attempts.last.standing] += 1
        self.flaky += attempts.last.standing == "passed" and attempts.failed_unexpectedly

    def coverage(self, not_run: int | None = 0) -> Coverage:
        lacks = not_run or 0
        selected = None if not_run is None else self.total() + lacks
        return Coverage(selected=selected, not_run=lacks, flaky=self.flaky, **dict(self))

    @property
    def lost(self) -> int:
        return sum(self.coverage().missing.values())


class ChangeStore:
    """The changes of the runs that are reported, and the numbers of cases by standing in each."""

    def __init__(
        self,
        database: Database,
        runs: Sequence[StoredRun],
        shown: int,
        new: Mapping[int, Collection[str]] = NOTHING_NEW,
    ) -> None:
        """`runs` are all stored runs. Pages show changes from run index `shown` on, but for nights.

        `new` are the cases that nights reported as new, by run index: they are new even if a run
        between two nights had the failure.
        """
        self.by_run: Mapping[int, StandingCounts] = defaultdict(StandingCounts)
        self.by_device: Mapping[tuple[str, int], StandingCounts] = defaultdict(StandingCounts)
        self._database, self._runs, self._shown, self._new = database, runs, shown, new
        self._of_night: dict[int, list[NightChange]] = defaultdict(list)
        self._answer_for_failure: dict[tuple[str, str], list[NightChange]] = defaultdict(list)
        self._tested: dict[tuple[int, str], Tested] = defaultdict(dict)

    def read(
        self, first: int, start: int, *, failing: bool = False
    ) -> Iterator[tuple[str, list[GroupLines]]]:
        """Yield each test with all its cases, through the runs from index `first` on, and add
        their changes from index `start` on.

        With `failing`, only the tests that fail in one of these runs. Raises InfraError.
        """
        runs = self._runs
        order = {run.run: index for index, run in enumerate(runs)}
        criteria = Filter(
            since=min((run.started for run in runs[first:]), default=""), failing=failing
        )
        stored = stored_attempts(self._database, criteria, by_test=True)
        selected = (entry for entry in stored if order.get(entry[1], -1) >= first)
        for test, of_test in groupby(selected, key=lambda entry: entry[2].test):
            groups = list[GroupLines]()
            for group, of_group in groupby(of_test, key=lambda entry: entry[0]):
                cases = by_run(of_group, order)
                lines = lines_of(of_run for _, of_run in cases)
                late = [of_run for run, of_run in cases if order[run] >= len(runs) - WINDOW]
                drawn = lines if len(late) == len(cases) else lines_of(late)
                groups.append(GroupLines(group, lines, drawn))
            self._add(groups, start, runs[:first])
            yield test, groups

    def _add(self, groups: Sequence[GroupLines], start: int, older: Sequence[StoredRun]) -> None:
        """Add the cases of a test. A state as old as the runs that were read is followed into
        `older` runs."""
        changed = set[int]()
        for group in groups:
            for line in group.read:
                changes = list(changes_of(line, start))
                if any(change.since <= line.runs[0].run_index for change in changes):
                    earlier = earlier_runs(self._database, older, group, line)
                    changes = list(changes_of(line, start, earlier))
                for change in map(self._as_reported, changes):
                    changed.add(change.run_index)
                    self._of_night[change.run_index].append(change)
                    if change.run_index >= self._shown:
                        for field in ("cause", "test", "device"):
                            self._answer_for_failure[field, getattr(change, field)].append(change)
                for run in line.runs:
                    self.by_run[run.run_index].add(run)
            for run in (run for line in group.drawn for run in line.runs if run.last.device):
                self.by_device[str(run.last.device), run.run_index].add(run)
        for run in (run for group in groups for line in group.read for run in line.runs):
            if run.run_index in changed and run.last.device and run.verdicts:
                tested = self._tested[run.run_index, run.last.test]
                ran_with = run.last.device, format_versions(versions_of(run.last))
                tested[ran_with] = tested.get(ran_with, True) and not run.failed

    def _as_reported(self, change: NightChange) -> NightChange:
        reported = self._new.get(change.run_index, ())
        is_new = change.became == "still" and change.case in reported
        return change._replace(became="new") if is_new else change

    def changes(self, field: Literal["cause", "test", "device"], value: str) -> list[NightChange]:
        """Return the shown changes with this value of a field, the newest run first."""
        return sorted(self._answer_for_failure.get((field, value), ()), key=_newest_first)

    def of_night(self, run_index: int) -> list[NightChange]:
        """Return the changes of a run, sorted by cause."""
        return sorted(self._of_night.get(run_index, ()), key=_newest_first)

    def facts(
        self, run_index: int, cause: str, socs: Mapping[str, str | None], *, fixed: bool = False
    ) -> CauseFacts:
        """Return the facts of a cause by its changes in a run; `fixed` ones, or all others."""
        changes = [
            change
            for change in self._of_night[run_index]
            if change.cause == cause and (change.became == "fixed") is fixed
        ]
        tested: Tested = {}
        for test in {change.test for change in changes}:
            for ran_with, passed in self._tested.get((run_index, test), {}).items():
                tested[ran_with] = tested.get(ran_with, True) and passed
        return facts_of(changes, tested, socs, self._runs)


def _newest_first(change: NightChange) -> tuple[int, str, str, str]:
    return -change.run_index, change.cause, change.test, change.device


def facts_lookup(database: Database, most_runs: int = MARKS) -> Callable[[str], CauseFacts | None]:
    """Return a function that returns the facts of a cause by its id; None if the last runs do not
    have it. Raises InfraError."""
    all_runs = list_runs(database)
    first = max(0, len(all_runs) - most_runs)
    socs = {device: row.soc for (device, _), row in device_rows(database, all_runs, first).items()}
    store = ChangeStore(database, all_runs, first)
    for _ in store.read(first, first, failing=True):
        pass

    def facts(cause: str) -> CauseFacts | None:
        failing = (change for change in store.changes("cause", cause) if change.became != "fixed")
        last = next(failing, None)
        return store.facts(last.run_index, cause, socs) if last is not None else None

    return facts
