"""qnn-harness report write, compare and history of folders that hold less than they should."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from harness.cli.main import commands
from harness.core.errors import ConfigError
from tests.unit.history.runs import attempt, run_folder


def said(*words: object) -> Result:
    return CliRunner().invoke(commands, list(map(str, words)), standalone_mode=False)


def test_a_folder_without_runs_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    for reports in (tmp_path, tmp_path / "none"):
        error = said("history", "list", "--reports", reports).exception
        assert isinstance(error, ConfigError)
        assert str(error.file) == str(reports)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_said_of_cases_that_were_not_asked_for(tmp_path: Path) -> None:
    run_folder(tmp_path, attempt("a passed"))
    result = said("history", "list", "--diagnosis", "no-such", "--reports", tmp_path)
    assert (result.return_value, len(result.output.splitlines())) == (1, 1)


def test_a_run_that_was_cut_short_is_named_so(tmp_path: Path) -> None:
    base = run_folder(tmp_path, attempt("a passed"))
    cut = run_folder(tmp_path, attempt("a passed"), problem="interrupted")
    for words in (["report", "write", cut], ["compare", base, cut], ["compare", cut, base]):
        assert f"warning: {cut.name} " in said(*words).stderr
    assert "warning" not in said("report", "write", base).stderr


def test_a_journal_of_another_schema_is_refused(tmp_path: Path) -> None:
    run = run_folder(tmp_path, attempt("a passed"))
    journal = run / "results.jsonl"
    journal.write_text(json.dumps(json.loads(journal.read_text()) | {"schema": 3}) + "\n")
    other = run_folder(tmp_path, attempt("a passed"))
    for words in (["report", "write", run], ["compare", run, other], ["compare", other, run]):
        error = said(*words).exception
        assert isinstance(error, ConfigError)
        assert (str(error.file), error.line) == (str(journal), 1)
