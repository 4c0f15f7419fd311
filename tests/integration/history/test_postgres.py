"""History on a real PostgreSQL: the same answers, nothing lost and nothing twice, whoever dies."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.history.database import VARIABLE, Database, open_database
from harness.history.importing import import_run
from harness.history.timeline import Filter
from tests.integration.history.postgres_server import PostgresServer
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder, stored_runs

RUNS, CASES = 3, 1100

pytestmark = pytest.mark.needs("psql")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Of the server, with nothing in it."""
    with open_database(server.url).transaction() as connection:
        connection.exec_driver_sql("DROP TABLE attempts, device_runs, nights, runs, meta")
    return server.url


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for number in range(RUNS):
        nights = [
            attempt(f"c{case} {'passed' if (case + number) % 7 else 'failed message=no_PD'}")
            for case in range(CASES)
        ]
        run_folder(folder, *nights)
    return folder


def rows(database: Database) -> list[tuple[object, ...]]:
    """All that is held."""
    with database.transaction(writes=False) as connection:
        result = connection.exec_driver_sql(
            "SELECT run, line, name, device, qnn, ort, axes, outcome, cause, known_issue, "
            "diagnosis, signature, error, started, attempt FROM attempts"
        )
        return sorted(map(tuple, result), key=lambda row: (str(row[0]), row[1]))


def all_in_sqlite(reports: Path, path: Path) -> list[tuple[object, ...]]:
    database = open_database(str(path))
    for journal in reports.glob("2*/results.jsonl"):
        import_run(database, journal.parent)
    return rows(database)


def importer(reports: Path, url: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "harness.cli.main", "history", "import", reports]
    return subprocess.Popen(
        [*map(str, words)],
        env={**os.environ, VARIABLE: url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


WAITS = """CREATE OR REPLACE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN IF NEW.line = 1000 THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END$$"""
TRIGGER = "CREATE TRIGGER waits BEFORE INSERT ON attempts FOR EACH ROW EXECUTE FUNCTION waits()"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def ended_in_the_middle(
    reports: Path, url: str, end: Callable[[subprocess.Popen[str]], None]
) -> subprocess.Popen[str]:
    """An importer for which `end` is called in the middle of the third run that it takes in.

    There it waits for us, so that none is too quick.
    """
    database = open_database(url)
    for folder in sorted(journal.parent for journal in reports.glob("2*/results.jsonl"))[:2]:
        import_run(database, folder)
    with database.transaction() as connection:
        connection.exec_driver_sql(WAITS)
        connection.exec_driver_sql(TRIGGER)
    # the end of the server is that of our transaction, too
    with contextlib.suppress(InfraError), database.transaction() as connection:
        list(connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7)"))
        process = importer(reports, url)
        until = time.monotonic() + 120
        while not connection.exec_driver_sql(WAITING).scalar():
            assert process.poll() is None, "it was over before anything could be ended"
            assert time.monotonic() < until
            time.sleep(0.05)
        end(process)
    return process


@pytest.mark.slow
def test_both_databases_hold_the_same(url: str, reports: Path, tmp_path: Path) -> None:
    output = importer(reports, url).communicate(timeout=120)
    assert (output[0].split()[0], output[1]) == (str(RUNS), "")
    database = open_database(url)
    expected = all_in_sqlite(reports, tmp_path / "history.sqlite")
    assert len(expected) == RUNS * CASES
    assert rows(database) == expected
    output = importer(reports, url).communicate(timeout=120)
    assert (output[0].split()[0], output[1]) == ("0", "")
    assert rows(database) == expected
    criteria = Filter(case="-c7]", device="sim", since="2000-01-01")
    in_sqlite = list(stored_runs(open_database(str(tmp_path / "history.sqlite")), criteria))
    assert list(stored_runs(database, criteria)) == in_sqlite
    assert len(in_sqlite) == RUNS


@pytest.mark.slow
def test_a_server_that_is_killed_loses_nothing_and_keeps_no_half(
    server: PostgresServer, url: str, reports: Path, tmp_path: Path
) -> None:
    process = ended_in_the_middle(reports, url, lambda _: server.kill())
    _, output = process.communicate(timeout=120)
    assert process.returncode == 3, output
    assert "Traceback" not in output
    assert output.startswith("error: postgresql://")
    with pytest.raises(InfraError):
        open_database(url)
    server.start()
    remaining = {row[0] for row in rows(open_database(url))}
    assert len(remaining) == 2
    expected = all_in_sqlite(reports, tmp_path / "history.sqlite")
    assert rows(open_database(url)) == [row for row in expected if row[0] in remaining]
    both = [importer(reports, url), importer(reports, url)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert rows(open_database(url)) == expected


def test_words_that_a_database_does_not_like(url: str, tmp_path: Path) -> None:
    odd = "\0'; DROP TABLE runs; -- :x %s \U0001f600 \\u0000"
    records = [
        attempt("a failed", file=f"{odd}.py", axes={odd: odd}),
        attempt("b failed", file="x" * 100_000),
        attempt("c passed", file="x" * 100_000),
    ]
    folder = run_folder(tmp_path, *records)
    for location in (url, str(tmp_path / "history.sqlite")):
        database = open_database(location)
        assert import_run(database, folder).attempts == 3
        ((_, attempts),) = stored_runs(database, Filter())
        assert {odd: odd} in [attempt.axes for attempt in attempts]
        assert len({attempt.case for attempt in attempts}) == 3
        ((_, matching),) = stored_runs(database, Filter(case="'; DROP TABLE runs; -- :x %s"))
        assert len(matching) == 1


def test_what_is_no_database_is_said(server: PostgresServer, snapshot: Snapshot) -> None:
    with pytest.raises(InfraError, match="nobody-has-this"):
        open_database(server.url.replace("/postgres?", "/nobody-has-this?"))
    for url in ("postgresql://host:port:x/y", "mysql://host/name"):
        with snapshot.raises(ConfigError):
            open_database(url)
