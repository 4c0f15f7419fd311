"""Where history is kept: SQLite in a file, PostgreSQL by URL; one text of SQL for both.

Journals are the truth: the database can be thrown away and made of them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.answers.history.brief import Brief, Fate
from harness.answers.history.causes import cause_id
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.errors.outgoing_text import without_secrets
from harness.verdict.results.record import PlacementRecord
from harness.verdict.results.schema_1 import placed

HISTORY: Final = "history.sqlite"
"""Where history is held among reports, where no other place was named."""
VERSION: Final = "6"
"""Of the tables. Older ones are made into these, step by step; others are refused."""
_OLDER: Final = ("1", "2", "3", "4", "5")
MERGED: Final = "merged"
"""What stands as `told` of a run that is a shard of a merged one, which has its cases."""

_POSTGRES: Final = ("postgresql://", "postgres://")
_EXTRA: Final = "pip install 'qnn-harness[postgres]'"
_WAIT_S: Final = 60
_STATEMENT_S: Final = 600
_AT_ONCE: Final = 5_000
_LOCK: Final = 0x716E6E68  # qnnh: who makes the tables in PostgreSQL holds it

_OF_NIGHTS: Final = (
    "CREATE TABLE IF NOT EXISTS device_runs (run TEXT NOT NULL REFERENCES runs (run), "
    "device TEXT NOT NULL, soc TEXT, host TEXT, "
    "busy_s DOUBLE PRECISION NOT NULL, span_s DOUBLE PRECISION NOT NULL, "
    "hottest_c DOUBLE PRECISION, battery_percent BIGINT, free_storage_bytes BIGINT, "
    "link_faults BIGINT NOT NULL, recoveries BIGINT NOT NULL, quarantines BIGINT NOT NULL, "
    "state TEXT, finding TEXT, PRIMARY KEY (run, device))",
    "CREATE TABLE IF NOT EXISTS nights (night TEXT PRIMARY KEY, run TEXT, said TEXT NOT NULL)",
)
_INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS attempts_of_kin ON attempts (kin, run, outcome, cause)",
    "CREATE INDEX IF NOT EXISTS attempts_of_cause ON attempts (cause_id, run, kin) "
    "WHERE cause_id IS NOT NULL",
)
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, started TEXT NOT NULL, "
    "digest TEXT NOT NULL, folder TEXT NOT NULL, damaged INTEGER NOT NULL, "
    "series TEXT, number BIGINT, after_run TEXT, not_run BIGINT, "
    "told TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE IF NOT EXISTS attempts (run TEXT NOT NULL REFERENCES runs (run), "
    "line INTEGER NOT NULL, name TEXT NOT NULL, device TEXT, qnn TEXT, ort TEXT, "
    "axes TEXT NOT NULL, outcome TEXT NOT NULL, cause TEXT, known_issue TEXT, diagnosis TEXT, "
    "signature TEXT, error TEXT, started TEXT NOT NULL, attempt INTEGER NOT NULL, "
    "kin TEXT NOT NULL DEFAULT '', test TEXT NOT NULL DEFAULT '', placement TEXT, "
    "soc TEXT, host TEXT, files TEXT, figures TEXT, cause_id TEXT, PRIMARY KEY (run, line))",
    "CREATE INDEX IF NOT EXISTS runs_by_time ON runs (started)",
    *_INDEXES,
    *_OF_NIGHTS,
)

_READ_AGAIN: Final = ("soc", "host", "files", "figures")
_UNREAD: Final = ("device_runs {} attempts", "device_runs {} free_ram_bytes", "nights {} started")
_EMPTY_JOURNAL: Final = hashlib.sha256().hexdigest()
_NEW_IN: Final[Mapping[str, Sequence[str]]] = {
    "2": (
        "ALTER TABLE runs ADD COLUMN series TEXT",
        "ALTER TABLE runs ADD COLUMN number BIGINT",
        "ALTER TABLE runs ADD COLUMN after_run TEXT",
        "ALTER TABLE attempts ADD COLUMN kin TEXT NOT NULL DEFAULT ''",
    ),
    "3": (
        "ALTER TABLE runs ADD COLUMN not_run BIGINT",
        "ALTER TABLE runs ADD COLUMN told TEXT NOT NULL DEFAULT ''",
        # of what has a journal but no attempt, another run has them
        f"UPDATE runs SET told = '{MERGED}', not_run = 0 WHERE digest <> '{_EMPTY_JOURNAL}' "
        "AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.run = runs.run)",
    ),
    "4": (
        "ALTER TABLE attempts ADD COLUMN test TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE attempts ADD COLUMN placement TEXT",
    ),
    "5": (
        *(f"ALTER TABLE attempts ADD COLUMN {name} TEXT" for name in _READ_AGAIN),
        *_OF_NIGHTS,
        *(f"ALTER TABLE {one.format('ADD COLUMN')} TEXT" for one in _UNREAD),
        # journals that are still there are read once more: they have what is new
        f"UPDATE runs SET told = '' WHERE told <> '{MERGED}'",
    ),
    "6": (
        *(f"ALTER TABLE {one.format('DROP COLUMN')}" for one in _UNREAD),
        "ALTER TABLE attempts ADD COLUMN cause_id TEXT",
    ),
}
"""What each version has that the one before had not. First the place of a run, and what cases of
all versions share. Then how many cases left no record, and what run.json said when that was found.
Then what records of schema 2 say of a case beside its name. Then where it ran and what it
measured, how devices did, and what nights said. The last takes away what nobody read, and names
causes.
"""


def kin_of(brief: Brief) -> str:
    """What a case shares with its cases of other versions, as a key of 16 characters."""
    return hashlib.sha256(brief.kin.encode("utf-8", "replace")).hexdigest()[:16]


def open_database(where: str) -> Database:
    """Opens the database of a path or URL, and makes its tables if it is new.

    Raises ConfigError for what is no database of ours, InfraError if it does not answer.
    """
    database: Database
    if where.startswith(_POSTGRES):
        database = _Postgres(where)
    elif "://" in where:
        raise ConfigError(
            f"{where.partition('://')[0]}:// is no database that is known",
            field="--database",
            choices=("the path of a SQLite file", "postgresql://HOST/NAME"),
        )
    else:
        database = _Sqlite(Path(where))
    version = _held_version(database, where)
    if version is None:
        with database.transaction() as connection:
            list(connection.execute(connection.alone))
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO meta (name, value) VALUES ('schema', :version) ON CONFLICT DO NOTHING",
                version=VERSION,
            )
        version = _held_version(database, where)
    if version in _OLDER:
        _bring_up(database)
        version = _held_version(database, where)
    if version != VERSION:
        raise ConfigError(
            f"has tables of version {version}, this harness knows {VERSION}: name another "
            "database and import the journals into it",
            file=without_secrets(where),
            field="--database",
        )
    return database


def _bring_up(database: Database) -> None:
    """Makes older tables into today's, or leaves them as they are. Raises InfraError."""
    with database.transaction() as connection:
        list(connection.execute(connection.alone))
        ((held,),) = connection.execute("SELECT value FROM meta WHERE name = 'schema'")
        if held not in _OLDER:
            return  # somebody else did meanwhile
        for version, statements in _NEW_IN.items():
            if int(version) <= int(held):
                continue
            for statement in statements:
                connection.execute(statement)
        if int(held) < 4:
            _place(connection)
        _name_causes(connection)
        for statement in _INDEXES:
            connection.execute(statement)
        connection.execute("UPDATE meta SET value = :new WHERE name = 'schema'", new=VERSION)


