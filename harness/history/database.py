"""The database of the history (SQLite or PostgreSQL): its tables, and the rows made of journals.

Journals are the truth: the database can be deleted and imported from them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from harness.core.bounded_json import parse_model
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.json_record import Part
from harness.core.outgoing_text import without_secrets
from harness.history.attempts import Attempt, cause_id, short_hash
from harness.lab.health import DeviceEvent
from harness.report.summary import part_of
from harness.results.record import CaseRecord, PlacementRecord, is_figure

VERSION: Final = "16"
"""The version of the tables; a database of another version is refused."""

metadata: Final = MetaData()
# texts are compared byte by byte, as in SQLite
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")


def _texts(*names: str, nullable: bool = False) -> list[Column[str]]:
    return [Column(name, _TEXT, nullable=nullable) for name in names]


meta: Final = Table("meta", metadata, Column("name", _TEXT, primary_key=True), *_texts("value"))
runs: Final = Table(
    "runs",
    metadata,
    Column("run", _TEXT, primary_key=True),
    Column("started", _TEXT, nullable=False, index=True),
    *_texts("digest", "folder", "run_info"),
    *_texts("series", nullable=True),
    Column("size", Integer, nullable=False),
    Column("number", BigInteger),
    Column("not_run", BigInteger),
)
attempts: Final = Table(
    "attempts",
    metadata,
    Column("run", _TEXT, ForeignKey("runs.run"), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("identity", _TEXT, nullable=False, index=True),
    Column("counts", Boolean, nullable=False),
    *_texts("name", "case_group", "test", "axes", "outcome", "started"),
    *_texts("device", "simulated", "soc", "qnn", "ort", "placement", nullable=True),
    *_texts("cause", "known_issue", "diagnosis", "signature", "error", nullable=True),
    *_texts("server", "cause_id", "figures", "files_sha256", nullable=True),
)
Index(
    "attempts_of_case_group",
    *(attempts.c[name] for name in ("case_group", "run", "outcome", "cause")),
)
Index(
    "attempts_of_cause",
    *(attempts.c[name] for name in ("cause_id", "run", "case_group")),
    sqlite_where=attempts.c.cause_id.is_not(None),
    postgresql_where=attempts.c.cause_id.is_not(None),
)
device_runs: Final = Table(
    "device_runs",
    metadata,
    Column("run", _TEXT, ForeignKey("runs.run"), primary_key=True),
    Column("device", _TEXT, primary_key=True),
    *_texts("soc", "host", "state", "finding", nullable=True),
    Column("busy_s", Double, nullable=False),
    Column("span_s", Double, nullable=False),
    Column("hottest_c", Double),
    Column("battery_percent", BigInteger),
    Column("free_storage_bytes", BigInteger),
    Column("link_faults", BigInteger, nullable=False),
    Column("recoveries", BigInteger, nullable=False),
    Column("quarantines", BigInteger, nullable=False),
)
nights: Final = Table(
    "nights",
    metadata,
    Column("night", _TEXT, primary_key=True),
    *_texts("run", nullable=True),
    *_texts("summary"),
)


HISTORY: Final = "history.sqlite"
"""The default database, in the folder of reports."""
VARIABLE: Final = "QNN_HARNESS_HISTORY"
"""The environment variable that names another one."""
_POSTGRES: Final = ("postgresql://", "postgres://")
_EXTRA: Final = "pip install 'qnn-harness[postgres]'"
_WAIT_S: Final = 60
_STATEMENT_S: Final = 600
_BATCH: Final = 1_000
_LOCK: Final = 0x716E6E68  # "qnnh": the lock for creating tables in PostgreSQL


class Database:
    """A database of the history."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[Connection]:
        """Open a transaction, which is committed at the end of the block.

        Raises ConfigError for a file that is no database or cannot be written, else InfraError.
        """
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(writes=writes)
                with connection.begin():
                    yield connection
        except HarnessError:
            raise
        except SQLAlchemyError as error:
            raise self._refused(error) from error

    def _refused(self, error: SQLAlchemyError) -> HarnessError:
        cause = getattr(error, "orig", None) or error
        problem = str(cause).strip().partition("\n")[0]
        code = str(getattr(cause, "sqlite_errorname", ""))
        if code == "SQLITE_NOTADB":
            return ConfigError("is not a database", file=self._name, field=VARIABLE)
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            problem = f"{problem}; check that it can be written, or name another file"
            return ConfigError(problem, file=self._name, field=VARIABLE)
        advice = "; remove it, and import the journals again"
        return InfraError(f"{self._name}: {problem}{advice * code.startswith('SQLITE_CORRUPT')}")


def history_of_reports(reports: Path) -> str:
    """Return the path or URL of the database: the named one, or that in a folder of reports."""
    return os.environ.get(VARIABLE) or str(reports / HISTORY)


