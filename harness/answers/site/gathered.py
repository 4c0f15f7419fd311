"""What all pages are made of, gathered from the history in one go: no case is held for long."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, Self

from pydantic import ValidationError

from harness.answers.history.brief import Brief
from harness.answers.history.database import MERGED, Database
from harness.answers.history.importing import runs_in_order, stored_attempts
from harness.answers.history.states import versions_of
from harness.answers.history.timeline import CaseLine, Filter, lines_of
from harness.answers.history.told import by_run
from harness.answers.site.changes import NightChange, changes_of
from harness.verdict import Coverage, ErrorRecord

WINDOW: Final = 60
"""So many runs are looked at for what a case is at, and drawn."""
_COLUMNS: Final = ", ".join(f'"{name}"' for name in NightChange._fields)


class RunHeld(NamedTuple):
    """A run of the history. `digest` is that of its journal."""

    run: str
    started: str
    not_run: int | None
    digest: str


def runs_held(database: Database) -> list[RunHeld]:
    """The runs that have cases of their own, the oldest first. Raises InfraError."""
    with database.transaction(writes=False) as connection:
        rows = connection.execute("SELECT run, digest, told FROM runs")
        digests = {run: digest for run, digest, told in rows if told != MERGED}
    return [
        RunHeld(one.run, one.started, one.not_run, digests[one.run])
        for one in runs_in_order(database)
        if one.run in digests
    ]


def lines_by_test(
    database: Database, runs: Sequence[RunHeld], first: int
) -> Iterator[tuple[str, list[CaseLine]]]:
    """Each test with all its cases, through the runs from the place `first` on."""
    order = {one.run: at for at, one in enumerate(runs)}
    since = min((one.started for one in runs[first:]), default="")
    found = stored_attempts(database, Filter(since=since), by_test=True)
    asked = (one for one in found if order.get(one[1], -1) >= first)
    for test, of_test in groupby(asked, key=lambda one: one[2].test):
        lines = list[CaseLine]()
        for _, of_kin in groupby(of_test, key=lambda one: one[0]):
            lines += lines_of(cases for _, cases in by_run(of_kin, order))
        yield test, lines


class DeviceRow(NamedTuple):
    """How a device did in a run; the fields are columns of `device_runs`."""

    soc: str | None
    host: str | None
    busy_s: float
    span_s: float
    hottest_c: float | None
    battery_percent: int | None
    free_storage_bytes: int | None
    link_faults: int
    recoveries: int
    quarantines: int
    state: str | None
    finding: str | None


def device_rows(
    database: Database, runs: Sequence[RunHeld], first: int
) -> dict[tuple[str, int], DeviceRow]:
    """How each device did in each run from the place `first` on. Raises InfraError."""
    order = {one.run: at for at, one in enumerate(runs)}
    since = min((one.started for one in runs[first:]), default="")
    query = (
        f"SELECT device_runs.run, device, {', '.join(DeviceRow._fields)} FROM device_runs "
        "JOIN runs ON runs.run = device_runs.run WHERE started >= :since ORDER BY started"
    )
    with database.transaction(writes=False) as connection:
        rows = connection.execute(query, since=since)
        found = [((device, order.get(run, -1)), DeviceRow(*row)) for run, device, *row in rows]
    return {key: row for key, row in found if key[1] >= first}


def error_of(database: Database, run: str, case: str) -> ErrorRecord | None:
    """How a case went wrong in a run; None if that is not held."""
    query = "SELECT error FROM attempts WHERE run = :run AND name = :case AND error IS NOT NULL"
    with database.transaction(writes=False) as connection:
        for (text,) in connection.execute(query, run=run, case=case):
            with contextlib.suppress(ValidationError):
                return ErrorRecord.model_validate_json(text)
    return None


class StandingCounts(Counter[str]):
    """How many cases came to what, by their standing."""

    def coverage(self, not_run: int | None = 0) -> Coverage:
        """As every sum of a run is told."""
        lacks = not_run or 0
        selected = None if not_run is None else self.total() + lacks
        return Coverage(selected=selected, not_run=lacks, **dict(self))

    @property
    def lost(self) -> int:
        """How many have no verdict, though one was due."""
        return sum(self.coverage().missing.values())


class Harvest:
    """The changes of the runs that are written about, and how many cases came to what in each."""

    def __init__(self) -> None:
        self.by_run: Mapping[int, StandingCounts] = defaultdict(StandingCounts)
        self.by_device: Mapping[tuple[str, int], StandingCounts] = defaultdict(StandingCounts)
        self.by_version: Mapping[tuple[str, str], StandingCounts] = defaultdict(StandingCounts)
        self.devices_of: Mapping[str, set[str]] = defaultdict(set)
        """The devices on which the last run tested a test that it has a change of."""
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute("PRAGMA cache_size = -8000")
        self._rows.execute(f"CREATE TABLE changes ({_COLUMNS})")
        self._rows.execute("CREATE INDEX by_test ON changes (test)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def take(self, lines: Sequence[CaseLine], first: int, last: int) -> None:
        """The cases of a test, of which changes from the run `first` to the `last` are told."""
        told = [one for line in lines for one in changes_of(line, first)]
        marks = ", ".join("?" * len(NightChange._fields))
        self._rows.executemany(f"INSERT INTO changes VALUES ({marks})", told)
        for line in lines:
            for one in line.seen:
                self._count(one.at, one.last, last)
        if any(one.at == last for one in told):
            for line in lines:
                if line.seen[-1].at == last and line.last.device and line.last.has_verdict:
                    self.devices_of[line.last.test].add(line.last.device.name)

    def _count(self, at: int, brief: Brief, last: int) -> None:
        standing = brief.standing
        self.by_run[at][standing] += 1
        if brief.device is None:
            return
        device = brief.device.name
        self.by_device[device, at][standing] += 1
        if at > last - WINDOW:
            for name, said in versions_of(brief):
                if said:
                    self.by_version[f"{name} {said}", device][standing] += 1

    def index(self) -> None:
        """All is taken: from now on it is looked for by any of these."""
        for name in ("at", "cause", "device"):
            self._rows.execute(f"CREATE INDEX by_{name} ON changes ({name})")

    def causes(self) -> list[tuple[NightChange, int, int]]:
        """The newest change of each cause, how many cases it had, and the place of its first run;
        the last seen comes first."""
        of_all = "FROM changes WHERE became <> 'fixed' GROUP BY cause"
        first = dict(self._rows.execute(f"SELECT cause, min(at) {of_all}"))
        rows = self._rows.execute(  # beside max(), SQLite gives the columns of that very row
            f"SELECT {_COLUMNS}, count(DISTINCT test || device), max(at) AS newest {of_all} "
            "ORDER BY newest DESC, cause"
        )
        found = [(NightChange(*row[:-2]), int(row[-2])) for row in rows]
        return [(one, cases, first[one.cause]) for one, cases in found]

    def changes(self, where: str, *values: object) -> list[NightChange]:
        """Those that an expression of SQL takes, in the order of their causes."""
        rows = self._rows.execute(
            f"SELECT {_COLUMNS} FROM changes WHERE {where} ORDER BY at DESC, cause, test, device",
            values,
        )
        return [NightChange(*row) for row in rows]
