"""Journals into the database and out of it."""

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
from harness.core.names_inside import open_below
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
from harness.history.timeline import Filter, RunHeld
from harness.results.coverage import selected_of
from harness.results.journal import Damage, LeftOut, cases_in, lines_in
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

_EMPTY: Final = {"started": "", "digest": "", "folder": "", "size": 0, "told": ""}
_PEEKED: Final = 100
_TOLD: Final = ("selected", "finished", "problem")
"""What of a run.json says how many cases the run had."""


@dataclass(frozen=True)
class Imported:
    """What became of a run's journal: `attempts` are those now held.

    `left_out` tells of its lines that are no records, if it was read. `beside` is the folder of
    another run with this id that is held already; then `run` is more than the id.
    """

    run: str
    attempts: int
    changed: bool
    left_out: LeftOut = field(default_factory=LeftOut, compare=False)
    beside: str | None = None


def runs_in(path: Path) -> list[Path]:
    """The run's folder that a path is, or those in it, the oldest first.

    Raises ConfigError if there is none.
    """
    if (path / JOURNAL).is_file():
        return [path]
    if not (found := run_folders(path)):
        raise ConfigError(f"holds no run: there is no {JOURNAL} in it or in its folders", file=path)
    return found


def import_run(database: Database, path: Path) -> Imported:
    """Makes the database say what a run's journal says, and how many cases it lacks by its
    run.json, unless it does so already.

    Two at once wait for each other; one that dies has done nothing. Raises ConfigError for what
    is no run, InfraError if the database fails.
    """
    folder = RunFolder.open(path)
    journal = folder.path / JOURNAL
    info = folder.info()
    run = bounded(info.get("run") or folder.run_id)
    number = RunNumber.of(folder.run_id, info)
    devices, left_out = DeviceSums(hosts_in(info)), LeftOut()
    if not (started := info.get("started") or ""):
        _, first = next(cases_in(journal), (0, None))
        started = moment_text(first.started) if first is not None else ""
    with database.transaction() as connection:
        digest, told = _digest(journal), bounded(json.dumps([info.get(name) for name in _TOLD]))
        held, beside = _held(connection, run), None
        if held.digest != digest and _is_other(connection, held, folder.path, started):
            beside = held.folder
            run = f"{run}~{hashlib.sha256(f'{folder.path} {started}'.encode()).hexdigest()[:16]}"
            held = _held(connection, run)
        known = held.told == told or _is_copy(folder.path, held)
        if held.digest == digest and known:
            size = _attempts_in(connection, run)
            return Imported(run, size, changed=False, beside=beside)
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
                told=told,
            )
        )
        size = _attempts_in(connection, run)
        _count_once(connection, run, size)
    return Imported(run, size, changed=True, left_out=left_out, beside=beside)


def _attempts_in(connection: Connection, run: str) -> int:
    return connection.execute(select(func.count()).where(attempts.c.run == run)).scalar_one()


def _held(connection: Connection, run: str) -> Any:
    """What is held of a run, of which there is a row then; others wait until we are done."""
    insert_new(connection, runs, {"run": run, **_EMPTY})
    query = select(runs).where(runs.c.run == run).with_for_update()
    return connection.execute(query).one()


def _count_once(connection: Connection, run: str, size: int) -> None:
    """Note that a run holds so many attempts, and have each of them count in one run alone: of
    those that hold it in the largest, since merged runs are larger than their parts."""
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
    """How many cases of the run left no record, by its run.json; None if nobody knows."""
    # a case fits the lab if it has a device in any attempt
    fits = func.max(case((attempts.c.device.is_(None), 0), else_=1)).label("fits")
    cases = select(fits).where(attempts.c.run == run).group_by(attempts.c.name).subquery()
    counts = select(func.count(), func.coalesce(func.sum(cases.c.fits), 0)).select_from(cases)
    seen, fit = connection.execute(counts).one()
    selected = selected_of(info, seen, seen - fit)
    return None if selected is None else selected - seen


def _is_other(connection: Connection, held: Any, folder: Path, started: str) -> bool:
    """Whether a journal is of another run than what is held by its id, and did not just grow.

    Runs are told apart by when they were begun and by their records, unless a journal was replaced
    in its place.
    """
    if not held.folder:
        return False  # nothing is held
    if held.started != sortable_time(started):
        return True
    if held.folder == without_nul(str(folder)):
        return False
    # no two attempts have these alike
    columns = _columns("line", "name", "started", "attempt")
    first = select(*columns).where(attempts.c.run == held.run).order_by(attempts.c.line)
    rows = rows_of(connection, first.limit(_PEEKED))
    known = {int(line): tuple(rest) for line, *rest in rows}
    for number, record in cases_in(folder / JOURNAL):
        if number > max(known, default=0):
            return False
        same = bounded(record.case), moment_text(record.started), record.attempt
        if number in known and known[number] != same:
            return True
    return False