def open_database(location: str) -> Database:
    """Open the database of a path or URL, and create its tables if it is new.

    Raises ConfigError for a database of something else, InfraError if it does not answer.
    """
    name = without_secrets(location)
    if location.startswith(_POSTGRES):
        database = Database(_postgres(location, name), name)
    elif "://" in location:
        raise ConfigError(
            f"{location.partition('://')[0]}:// is not a supported database",
            field=VARIABLE,
            choices=("the path of a SQLite file", "postgresql://HOST/NAME"),
        )
    else:
        database = Database(_sqlite(Path(location)), name)
    version = _version_in(database, name)
    if version is None:
        with database.transaction() as connection:
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            metadata.create_all(connection)
            insert_new(connection, meta, {"name": "schema", "value": VERSION})
        version = _version_in(database, name)
    if version != VERSION:
        raise ConfigError(
            f"has tables of version {version}, but this harness needs {VERSION}; remove it, or "
            "name another database, then run `qnn-harness history import RUNS`",
            file=name,
            field=VARIABLE,
        )
    return database


def _version_in(database: Database, name: str) -> str | None:
    """Return the version of the tables, None if there are none.

    Raises ConfigError for a database of something else.
    """
    with database.transaction(writes=False) as connection:
        inspector = inspect(connection)
        tables = set(inspector.get_table_names())
        columns = inspector.get_columns(meta.name) if meta.name in tables else []
        if {"name", "value"} <= {column["name"] for column in columns}:
            value = select(meta.c.value).where(meta.c.name == "schema")
            version: str | None = connection.execute(value).scalar()
            if version is not None:
                return version
        # a server's database may be shared, a file belongs to one program
        foreign = (
            tables & set(metadata.tables) if connection.dialect.name == "postgresql" else tables
        )
        if foreign:
            problem = "has tables of another program; name another database"
            raise ConfigError(problem, file=name, field=VARIABLE)
        return None


def rows_of(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    """Iterate over the rows of a query, a batch at a time."""
    options = {"stream_results": True, "yield_per": _BATCH}
    return iter(connection.execute(query, execution_options=options))


def insert_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a table, a batch at a time."""
    remaining = iter(rows)
    while batch := [dict(row) for row in islice(remaining, _BATCH)]:
        connection.execute(insert(table), batch)


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Add a row to a table, unless there is one with its key."""
    statement: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(statement(table).values(**row).on_conflict_do_nothing())


def _sqlite(path: Path) -> Engine:
    if not path.parent.is_dir():
        raise ConfigError("there is no such folder", file=path.parent, field=VARIABLE)
    if path.is_dir():
        raise ConfigError("is a folder, not a file", file=path, field=VARIABLE)
    url = URL.create("sqlite", database=str(path.absolute()))
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT_S})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver starts no transactions by itself

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # writers take the lock at the start, so that none fails on a stale page later
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: str, name: str) -> Engine:
    # its warnings are in the error that follows
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    try:
        return create_engine(
            f"postgresql+psycopg://{url.partition('://')[2]}",
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": 10,
                "keepalives_idle": 30,
                "tcp_user_timeout": 1000 * _WAIT_S,
                "options": f"-c lock_timeout={_WAIT_S}s -c statement_timeout={_STATEMENT_S}s",
            },
        )
    except ImportError as error:
        raise ConfigError(f"PostgreSQL needs another package: {_EXTRA}", field=VARIABLE) from error
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"{name} is not the URL of a database", field=VARIABLE) from error


# an index entry of PostgreSQL has at most 2,700 bytes
_NAME_CHARS: Final = 500
_BIGGEST: Final = 1 << 62
_LINK: Final = ("reconnect", "restart-server")
_STEPS: Final = (*_LINK, "end-leftovers", "reboot", "power-cycle")
_VITALS: Final = ("hottest_c", "battery_percent", "free_storage_bytes")


def attempt_row(run: str, line: int, record: CaseRecord, attempt: Attempt) -> dict[str, object]:
    """Return the row of an attempt."""
    same = ("test", "device", "simulated", "files_sha256", "known_issue", "diagnosis", "server")
    texts = {name: getattr(attempt, name) for name in same} | {
        "name": attempt.case,
        "soc": record.device and record.device.soc,
        "qnn": attempt.axis("qnn"),
        "ort": attempt.axis("ort"),
        "signature": attempt.failure,
    }
    return {
        "run": run,
        "line": line,
        **{name: None if text is None else bounded(str(text)) for name, text in texts.items()},
        **{name: getattr(attempt, name) for name in ("outcome", "cause", "started", "attempt")},
        "axes": json.dumps(attempt.axes),
        "error": None if record.error is None else record.error.model_dump_json(),
        "case_group": short_hash(attempt.case_group),
        "placement": attempt.placement and _bounded_placement(attempt.placement),
        "figures": json.dumps(attempt.figures) if attempt.figures else None,
        "cause_id": cause_id(attempt) if attempt.is_bad else None,
        "identity": short_hash(repr(attempt.identity)),
        "counts": True,
    }


