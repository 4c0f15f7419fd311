"""Journals in a file of SQLite: what is held is what they say, however often they are taken in."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.cli.history import history
from harness.core.errors import ConfigError, InfraError
from harness.history.attempts import Attempt, read_attempts
from harness.history.database import VARIABLE, open_database
from harness.history.importing import import_run, list_runs, runs_in
from harness.history.timeline import Filter
from harness.report.merge import merge_runs
from harness.results.run_folder import INFO
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder, stored_runs


def stored_rows(path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        return list(connection.execute("SELECT * FROM attempts ORDER BY run, line"))


def history_output(*words: object, database: Path | None = None) -> tuple[int, str]:
    arguments = [*([] if "import" in words else ["list"]), *map(str, words)]
    environment = {VARIABLE: database and str(database)}
    completed = CliRunner(env=environment).invoke(history, arguments, standalone_mode=False)
    if completed.exception is not None:
        raise completed.exception
    return completed.return_value or 0, completed.output


def test_taking_in_twice_changes_nothing(tmp_path: Path) -> None:
    run_folder(tmp_path, attempt("a passed"), attempt("b failed id=x"))
    run_folder(tmp_path, attempt("a error"), attempt("a passed n=2"))
    file = tmp_path / "history.sqlite"
    assert history_output("import", "--reports", tmp_path)[1].startswith("2 runs of 2 imported")
    before = stored_rows(file)
    assert len(before) == 4
    assert history_output("import", tmp_path, "--reports", tmp_path)[1].startswith(
        "0 runs of 2 imported"
    )
    assert stored_rows(file) == before
    file.unlink()
    assert history_output("import", "--reports", tmp_path)[1].startswith("2 runs of 2 imported")
    assert stored_rows(file) == before, "journals make it again"


def test_a_run_that_grew_or_is_another_one_is_taken_in_anew(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, attempt("a passed"))
    database = open_database(str(tmp_path / "h"))
    assert import_run(database, folder).attempts == 1
    with (folder / "results.jsonl").open("a") as journal:
        journal.write(attempt("b failed").model_dump_json() + '\nbroken\n{"torn')
    imported = import_run(database, folder)
    assert (imported.attempts, imported.left_out.count, imported.changed) == (2, 2, True)
    (folder / "results.jsonl").write_text(attempt("c passed").model_dump_json() + "\n")
    assert import_run(database, folder).attempts == 1
    ((_, attempts),) = stored_runs(database, Filter())
    assert [attempt.case[-2:] for attempt in attempts] == ["c]"]


def test_two_importers_at_once(tmp_path: Path) -> None:
    for _ in range(6):
        run_folder(tmp_path, *(attempt(f"c{number} passed") for number in range(200)))
    words = [sys.executable, "-m", "harness.cli.main", "history", "import", "--reports", tmp_path]
    both = [subprocess.Popen([*map(str, words)], stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=120)[1] for process in both] == [b"", b""]
    assert [process.returncode for process in both] == [0, 0]
    assert len(stored_rows(tmp_path / "history.sqlite")) == 1200


def test_what_fails_within_a_run_leaves_nothing_of_it(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, attempt("a passed"), attempt("b passed"))
    database = open_database(str(tmp_path / "h"))
    with sqlite3.connect(tmp_path / "h") as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON attempts WHEN new.line = 2 "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    with pytest.raises(InfraError, match="the disk is full"):
        import_run(database, folder)
    with sqlite3.connect(tmp_path / "h") as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {t}").fetchone() for t in ("runs", "attempts")
        ]
    assert counts == [(0,), (0,)]


def test_what_is_asked_for_is_what_is_told(tmp_path: Path) -> None:
    run_folder(tmp_path, attempt("a@2.50.40 passed"), attempt("b@2.50.40 failed id=y"))
    run_folder(tmp_path, attempt("a@2.51.0 failed id=x"), attempt("b@2.51.0 failed id=y"))
    code, output = history_output("--reports", tmp_path, "--json")
    document = json.loads(output)
    assert (code, document["runs"], len(document["cases"])) == (0, 2, 2)
    code, output = history_output("--reports", tmp_path, "--lab", "x.yaml", "--", "-a]")
    assert code == 0
    assert ".F  suites/test_a.py::test_b[sim-htp-2.51.0-a]" in output
    assert "--axis qnn --good 2.50.40 --bad 2.51.0 --device sim --lab x.yaml" in output
    for words, cases in (
        (("--diagnosis", "x"), 1),
        (("--device", "sim"), 2),
        (("--since", "2030-01-01"), 0),
        (("--since", "2001-01-01"), 2),
    ):
        code, output = history_output("--reports", tmp_path, "--json", *words)
        assert (code, len(json.loads(output)["cases"])) == (0 if cases else 1, cases), words


def test_a_placement_of_megabytes_is_not_kept_as_it_is(tmp_path: Path) -> None:
    record = attempt("a passed")
    long = ["x" * (3 << 20), f"{'x' * (3 << 20)}y"]
    places = [record.placement.model_copy(update={"qnn": text, "device": text}) for text in long]
    run_folder(tmp_path, *(record.model_copy(update={"placement": place}) for place in places))
    history_output("import", "--reports", tmp_path)
    with sqlite3.connect(tmp_path / "history.sqlite") as connection:
        stored = [text for (text,) in connection.execute("SELECT placement FROM attempts")]
    assert len(set(stored)) == 2, "they are still two"
    assert max(map(len, stored)) < 2000
    assert json.loads(stored[0])["backend"] == "htp"
    assert history_output("--reports", tmp_path, "--json")[0] in (0, 1)


@pytest.mark.parametrize(
    "table", ["runs (x)", "people (name)", "meta (schema)", "meta (name, value)"]
)
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    tmp_path: Path, table: str
) -> None:
    file = tmp_path / "theirs.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute(f"CREATE TABLE {table}")
    with pytest.raises(ConfigError):
        open_database(str(file))
    with sqlite3.connect(file) as connection:
        assert len(connection.execute("SELECT * FROM sqlite_master").fetchall()) == 1


def test_a_damaged_file_and_one_of_another_version_are_refused(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    folder, file = run_folder(tmp_path, *[attempt("a passed")] * 200), tmp_path / "h.sqlite"
    import_run(open_database(str(file)), folder)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = '3' WHERE name = 'schema'")
    before = file.read_bytes()
    with snapshot.raises(ConfigError):
        open_database(str(file))
    assert file.read_bytes() == before
    file.write_bytes(before[:5000])
    with pytest.raises(InfraError, match=r"h\.sqlite"):
        open_database(str(file))


def test_what_makes_no_sense_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "text").write_text("no database\n" * 1000)
    for path in (tmp_path / "text", tmp_path / "none/history.sqlite", tmp_path):
        with snapshot.raises(ConfigError):
            open_database(str(path))
    with snapshot.raises(ConfigError):
        runs_in(tmp_path)
    run_folder(tmp_path, attempt("a@2.50.40 passed"))
    with snapshot.raises(ConfigError):
        history_output("--reports", tmp_path, "--device", "phone")
    assert history_output("--reports", tmp_path, "phone")[0] == 1


def test_cases_that_left_no_record_are_told_with_their_runs(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    file = tmp_path / "h.sqlite"
    whole, killed, unrun = (run_folder(tmp_path, attempt("a passed")) for _ in range(3))
    for folder in (killed, unrun):
        info = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(info | {"selected": 4, "finished": None}))
        snapshot.hide(folder.name, "RUN")
    history_output("import", whole, killed, database=file)
    first = history_output(database=file)[1]
    document = json.loads(history_output("--json", database=file)[1])
    started = list_runs(open_database(str(file)))[1].started
    snapshot.hide(started[:10], "DAY")
    assert document["lacking"] == [{"run": killed.name, "started": started, "not_run": 3}]
    history_output("import", unrun, database=file)
    assert [first, *(history_output(name, database=file)[1] for name in "a?")] == (snapshot)


def test_a_run_that_was_completed_lacks_nothing_though_its_journal_is_the_same(
    tmp_path: Path,
) -> None:
    fits_no_device = attempt("b unsupported").model_copy(update={"device": None})
    folder = run_folder(tmp_path, attempt("a passed"), fits_no_device)
    file = folder / "run.json"
    info = json.loads(file.read_text())
    database = open_database(str(tmp_path / "h"))
    expected = (
        ({"finished": None}, None),
        ({"problem": "interrupted"}, None),
        ({"not_started": ["t.py:4: no marker"]}, 1),
        ({"finished": None, "selected": 3}, 2),
        ({}, 0),
    )
    for change, lacks in expected:
        file.write_text(json.dumps(info | change))
        assert [import_run(database, folder).changed for _ in range(2)] == [True, False]
        assert [run.not_run for run in list_runs(database)] == [lacks]


def test_another_run_of_the_same_id_is_told_and_kept_apart(tmp_path: Path) -> None:
    """As two machines made them, whose ids had 16 random bits."""
    name = "20261121T060000Z-3f9a"
    folders = []
    for machine, words in (("x", "a passed"), ("y", "b failed"), ("z", "c passed")):
        folder = run_folder(tmp_path / machine, attempt(words), run_id=name)
        folders.append(folder)
    database = tmp_path / "h"
    outputs = [history_output("import", folder, database=database)[1] for folder in folders]
    assert ["1 run of 1 imported" in output for output in outputs] == [True] * 3
    imports = [import_run(open_database(str(database)), folder) for folder in folders]
    assert [again.changed for again in imports] == [False] * 3, "each is known again"
    assert imports[0].run == name
    assert len({again.run for again in imports}) == 3
    assert [again.other_folder for again in imports] == [None, str(folders[0]), str(folders[0])]
    assert len(stored_rows(database)) == 3
    with (folders[1] / "results.jsonl").open("a") as journal:
        journal.write(attempt("d passed").model_dump_json() + "\n")
    grown = import_run(open_database(str(database)), folders[1])
    assert (grown.run, grown.attempts) == (imports[1].run, 2)
    assert len(stored_rows(database)) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_whose_run_json_says_otherwise_changes_nothing_of_its_run(
    tmp_path: Path, first: int
) -> None:
    folder = run_folder(tmp_path, attempt("a passed"))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    info = json.loads((copy / INFO).read_text())
    (copy / INFO).write_text(json.dumps(info | {"selected": 9_000}))
    database = open_database(str(tmp_path / "h"))
    for path in [(copy, folder), (folder, copy)][first] * 2:
        import_run(database, path)
    assert [(run.run, run.not_run) for run in list_runs(database)] == [(folder.name, 0)]
    shutil.rmtree(folder)
    import_run(database, copy)
    assert [run.not_run for run in list_runs(database)] == [8_999], "now it is the run"


def forged(reports: Path, run: Path) -> Path:
    """Return a run that claims to be merged of another one, of which all cases passed."""
    false = run_folder(reports, attempt("z passed"))
    claim = json.loads((false / "run.json").read_text())
    claim["merged"] = [{"run": run.name}]
    (false / "run.json").write_text(json.dumps(claim))
    with (false / "results.jsonl").open("a") as journal:
        for line in (run / "results.jsonl").read_text().splitlines():
            passed = {"outcome": "passed", "cause": None, "error": None}
            journal.write(f"{json.dumps(json.loads(line) | passed)}\n")
    return false


@pytest.fixture(scope="module")
def parts_and_wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return runs, others that are merged of them and of each other, and one with false claims."""
    reports = tmp_path_factory.mktemp("reports")
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in range(20, 25)]
    first, second, third = (
        run_folder(
            reports, *(attempt(f"{case} {outcome}", started=days[day]) for case, outcome in cases)
        )
        for day, cases in enumerate(
            (
                (("a", "crashed"), ("b", "passed")),
                (("a", "passed"), ("c", "failed")),
                (("d", "passed"), ("a", "crashed")),
            )
        )
    )
    two, all_three, overlapping = (reports / name for name in ("two", "all-three", "overlapping"))
    merge_runs([first, second], two)
    merge_runs([two, third], all_three)
    merge_runs([third, second], overlapping)
    return [first, second, third, two, all_three, overlapping, forged(reports, first)]


