"""What became of cases over the runs that are held, and how runs and devices did."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import Row, bindparam, func, select

from harness.core.bounded_json import parse_model
from harness.diagnosis.error import ErrorRecord
from harness.history.attempts import EarlierAttempts
from harness.history.database import Database, attempts, device_runs, runs
from harness.history.importing import runs_held, stored_attempts
from harness.history.states import said_versions, versions_of
from harness.history.timeline import (
    MARKS,
    CaseLine,
    Filter,
    NightChange,
    RunHeld,
    changes_of,
    lines_of,
)
from harness.history.timeline_text import CauseFacts, by_run, facts_of
from harness.results.coverage import Coverage

NOTHING_NEW: Final[Mapping[int, Collection[str]]] = MappingProxyType({})
WINDOW: Final = 60
"""So many runs are looked at for what a case is at, and drawn."""
_COLUMNS: Final = ", ".join(f'"{name}"' for name in NightChange._fields)


class KinLines(NamedTuple):
    """The cases that differ in their versions only: through all runs that are read, and through
    the last `WINDOW` of them, which pages are made of."""

    kin: str
    read: list[CaseLine]
    drawn: list[CaseLine]


def lines_by_test(
    database: Database, held: Sequence[RunHeld], first: int, *, failing: bool = False
) -> Iterator[tuple[str, list[KinLines]]]:
    """Each test with all its cases, through the runs from the place `first` on; those that are
    `failing` in one of them, or all.
    """
    order = {one.run: at for at, one in enumerate(held)}
    since = min((one.started for one in held[first:]), default="")
    found = stored_attempts(database, Filter(since=since, failing=failing), by_test=True)
    asked = (one for one in found if order.get(one[1], -1) >= first)
    drawn = len(held) - WINDOW
    for test, of_test in groupby(asked, key=lambda one: one[2].test):
        lines = list[KinLines]()
        for kin, of_kin in groupby(of_test, key=lambda one: one[0]):
            cases = by_run(of_kin, order)
            read = lines_of(of_run for _, of_run in cases)
            late = [of_run for run, of_run in cases if order[run] >= drawn]
            lines.append(KinLines(kin, read, read if len(late) == len(cases) else lines_of(late)))
        yield test, lines


def earlier_runs(
    database: Database, before: Sequence[RunHeld], kin: KinLines, line: CaseLine
) -> list[EarlierAttempts]:
    """The case of a line in the first runs that are held, the oldest first. Raises InfraError."""
    if not before:
        return []
    # versions beside each other: only its name tells it from the others
    named = line.seen[0].last.case if len(kin.read) > 1 else None
    order = {run.run: place for place, run in enumerate(before)}
    attempts_before = (
        told
        for told in stored_attempts(database, Filter(kin=kin.kin))
        if told[1] in order and named in (None, told[2].case)
    )
    return [earlier for _, of_run in by_run(attempts_before, order) for earlier in of_run.values()]


class CauseHeld(NamedTuple):
    """A cause of failures, in all that is held: how many cases had it, by the places of runs; the
    rest is of the last of them."""

    cause: str
    cases: Mapping[int, int]
    outcome: str
    kind: str
    diagnosis: str | None
    error: str | None

    @property
    def first(self) -> int:
        """The place of the first run that had it."""
        return min(self.cases)

    @property
    def last(self) -> int:
        """The place of the last run that had it."""
        return max(self.cases)

    @property
    def record(self) -> ErrorRecord | None:
        """How a case went wrong; None if that is not held."""
        with contextlib.suppress(ValueError):
            return None if self.error is None else parse_model(ErrorRecord, self.error)
        return None


def causes_held(database: Database, held: Sequence[RunHeld]) -> list[CauseHeld]:
    """All causes, the last seen first. Raises InfraError."""
    order = {one.run: at for at, one in enumerate(held)}
    seen: dict[str, dict[int, int]] = defaultdict(dict)
    columns = attempts.c
    counts = (
        select(columns.cause_id, columns.run, func.count(columns.kin.distinct()))
        .where(columns.cause_id.is_not(None), columns.counts)
        .group_by(columns.cause_id, columns.run)
    )
    kind = func.coalesce(columns.diagnosis, columns.signature, columns.outcome)
    newest = (
        select(columns.outcome, kind, columns.diagnosis, columns.error)
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
                seen[cause][order[run]] = cases
        told = [
            CauseHeld(cause, cases, *row)
            for cause, cases in seen.items()
            for row in connection.execute(newest, {"cause": cause, "of_run": held[max(cases)].run})
        ]
    return sorted(told, key=lambda one: (-one.last, one.cause))


DeviceRow = Row[Any]
"""How a device did in a run: a row of `device_runs`."""


def device_rows(
    database: Database, held: Sequence[RunHeld], first: int
) -> dict[tuple[str, int], DeviceRow]:
    """How each device did in each run from the place `first` on. Raises InfraError."""
    order = {run.run: at for at, run in enumerate(held) if at >= first}
    since = min((run.started for run in held[first:]), default="")
    query = select(device_runs).join(runs).where(runs.c.started >= since).order_by(runs.c.started)
    with database.transaction(writes=False) as connection:
        rows = connection.execute(query).all()
    return {(row.device, order[row.run]): row for row in rows if row.run in order}


class StandingCounts(Counter[str]):
    """How many cases came to what, by their standing; `flaky` of those that passed failed in
    another attempt."""

    flaky: int = 0

    def add(self, attempts: EarlierAttempts) -> None:
        """Count a case."""
        self[attempts.last.standing] += 1
        self.flaky += attempts.last.standing == "passed" and attempts.failed_unexpectedly

    def coverage(self, not_run: int | None = 0) -> Coverage:
        """As every sum of a run is told."""
        lacks = not_run or 0
        selected = None if not_run is None else self.total() + lacks
        return Coverage(selected=selected, not_run=lacks, flaky=self.flaky, **dict(self))

    @property
    def lost(self) -> int:
        """How many have no verdict, though one was due."""
        return sum(self.coverage().missing.values())


class Harvest:
    """The changes of the runs that are written about, and how many cases came to what in each."""

    def __init__(self, shown: int, new: Mapping[int, Collection[str]] = NOTHING_NEW) -> None:
        """Pages of anything but a night tell changes of runs from the place `shown` on. What nights
        told as `new`, by their places, is new also where a run between them had seen it."""
        self.by_run: Mapping[int, StandingCounts] = defaultdict(StandingCounts)
        self.by_device: Mapping[tuple[str, int], StandingCounts] = defaultdict(StandingCounts)
        self._shown, self._new = shown, new
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute(f"CREATE TABLE changes ({_COLUMNS})")
        self._rows.execute("CREATE INDEX by_test ON changes (test)")
        self._rows.execute("CREATE TABLE tested (at, test, device, versions, passed)")
        self._rows.execute("CREATE INDEX tested_at ON tested (at, test)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def take(
        self, kins: Sequence[KinLines], first: int, database: Database, before: Sequence[RunHeld]
    ) -> None:
        """The cases of a test, of which changes from the run `first` on are told. Where one was so
        in all runs that are read, those `before` are looked for in the database.
        """
        told = list[NightChange]()
        for kin in kins:
            for line in kin.read:
                changes = list(changes_of(line, first))
                if any(change.since <= line.seen[0].at for change in changes):
                    changes = [*changes_of(line, first, earlier_runs(database, before, kin, line))]
                told += map(self._as_told, changes)
                for one in line.seen:
                    self.by_run[one.at].add(one)
            for one in (one for line in kin.drawn for one in line.seen if one.last.device):
                self.by_device[str(one.last.device), one.at].add(one)
        marks = ", ".join("?" * len(NightChange._fields))
        self._rows.executemany(f"INSERT INTO changes VALUES ({marks})", told)
        changed = {change.at for change in told}
        tested = (
            (
                seen.at,
                seen.last.test,
                seen.last.device,
                said_versions(versions_of(seen.last)),
                not seen.failed,
            )
            for kin in kins
            for line in kin.read
            for seen in line.seen
            if seen.at in changed and seen.last.device and seen.verdicts
        )
        self._rows.executemany("INSERT INTO tested VALUES (?, ?, ?, ?, ?)", tested)

    def _as_told(self, change: NightChange) -> NightChange:
        is_new = change.became == "still" and change.case in self._new.get(change.at, ())
        return change._replace(became="new") if is_new else change

    def index(self) -> None:
        """All is taken: from now on it is looked for by any of these."""
        for name in ("at", "cause", "device"):
            self._rows.execute(f"CREATE INDEX by_{name} ON changes ({name})")

    def changes(self, where: str, *values: object) -> list[NightChange]:
        """Those of the last runs that an expression of SQL takes, in the order of their causes."""
        return self._select(f"at >= {self._shown} AND ({where})", *values)

    def of_night(self, at: int) -> list[NightChange]:
        """Those of the run at a place, in the order of their causes."""
        return self._select("at = ?", at)

    def facts(
        self,
        at: int,
        cause: str,
        runs: Sequence[RunHeld],
        socs: Mapping[str, str | None],
        *,
        fixed: bool = False,
    ) -> CauseFacts:
        """The facts of a cause that the run at a place has a change of, or one that is `fixed`."""
        which = "at = ? AND cause = ? AND (became = 'fixed') = ?"
        tested = self._rows.execute(
            "SELECT device, versions, min(passed) FROM tested WHERE at = ? AND test IN "
            f"(SELECT test FROM changes WHERE {which}) GROUP BY device, versions",
            (at, at, cause, fixed),
        )
        started = {place: (run.run, run.started) for place, run in enumerate(runs)}
        return facts_of(self._select(which, at, cause, fixed), tested, socs, started)

    def last_facts(
        self, cause: str, runs: Sequence[RunHeld], socs: Mapping[str, str | None]
    ) -> CauseFacts | None:
        """The facts of a cause by the last run that had it; None if none of these did."""
        query = "SELECT max(at) FROM changes WHERE cause = ? AND became <> 'fixed'"
        (at,) = self._rows.execute(query, [cause]).fetchone()
        return None if at is None else self.facts(at, cause, runs, socs)

    def _select(self, where: str, *values: object) -> list[NightChange]:
        rows = self._rows.execute(
            f"SELECT {_COLUMNS} FROM changes WHERE {where} ORDER BY at DESC, cause, test, device",
            values,
        )
        return [NightChange(*row) for row in rows]


@contextlib.contextmanager
def facts_held(
    database: Database, most_runs: int = MARKS
) -> Iterator[Callable[[str], CauseFacts | None]]:
    """Gives the facts of a cause of the last runs by its id; None of another. Raises InfraError."""
    held = runs_held(database)
    first = max(0, len(held) - most_runs)
    socs = {device: row.soc for (device, _), row in device_rows(database, held, first).items()}
    with Harvest(first) as gathered:
        for _, kins in lines_by_test(database, held, first, failing=True):
            gathered.take(kins, first, database, held[:first])
        gathered.index()
        yield lambda cause: gathered.last_facts(cause, held, socs)
