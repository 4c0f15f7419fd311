"""Where history is kept: SQLite in a file, PostgreSQL by URL; one text of SQL for both.

Journals are the truth: the database can be thrown away and made of them again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.answers.history.attempts import Attempt
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.errors.outgoing_text import without_secrets

HISTORY: Final = "history.sqlite"
"""Where history is held among reports, where no other place was named."""
VERSION: Final = "7"
"""Of the tables; others are refused."""

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
    "series TEXT, number BIGINT, not_run BIGINT, "
    "told TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE IF NOT EXISTS attempts (run TEXT NOT NULL REFERENCES runs (run), "
    "line INTEGER NOT NULL, name TEXT NOT NULL, device TEXT, qnn TEXT, ort TEXT, "
    "axes TEXT NOT NULL, outcome TEXT NOT NULL, cause TEXT, known_issue TEXT, diagnosis TEXT, "
    "signature TEXT, error TEXT, started TEXT NOT NULL, attempt INTEGER NOT NULL, "
    "kin TEXT NOT NULL DEFAULT '', test TEXT NOT NULL DEFAULT '', placement TEXT, "
    "soc TEXT, figures TEXT, cause_id TEXT, PRIMARY KEY (run, line))",
    "CREATE INDEX IF NOT EXISTS runs_by_time ON runs (started)",
    *_INDEXES,
    *_OF_NIGHTS,
)


def kin_of(attempt: Attempt) -> str:
    """What a case shares with its cases of other versions, as a key of 16 characters."""
    return hashlib.sha256(attempt.kin.encode("utf-8", "replace")).hexdigest()[:16]


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
    if version != VERSION:
        raise ConfigError(
            f"has tables of version {version}, this harness knows {VERSION}: remove it, or name "
            "another database, and import the journals again (`qnn-harness history import RUNS`)",
            file=without_secrets(where),
            field="--database",
        )
    return database


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