def _is_copy(folder: Path, held: Any) -> bool:
    """Whether a folder with the journal of a held run is a copy, whose run.json says nothing of
    it: that run is held of another one, which is there and is not the one with the wrong name."""
    other = Path(held.folder)
    is_named = other.name == held.run or folder.name != held.run
    return other != folder and is_named and (other / JOURNAL).is_file()


def refuse_unknown(database: Database, asked: Filter) -> None:
    """Raises ConfigError for a device or an axis that no held attempt has, if any are held.

    InfraError if the database fails.
    """
    devices, axes, any_held = set[str](), {"device", "ort", "engine"}, False
    with database.transaction(writes=False) as connection:
        query = select(attempts.c.axes, attempts.c.device).distinct()
        for text, device in rows_of(connection, query):
            any_held = True
            axes.update(parse_json(text))
            devices.update([device] if device else [])
    for name, _ in asked.axes if any_held else ():
        if name not in axes:
            raise ConfigError(f"no case has an axis {name!r}", field="--axis", choices=sorted(axes))
    if any_held and asked.device and asked.device not in devices:
        problem = f"no run was on a device {asked.device!r}"
        raise ConfigError(problem, field="--device", choices=sorted(devices))


def _rows(
    run: str, journal: Path, devices: DeviceSums, left_out: LeftOut
) -> Iterator[dict[str, object]]:
    """The rows of a journal's attempts; the rest of it goes into `devices` and `left_out`."""
    for number, said in lines_in(journal):
        if isinstance(said, Damage):
            left_out.add(said)
            continue
        devices.take(said)
        if isinstance(said, CaseRecord):
            yield attempt_row(run, number, said, Attempt.of(said))


_SAME: Final = (
    *("test", "placement", "axes", "outcome", "cause", "device", "simulated", "ort"),
    *("known_issue", "server", "diagnosis", "started", "attempt", "figures", "files_sha256"),
)
_FIELDS: Final = {"case": "name", "failure": "signature", **{name: name for name in _SAME}}
"""The column of each field of an attempt that is held."""
_object = lru_cache(1000)(parse_json)
"""The axes or figures of an attempt; many have them in common, so nobody may change them."""


@lru_cache(1000)
def _placement(said: str | None) -> PlacementRecord | None:
    return None if said is None else parse_model(PlacementRecord, said)


def _columns(*names: str) -> list[Column[Any]]:
    return [attempts.c[name] for name in names]


def _digest(journal: Path) -> str:
    try:
        with open_below(journal.parent, journal.name) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=journal) from error


def runs_held(database: Database) -> list[RunHeld]:
    """The runs that are held, as they were begun.

    What is wholly part of others, merged of it, is left out. Raises InfraError.
    """
    counting = select(func.count()).where(attempts.c.run == runs.c.run, attempts.c.counts)
    query = select(runs, counting.scalar_subquery().label("counting"))
    with database.transaction(writes=False) as connection:
        held = [row for row in connection.execute(query) if row.counting or not row.size]
    ordered = in_order(
        held, lambda row: RunNumber(row.series or "", row.number or 0, row.started, row.run)
    )
    return [
        RunHeld(row.run, row.started, row.not_run, f"{row.digest} {row.counting}")
        for row in ordered
    ]


def _failing_tests(asked: Filter) -> Select[Any]:
    failed, recent = attempts.alias(), select(runs.c.run).where(runs.c.started >= asked.since)
    return select(failed.c.test).where(failed.c.cause_id.is_not(None), failed.c.run.in_(recent))


def stored_attempts(
    database: Database, asked: Filter, *, by_test: bool = False
) -> Iterator[tuple[str, str, Attempt]]:
    """The attempts asked for: kin, run, attempt. Those of one kin and run come together; `by_test`
    also all kins of one test.

    Raises InfraError.
    """
    query = select(*_columns("kin", "run", *_FIELDS.values())).where(attempts.c.counts)
    for value, condition in (
        (asked.kin, attempts.c.kin == asked.kin),
        (asked.device, attempts.c.device == asked.device),
        (asked.since, runs.c.started >= asked.since),
        (asked.until, runs.c.started < asked.until),
        (asked.failing, attempts.c.test.in_(_failing_tests(asked))),
        # LIKE knows no case in SQLite
        (asked.case, func.replace(attempts.c.name, asked.case, "") != attempts.c.name),
    ):
        query = query.where(condition) if value else query
    order = _columns(*["test"] * by_test, "kin", "run", "line")
    query = query.join(runs).order_by(*order)
    with database.transaction(writes=False) as connection:
        for kin, run, *columns in rows_of(connection, query):
            fields = dict(zip(_FIELDS, columns, strict=True))
            fields["placement"] = _placement(fields["placement"])
            fields["axes"] = _object(fields["axes"])
            fields["figures"] = _object(fields["figures"] or "{}")
            attempt = Attempt(**fields)
            if not asked.axes or asked.takes(attempt):
                yield kin, run, attempt
