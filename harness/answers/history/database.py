"""Where history is kept: SQLite in a file, PostgreSQL by URL.

Journals are the truth: the database can be thrown away and made of them again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Select,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from harness.answers.history.tables import VERSION, meta, metadata
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.errors.outgoing_text import without_secrets

HISTORY: Final = "history.sqlite"
"""Where history is held among reports, where no other place was named."""
_POSTGRES: Final = ("postgresql://", "postgres://")
_EXTRA: Final = "pip install 'qnn-harness[postgres]'"
_WAIT_S: Final = 60
_STATEMENT_S: Final = 600
_AT_ONCE: Final = 1_000
_LOCK: Final = 0x716E6E68  # qnnh: who makes the tables in PostgreSQL holds it


class Database:
    """A place where history is kept; a transaction is all of it or nothing."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[Connection]:
        """Begin a transaction, which ends with the block.

        Raises ConfigError for what is no database or may not be written, InfraError if it fails.
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
            return ConfigError("is no database", file=self._name, field="--database")
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            problem = f"{problem}: may it be written? else name another place"
            return ConfigError(problem, file=self._name, field="--database")
        advice = ": remove it, and import the journals again"
        return InfraError(f"{self._name}: {problem}{advice * code.startswith('SQLITE_CORRUPT')}")


def open_database(where: str) -> Database:
    """Open the database of a path or URL, and make its tables if it is new.

    Raises ConfigError for what is no database of ours, InfraError if it does not answer.
    """
    name = without_secrets(where)
    if where.startswith(_POSTGRES):
        database = Database(_postgres(where, name), name)
    elif "://" in where:
        raise ConfigError(
            f"{where.partition('://')[0]}:// is no database that is known",
            field="--database",
            choices=("the path of a SQLite file", "postgresql://HOST/NAME"),
        )
    else:
        database = Database(_sqlite(Path(where)), name)
    version = _version_in(database, name)
    if version is None:
        with database.transaction() as connection:
            if connection.dialect.name == "postgresql":  # in SQLite one alone writes
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            metadata.create_all(connection)
            insert_new(connection, meta, {"name": "schema", "value": VERSION})
        version = _version_in(database, name)
    if version != VERSION:
        raise ConfigError(
            f"has tables of version {version}, this harness knows {VERSION}: remove it, or name "
            "another database, and import the journals again (`qnn-harness history import RUNS`)",
            file=name,
            field="--database",
        )
    return database


def _version_in(database: Database, name: str) -> str | None:
    """Return the version of the tables, None if there are none; the database may be read-only.

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
        # a server's database may be shared, a file is one program's
        foreign = (
            tables & set(metadata.tables) if connection.dialect.name == "postgresql" else tables
        )
        if foreign:
            problem = "holds tables of something else: name another database"
            raise ConfigError(problem, file=name, field="--database")
        return None


def rows_of(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    """Iterate over the rows of a query, of which few are held at once."""
    options = {"stream_results": True, "yield_per": _AT_ONCE}
    return iter(connection.execute(query, execution_options=options))


def insert_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a table, of which few are held at once."""
    remaining = iter(rows)
    while some := [dict(row) for row in islice(remaining, _AT_ONCE)]:
        connection.execute(insert(table), some)


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Add a row to a table, unless there is one with its key, which stays as it is."""
    statement: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(statement(table).values(**row).on_conflict_do_nothing())


def _sqlite(path: Path) -> Engine:
    if not path.parent.is_dir():
        raise ConfigError("there is no such folder", file=path.parent, field="--database")
    if path.is_dir():
        raise ConfigError("is a folder, not a file", file=path, field="--database")
    url = URL.create("sqlite", database=str(path.absolute()))
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT_S})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # it begins no transactions by itself

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # writers wait for each other from the start: none finds a stale page later
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: str, name: str) -> Engine:
    # what it warns of is in the error that follows
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
        problem = f"PostgreSQL needs one package more: {_EXTRA}"
        raise ConfigError(problem, field="--database") from error
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"{name} is no URL of a database", field="--database") from error