def _place(connection: AnyConnection) -> None:
    """Fills in what records of schema 1 said by their names only."""
    for (run,) in list(connection.execute("SELECT run FROM runs")):
        rows = connection.execute(
            "SELECT line, name, axes, device FROM attempts WHERE run = :r", r=run
        )
        connection.execute_many(
            "UPDATE attempts SET test = :test, placement = :placement, kin = :kin "
            "WHERE run = :run AND line = :line",
            [{"run": run, "line": line, **_placed(*said)} for line, *said in rows],
        )


def _name_causes(connection: AnyConnection) -> None:
    """Fills in the ids of causes."""
    for (run,) in list(connection.execute("SELECT run FROM runs")):
        rows = connection.execute(
            "SELECT line, outcome, cause, known_issue, signature FROM attempts "
            "WHERE run = :r AND outcome NOT IN ('passed', 'unsupported', 'skipped')",
            r=run,
        )
        named = []
        for line, outcome, cause, known_issue, signature in rows:
            fate = Fate(outcome, cause, known_issue=known_issue, failure=signature)
            id_of = cause_id(Brief("", "", None, None, fate, ""))
            named.append({"run": run, "line": line, "cause_id": id_of})
        connection.execute_many(
            "UPDATE attempts SET cause_id = :cause_id WHERE run = :run AND line = :line", named
        )


def _placed(name: str, axes: str, device: str | None) -> dict[str, str | None]:
    known = json.loads(axes)
    test, placement = placed(name, {"device": device, **known}, known.get("engine"))
    made = None if placement is None else PlacementRecord.model_validate(placement)
    brief = Brief(name, test, made, None, Fate("passed"), "")
    return {
        "test": test,
        "placement": None if made is None else made.model_dump_json(),
        "kin": kin_of(brief),
    }