def hosts_in(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the host of each device by its name, from a run.json; under "" that of the run."""
    devices = info.get("lab", {}).get("devices", [])
    with_host = [device for device in devices if device.get("host")]
    hosts = {bounded(device.get("name", "")): bounded(device["host"]) for device in with_host}
    if own_host := info.get("host", {}).get("name"):
        hosts.setdefault("", bounded(own_host))
    return hosts


@dataclass
class DeviceSums:
    """Sums over all cases and events of a journal, for each device."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _first: float = float("inf")
    _last: float = 0.0

    def add(self, line: CaseRecord | DeviceEvent) -> None:
        if isinstance(line, DeviceEvent):
            row = self._row(line.device)
            row["link_faults"] += line.event in _LINK
            row["recoveries"] += line.event in _STEPS
            row["quarantines"] += line.event == "quarantine"
            if line.event != "push":
                row["state"], row["finding"] = line.state, bounded(line.detail) or None
            self._vitals(row, vars(line.vitals) if line.vitals else None)
            return
        start = line.started.timestamp()
        self._first, self._last = min(self._first, start), max(self._last, start + line.duration_s)
        if line.device is not None:
            row = self._row(line.device.name)
            row["soc"] = bounded(line.device.soc or "") or row["soc"]
            row["busy_s"] += line.duration_s
            self._vitals(row, part_of(line, "gate"))

    def rows(self, run: str) -> Iterator[dict[str, object]]:
        span = max(0.0, self._last - self._first)
        for row in self._rows.values():
            yield {"run": run, **row, "span_s": span}

    def _row(self, device: str) -> dict[str, Any]:
        name = bounded(device)
        host = self.hosts.get(name, self.hosts.get(""))
        none: dict[str, Any] = dict.fromkeys((*_VITALS, "soc", "state", "finding"))
        counts = dict.fromkeys(("link_faults", "recoveries", "quarantines"), 0)
        return self._rows.setdefault(
            name, {"device": name, "host": host, "busy_s": 0.0, **none, **counts}
        )

    def _vitals(self, row: dict[str, Any], vitals: Mapping[str, Any] | None) -> None:
        """Keep the highest temperature, and the lowest of the other values."""
        for name in _VITALS:
            value, known = (vitals or {}).get(name), row[name]
            if is_figure(value) and abs(value) < _BIGGEST:
                whole = value if name == "hottest_c" else int(value)
                best = max if name == "hottest_c" else min
                row[name] = whole if known is None else best(known, whole)


def _bounded_placement(placement: PlacementRecord) -> str:
    fields = placement.model_dump(mode="json")
    texts = {name: text and bounded(text) for name, text in fields.items()}
    return placement.model_copy(update=texts).model_dump_json()


def bounded(text: str) -> str:
    """Shorten a text for an index; different texts stay different."""
    text = without_nul(text)
    if len(text) <= _NAME_CHARS:
        return text
    return f"{text[: _NAME_CHARS - 20]}...{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def without_nul(text: str) -> str:
    """Replace NUL, the only character that PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd")


class DeviceSummary(Part):
    """The state of a device, since when and why."""

    state: str
    since: str
    why: str = ""

    @property
    def summary(self) -> str:
        since = f" since {self.since[:10]}" if self.since else ""
        return f"{self.state}{since}{f' ({self.why})' if self.why else ''}"


class CauseSummary(Part):
    """A cause as a night knew it: the result of its bisection, the bisection's folder beside the
    run, its command, and the files of tests, models and inputs that changed when it appeared."""

    known: str = ""
    folder: str = ""
    command: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()


class NightSummary(Part):
    """A night: its devices by name, its open causes by id, and problems that did not end it.

    It ended with `exit_code` and `verdict`, its result in words. `failed_on` has the conditions of
    `compare --fail-on` that held, and `vanished` the first vanished cases if that is one of them.
    `new` are the first cases that fail, but did not in the run `base` of the night before, even if
    a run in between had the failure.
    """

    night: str
    run: str
    base: str | None = None
    exit_code: int = 0
    verdict: str = ""
    devices: Mapping[str, DeviceSummary] = {}
    causes: Mapping[str, CauseSummary] = {}
    warnings: tuple[str, ...] = ()
    failed_on: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


def store_night(database: Database, night: NightSummary) -> None:
    """Store the summary of a night, in place of an earlier one. Raises InfraError."""
    with database.transaction() as connection:
        row = {"night": bounded(night.night), "run": bounded(night.run)}
        row["summary"] = without_nul(night.model_dump_json())
        insert_new(connection, nights, row)
        connection.execute(update(nights).where(nights.c.night == row["night"]).values(row))


def load_nights(database: Database) -> dict[str, NightSummary]:
    """Return the stored nights by the ids of their runs. Raises InfraError."""
    loaded = {}
    with database.transaction(writes=False) as connection:
        query = select(nights.c.run, nights.c.summary).order_by(nights.c.night)
        for run, text in connection.execute(query):
            with contextlib.suppress(ValueError):  # written by a harness with other fields
                loaded[run] = parse_model(NightSummary, text)
    return loaded