@pytest.mark.slow
@reaches(0.2)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.data())
def test_an_attempt_counts_once_in_whatever_order_parts_and_merged_runs_come(
    chosen: st.DataObject, parts_and_wholes: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    some = chosen.draw(st.sets(st.sampled_from(parts_and_wholes), min_size=1).map(sorted))
    histories = []
    for order in (some, chosen.draw(st.permutations(some)), some[::-1]):
        database = open_database(str(tmp_path_factory.mktemp("history") / "h"))
        for path in order:
            import_run(database, path)
        histories.append(stored_runs(database, Filter()))
    assert histories[0] == histories[1] == histories[2]
    counted = [identity for _, attempts in histories[0] for identity in identities(attempts)]
    stand = {
        attempt.identity for path in some for attempt in read_attempts(path / "results.jsonl")[0]
    }
    assert sorted(counted, key=repr) == sorted((identity[1:] for identity in stand), key=repr)
    whole = parts_and_wholes[4]
    if whole in some:
        reached()
        held_of, stands = dict(histories[0]), read_attempts(whole / "results.jsonl")[0]
        assert identities(held_of[whole.name]) == identities(stands)
        assert not {path.name for path in parts_and_wholes[:4]} & held_of.keys()


def identities(attempts: Sequence[Attempt]) -> list[tuple[str | None, ...]]:
    """Return what tells attempts apart, but for their own runs, which no database holds."""
    return sorted((attempt.identity[1:] for attempt in attempts), key=repr)


def test_what_a_merged_run_took_counts_again_when_that_has_changed(tmp_path: Path) -> None:
    first, second = (run_folder(tmp_path, attempt(f"{case} passed")) for case in "ab")
    merge_runs([first, second], tmp_path / "merged")
    database = open_database(str(tmp_path / "h"))
    for path in (first, second, tmp_path / "merged"):
        import_run(database, path)
    assert [run for run, _ in stored_runs(database, Filter())] == ["merged"]
    journal = tmp_path / "merged/results.jsonl"
    journal.write_text(journal.read_text().splitlines(keepends=True)[1])
    import_run(database, tmp_path / "merged")
    names = [(run, len(attempts)) for run, attempts in stored_runs(database, Filter())]
    assert sorted(names) == sorted([(first.name, 1), min((second.name, 1), ("merged", 1))])