def _held_version(database: Database, where: str) -> str | None:
    """Of which version the tables are, None if there are none; what is held may be read-only.

    Raises ConfigError for a database of something else.
    """
    with database.transaction(writes=False) as connection:
        names = {str(name) for (name,) in connection.execute(connection.tables)}
        if "meta" in names:
            found = list(connection.execute("SELECT value FROM meta WHERE name = 'schema'"))
            return str(found[0][0]) if found else None
        if names & {"runs", "attempts"}:
            raise ConfigError(
                "holds tables of something else", file=without_secrets(where), field="--database"
            )
        return None


class _SqliteConnection:
    """A connection within a transaction: named parameters, as in :name."""

    contains = "instr(name, :part) > 0"
    """The expression that is true where :part is in `name`."""
    lock_row = ""  # whoever writes holds the whole file
    """Stands behind a SELECT to hold its row until the transaction is over."""
    alone = "SELECT 1"
    """The statement that waits until nobody else makes the tables."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, **values: object) -> Iterator[Sequence[Any]]:
        return iter(self._connection.execute(sql, values))

    def execute_many(self, sql: str, rows: Iterable[Mapping[str, object]]) -> None:
        self._connection.executemany(sql, rows)


class _Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.parent.is_dir():
            raise ConfigError("there is no such folder", file=path.parent, field="--database")
        if path.is_dir():
            raise ConfigError("is a folder, not a file", file=path, field="--database")

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[_SqliteConnection]:
        try:
            with contextlib.closing(
                sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            ) as connection:
                # writers wait for each other from the start: none finds a stale page later
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield _SqliteConnection(connection)
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            problem = "is no database" if name == "SQLITE_NOTADB" else ""
            if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
                problem = f"{error}: may it be written? else name another place"
            if problem:
                raise ConfigError(problem, file=self._path, field="--database") from error
            corrupt = name.startswith("SQLITE_CORRUPT")
            more = ": remove it, and import the journals again" if corrupt else ""
            raise InfraError(f"{self._path}: {error}{more}") from error


class _PostgresConnection:
    contains = "strpos(name, :part) > 0"
    lock_row = "FOR UPDATE"
    alone = f"SELECT pg_advisory_xact_lock({_LOCK})"
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema"

    def __init__(self, connection: Any) -> None:
        from sqlalchemy import text

        self._connection, self._text = connection, text

    def execute(self, sql: str, **values: object) -> Iterator[Sequence[Any]]:
        statement = self._text(sql)
        if sql.startswith("SELECT"):  # many rows are not all held at once
            statement = statement.execution_options(stream_results=True, yield_per=_AT_ONCE)
        found = self._connection.execute(statement, values)
        return iter(found) if found.returns_rows else iter(())

    def execute_many(self, sql: str, rows: Iterable[Mapping[str, object]]) -> None:
        left = iter(rows)
        statement = self._text(sql)
        while some := [dict(row) for _, row in zip(range(_AT_ONCE), left, strict=False)]:
            self._connection.execute(statement, some)


class _Postgres:
    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: F401
            from sqlalchemy import create_engine
            from sqlalchemy.exc import ArgumentError, SQLAlchemyError
        except ImportError as error:
            raise ConfigError(
                f"PostgreSQL needs more packages: {_EXTRA}", field="--database"
            ) from error
        # what it warns of is in the error that follows
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)
        self._failed = SQLAlchemyError
        self._shown = without_secrets(url)
        try:
            self._engine = create_engine(
                f"postgresql+psycopg://{url.partition('://')[2]}",
                connect_args={
                    "connect_timeout": 10,
                    "keepalives_idle": 30,
                    "tcp_user_timeout": 1000 * _WAIT_S,
                    "options": f"-c lock_timeout={_WAIT_S}s -c statement_timeout={_STATEMENT_S}s",
                },
            )
        except (ArgumentError, ValueError) as error:
            raise ConfigError(
                f"{self._shown} is no URL of a database", field="--database"
            ) from error

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[_PostgresConnection]:
        del writes  # PostgreSQL finds out by itself
        try:
            with self._engine.begin() as connection:
                yield _PostgresConnection(connection)
        except HarnessError:
            raise
        except self._failed as error:
            said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise InfraError(f"{self._shown}: {said}") from error


AnyConnection: TypeAlias = _SqliteConnection | _PostgresConnection
Database: TypeAlias = _Sqlite | _Postgres
"""A place where history is kept; a `transaction` is all of it or nothing, else InfraError."""
