"""Import of journals into the database, and queries for their attempts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Connection, Select, case, delete, func, select, update

from harness.core.bounded_json import parse_json, parse_model
from harness.core.errors import ConfigError
from harness.core.paths_inside import open_below
from harness.history.attempts import Attempt
from harness.history.database import (
    Database,
    DeviceSums,
    attempt_row,
    attempts,
    bounded,
    device_runs,
    hosts_in,
    insert_new,
    insert_rows,
    rows_of,
    runs,
    without_nul,
)
from harness.history.timeline import Filter, StoredRun
from harness.results.coverage import selected_of
from harness.results.journal import Damage, SkippedLines, cases_in, lines_in
from harness.results.record import CaseRecord, PlacementRecord
from harness.results.run_folder import (
    JOURNAL,
    RunFolder,
    RunNumber,
    in_order,
    moment_text,
    run_folders,
    sortable_time,
)

_EMPTY: Final = {"started": "", "digest": "", "folder": "", "size": 0, "run_info": ""}
_PEEKED: Final = 100
_RUN_INFO: Final = ("selected", "finished", "problem", "not_started")
"""The fields of run.json that say how many cases the run had."""


@dataclass(frozen=True)
class Imported:
    """The result of importing a run's journal: `attempts` is the number of those now stored.

    `left_out` has the journal's lines that are no records, if it was read. `other_folder` is that
    of another run that is stored under this id; then `run` is the id with a suffix.
    """

    run: str
    attempts: int
    changed: bool
    left_out: SkippedLines = field(default_factory=SkippedLines, compare=False)
    other_folder: str | None = None


def runs_in(path: Path) -> list[Path]:
    """Return the path if it is a run's folder, or else the runs' folders in it, oldest first.

    Raises ConfigError if there is none.
    """
    if (path / JOURNAL).is_file():
        return [path]
    if not (folders := run_folders(path)):
        problem = f"has no run: neither this folder nor those in it have a {JOURNAL}"
        raise ConfigError(problem, file=path)
    return folders


def import_run(database: Database, path: Path) -> Imported:
    """Import a run's journal, and how many cases it lacks by its run.json, unless unchanged.

    Concurrent imports of a run wait for each other; an interrupted one leaves no trace. Raises
    ConfigError for a folder that is no run, InfraError if the database fails.
    """
    folder = RunFolder.open(path)
    journal = folder.path / JOURNAL
    info = folder.info()
    run = bounded(info.get("run") or folder.run_id)
    number = RunNumber.of(folder.run_id, info)
    devices, left_out = DeviceSums(hosts_in(info)), SkippedLines()
    if not (started := info.get("started") or ""):
        _, first = next(cases_in(journal), (0, None))
        started = moment_text(first.started) if first is not None else ""
    with database.transaction() as connection:
        digest = _digest(journal)
        facts = bounded(json.dumps([info.get(name) for name in _RUN_INFO]))
        stored, other_folder = _stored_run(connection, run), None
        if stored.digest != digest and _is_other(connection, stored, folder.path, started):
            other_folder = stored.folder
            run = f"{run}~{hashlib.sha256(f'{folder.path} {started}'.encode()).hexdigest()[:16]}"
            stored = _stored_run(connection, run)
        is_current = stored.run_info == facts or _is_copy(folder.path, stored)
        if stored.digest == digest and is_current:
            size = _attempts_in(connection, run)
            return Imported(run, size, changed=False, other_folder=other_folder)
        _count_once(connection, run, 0)
        for table in (attempts, device_runs):
            connection.execute(delete(table).where(table.c.run == run))
        insert_rows(connection, attempts, _rows(run, journal, devices, left_out))
        insert_rows(connection, device_runs, devices.rows(run))
        changes = update(runs).where(runs.c.run == run)
        connection.execute(
            changes.values(
                started=sortable_time(started),
                digest=digest,
                folder=without_nul(str(folder.path)),
                series=number.series,
                number=number.number,
                not_run=_not_run(connection, run, info),
                run_info=facts,
            )
        )
        size = _attempts_in(connection, run)
        _count_once(connection, run, size)
    return Imported(run, size, changed=True, left_out=left_out, other_folder=other_folder)


def _attempts_in(connection: Connection, run: str) -> int:
    return connection.execute(select(func.count()).where(attempts.c.run == run)).scalar_one()


def _stored_run(connection: Connection, run: str) -> Any:
    """Return the row of a run, created if needed, and lock it until the transaction ends."""
    insert_new(connection, runs, {"run": run, **_EMPTY})
    return connection.execute(select(runs).where(runs.c.run == run).with_for_update()).one()


def _count_once(connection: Connection, run: str, size: int) -> None:
    """Store the size of a run, and let each of its attempts count in one run only: the largest
    that has it, since merged runs are larger than their parts."""
    connection.execute(update(runs).where(runs.c.run == run).values(size=size))
    of_run = select(attempts.c.identity).where(attempts.c.run == run)
    holder = attempts.alias()
    largest = (
        select(holder.c.run)
        .join(runs, runs.c.run == holder.c.run)
        .where(holder.c.identity == attempts.c.identity)
        .order_by(runs.c.size.desc(), runs.c.run)
        .limit(1)
        .scalar_subquery()
    )
    changed = update(attempts).where(attempts.c.identity.in_(of_run))
    connection.execute(changed.values(counts=attempts.c.run == largest))


def _not_run(connection: Connection, run: str, info: Mapping[str, Any]) -> int | None:
    """Return how many cases of the run left no record, by its run.json; None if unknown."""
    # a case fits the lab if it has a device in any attempt
    fits = func.max(case((attempts.c.device.is_(None), 0), else_=1)).label("fits")
    cases = select(fits).where(attempts.c.run == run).group_by(attempts.c.name).subquery()
    counts = select(func.count(), func.coalesce(func.sum(cases.c.fits), 0)).select_from(cases)
    recorded, fit = connection.execute(counts).one()
    selected = selected_of(info, recorded, recorded - fit)
    return None if selected is None else selected - recorded


def _is_other(connection: Connection, stored: Any, folder: Path, started: str) -> bool:
    """Return whether a journal belongs to another run than the stored one of the same id.

    Runs differ in their start or in their first records. A journal that only grew, or was replaced
    in the same folder, is that of the same run.
    """
    if not stored.folder:
        return False  # nothing is stored yet
    if stored.started != sortable_time(started):
        return True
    if stored.folder == without_nul(str(folder)):
        return False
    # these identify an attempt
    columns = _columns("line", "name", "started", "attempt")
    first = select(*columns).where(attempts.c.run == stored.run).order_by(attempts.c.line)
    rows = rows_of(connection, first.limit(_PEEKED))
    known = {int(line): tuple(rest) for line, *rest in rows}
    for number, record in cases_in(folder / JOURNAL):
        if number > max(known, default=0):
            return False
        same = bounded(record.case), moment_text(record.started), record.attempt
        if number in known and known[number] != same:
            return True
    return False


def _is_copy(folder: Path, stored: Any) -> bool:
    """Return whether a folder with the journal of a stored run is a copy; its run.json is ignored.

    It is a copy if the run was stored from another folder that still has a journal, unless that
    other folder alone has a wrong name.
    """
    original = Path(stored.folder)
    is_named = original.name == stored.run or folder.name != stored.run
    return original != folder and is_named and (original / JOURNAL).is_file()


def validate_device(database: Database, device: str) -> None:
    """Raise ConfigError for a device that no stored attempt has, if there are any attempts.

    Raises InfraError if the database fails.
    """
    with database.transaction(writes=False) as connection:
        devices = set(connection.execute(select(attempts.c.device).distinct()).scalars())
    if device and devices and device not in devices:
        problem = f"no run used a device {device!r}"
        raise ConfigError(problem, field="--device", choices=sorted(filter(None, devices)))


def _rows(
    run: str, journal: Path, devices: DeviceSums, left_out: SkippedLines
) -> Iterator[dict[str, object]]:
    for number, line in lines_in(journal):
        if isinstance(line, Damage):
            left_out.add(line)
            continue
        devices.add(line)
        if isinstance(line, CaseRecord):
            yield attempt_row(run, number, line, Attempt.of(line))


_SAME: Final = (
    *("test", "placement", "axes", "outcome", "cause", "device", "simulated", "ort"),
    *("known_issue", "server", "diagnosis", "started", "attempt", "figures", "files_sha256"),
)
_FIELDS: Final = {"case": "name", "failure": "signature", **{name: name for name in _SAME}}
"""The column of each stored field of an attempt."""
_object = lru_cache(1000)(parse_json)
"""Parses the axes or figures of an attempt. Attempts share the results: never change them."""


@lru_cache(1000)
def _placement(text: str | None) -> PlacementRecord | None:
    return None if text is None else parse_model(PlacementRecord, text)


def _columns(*names: str) -> list[Column[Any]]:
    return [attempts.c[name] for name in names]


def _digest(journal: Path) -> str:
    try:
        with open_below(journal.parent, journal.name) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=journal) from error


def list_runs(database: Database) -> list[StoredRun]:
    """Return the stored runs in the order of their starts, without those that were merged.

    Raises InfraError.
    """
    counting = select(func.count()).where(attempts.c.run == runs.c.run, attempts.c.counts)
    query = select(runs, counting.scalar_subquery().label("counting"))
    with database.transaction(writes=False) as connection:
        rows = [row for row in connection.execute(query) if row.counting or not row.size]
    ordered = in_order(
        rows, lambda row: RunNumber(row.series or "", row.number or 0, row.started, row.run)
    )
    return [
        StoredRun(row.run, row.started, row.not_run, f"{row.digest} {row.counting}")
        for row in ordered
    ]


def _failing_tests(criteria: Filter) -> Select[Any]:
    failed, recent = attempts.alias(), select(runs.c.run).where(runs.c.started >= criteria.since)
    return select(failed.c.test).where(failed.c.cause_id.is_not(None), failed.c.run.in_(recent))


def stored_attempts(
    database: Database, criteria: Filter, *, by_test: bool = False
) -> Iterator[tuple[str, str, Attempt]]:
    """Yield the attempts asked for: key of the case group, run, attempt.

    Those of one group and run come together; with `by_test` also all groups of one test. Raises
    InfraError.
    """
    query = select(*_columns("case_group", "run", *_FIELDS.values())).where(attempts.c.counts)
    for value, condition in (
        (criteria.case_group, attempts.c.case_group == criteria.case_group),
        (criteria.device, attempts.c.device == criteria.device),
        (criteria.since, runs.c.started >= criteria.since),
        (criteria.failing, attempts.c.test.in_(_failing_tests(criteria))),
        # LIKE ignores case in SQLite
        (criteria.case, func.replace(attempts.c.name, criteria.case, "") != attempts.c.name),
    ):
        query = query.where(condition) if value else query
    order = _columns(*["test"] * by_test, "case_group", "run", "line")
    query = query.join(runs).order_by(*order)
    with database.transaction(writes=False) as connection:
        for group, run, *columns in rows_of(connection, query):
            fields = dict(zip(_FIELDS, columns, strict=True))
            fields["placement"] = _placement(fields["placement"])
            fields["axes"] = _object(fields["axes"])
            fields["figures"] = _object(fields["figures"] or "{}")
            yield group, run, Attempt(**fields)
