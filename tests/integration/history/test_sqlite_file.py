"""SQLite's file as life treats it: importers are killed, files and folders nobody may write."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.history.database import open_database
from harness.history.importing import import_run, runs_in
from tests.unit.history.runs import attempt, run_folder
from tests.unit.history.test_importing import stored_rows

RUNS, CASES = 3, 12


def reports_in(folder: Path) -> Path:
    folder.mkdir()
    for run in range(RUNS):
        run_folder(
            folder,
            *(
                attempt(f"c{index} {'failed' if index == run else 'passed'}")
                for index in range(CASES)
            ),
        )
    return folder


def import_all(file: Path, reports: Path) -> int:
    database = open_database(str(file))
    return sum(import_run(database, run).changed for run in runs_in(reports))


def imported_until(count: int, file: Path, reports: Path) -> bool:
    """Imports in a process that kills itself at the so-many-th statement; whether it did."""
    child = os.fork()
    if not child:
        connect, statements_left = sqlite3.connect, [count]
        module: Any = sqlite3.dbapi2

        def tick(_: str) -> None:
            statements_left[0] -= 1
            if statements_left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def traced(*options: Any, **named: Any) -> sqlite3.Connection:
            connection = connect(*options, **named)
            connection.set_trace_callback(tick)
            return connection

        try:
            module.connect = traced
            import_all(file, reports)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_an_importer_killed_at_any_statement_loses_nothing(tmp_path: Path) -> None:
    reports = reports_in(tmp_path / "reports")
    whole = tmp_path / "whole.sqlite"
    assert import_all(whole, reports) == RUNS
    expected, count = stored_rows(whole), 0
    file = tmp_path / "h.sqlite"
    while imported_until(count, file, reports):
        if file.exists() and file.stat().st_size:
            with sqlite3.connect(file) as connection:
                ((sound,),) = connection.execute("PRAGMA integrity_check")
            assert sound == "ok"
        first = open_database(str(file))
        stored = stored_rows(file)
        assert stored == [row for row in expected if row[0] in {row[0] for row in stored}]
        assert len(stored) % CASES == 0, "of a run all or nothing is held"
        assert sum(import_run(first, run).changed for run in runs_in(reports)) == (
            RUNS - len(stored) // CASES
        )
        assert stored_rows(file) == expected
        file.unlink()
        count += 1
    assert count > RUNS * CASES, "no statement was left out"
    assert stored_rows(file) == expected


def history(*words: object) -> subprocess.CompletedProcess[str]:
    """The command, by a user whom permissions bind, as they do not bind root."""
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
    return subprocess.run(
        [*(bound if os.geteuid() == 0 else []), sys.executable, "-m", "harness.cli.main", "history"]
        + [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and there is no setpriv")
    return reports_in(tmp_path / "reports")


@pytest.mark.slow
def test_what_may_only_be_read_is_read(reports: Path) -> None:
    file = reports / "history.sqlite"
    assert history("import", "--reports", reports).returncode == 0
    expected = history("list", "--reports", reports, "--json").stdout
    file.chmod(0o444)
    reports.chmod(0o555)
    try:
        completed = history("list", "--reports", reports, "--json")
        assert (completed.returncode, completed.stdout) == (0, expected), completed.stderr
        refused = history("import", "--reports", reports)
        assert refused.returncode == 2
        assert f"{file}: QNN_HARNESS_HISTORY: " in refused.stderr
        assert "Traceback" not in refused.stderr
    finally:
        reports.chmod(0o755)
    assert stored_rows(file)


@pytest.mark.slow
def test_a_run_that_cannot_be_read_keeps_none_from_the_others(reports: Path) -> None:
    expected = json.loads(history("list", "--reports", reports, "--json").stdout)
    for journal in (
        reports / "of-somebody" / "results.jsonl",
        reports / "no-run" / "results.jsonl",
    ):
        journal.parent.mkdir()
    journal.mkdir()
    journal = reports / "of-somebody" / "results.jsonl"
    journal.write_text("{}\n")
    journal.chmod(0)
    completed = history("list", "--reports", reports, "--json")
    assert (completed.returncode, json.loads(completed.stdout)) == (0, expected), completed.stderr
    assert completed.stderr.count("\n") == 1
    assert str(journal) in completed.stderr
    assert history("import", journal.parent, "--reports", reports).returncode == 2
