"""The last run of the same selection."""

import json
import logging
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.history.comparison import FailOn
from harness.history.comparison_text import compare_folders
from harness.history.previous_run import (
    find_failed_run,
    histories,
    last_durations,
    previous_of,
    since_previous,
)
from harness.plugin.collection import selection
from harness.report.report_files import project
from harness.results.run_folder import RunFolder, run_folders
from tests.report_page import rows_of
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder

ONE = attempt("a passed")


@pytest.mark.parametrize(
    ("command", "other", "same"),
    [
        ("pytest -m device", "/x/bin/pytest -m device", True),
        ("pytest -m device --qnn 2.50.40", "pytest -m device --qnn=2.51.0 --ort 1.27.0", True),
        ("pytest -m device -n auto -q", "pytest --reports /x -m device -nauto", True),
        ("pytest -m device suites/test_a.py", "pytest suites/test_a.py -m device", True),
        ("pytest -m device --resume latest", "pytest -m device", True),
        ("pytest -m device --device a", "pytest -m device --device b", False),
        ("pytest -m device -k tiny", "pytest -m device", False),
        ("pytest -m device --backend gpu", "pytest -m device --backend=gpu", True),
    ],
)
def test_versions_and_places_choose_no_cases(command: str, other: str, same: bool) -> None:
    assert (selection(command.split()) == selection(other.split())) == same


def test_who_chose_no_cases_asked_for_all(tmp_path: Path, snapshot: Snapshot) -> None:
    first = run_folder(tmp_path, ONE, command=("pytest",))
    other = run_folder(tmp_path, ONE)
    last = run_folder(tmp_path, ONE, command=("pytest", "-q"))
    assert previous_of(RunFolder(last)).path == first
    for run in (first, other):
        snapshot.hide(run.name, "RUN")
        with snapshot.raises(ConfigError):
            previous_of(RunFolder(run))


def test_the_last_finished_one_of_the_same_cases_is_taken(tmp_path: Path) -> None:
    run_folder(tmp_path, ONE)
    expected = run_folder(tmp_path, ONE, command=("pytest", "-m", "device", "--qnn", "2.50.40"))
    run_folder(tmp_path, ONE, command=("pytest", "-m", "device", "-k", "tiny"))
    RunFolder.create(tmp_path, command=["pytest", "-m", "device"], lab={}, devices=[])  # cut short
    # what was cut off would be "without an earlier result" in the next run, also where it fails
    run_folder(tmp_path, ONE, problem="interrupted")
    (tmp_path / "30000101T000000Z-0000" / "results.jsonl").mkdir(parents=True)  # no run
    new = run_folder(tmp_path, ONE)
    run_folder(tmp_path, ONE)
    assert previous_of(RunFolder.open(new)).path == expected
    assert previous_of(RunFolder.open(tmp_path / "latest")).path == new


def test_a_verdict_that_was_lost_in_the_base_is_looked_for_in_the_runs_before(
    tmp_path: Path,
) -> None:
    names = "abcde"
    run_folder(tmp_path, *(attempt(f"{name} passed") for name in names))
    run_folder(
        tmp_path, attempt("a@2.50.40 failed"), attempt("b error"), attempt("d@2.50.40 passed")
    )
    run_folder(tmp_path, attempt("e failed"), command=("pytest", "-m", "device", "-k", "tiny"))
    run_folder(tmp_path, attempt("e failed"), problem="interrupted")
    (run_folder(tmp_path, attempt("c failed")) / "results.jsonl").write_text('{"schema": 9}\n')
    base = RunFolder.open(run_folder(tmp_path, *(attempt(f"{name} error") for name in names)))
    # of a night that died: what it saw was told to nobody
    run_folder(tmp_path, *(attempt(f"{name} crashed") for name in names))
    failed = (attempt(f"{name} failed") for name in (*names, "f"))
    run = RunFolder.open(run_folder(tmp_path, *failed, attempt("g passed"), attempt("h failed")))
    cases = {case.now.last.case[-2]: case for case in histories(run, base).values()}
    outcomes = {
        name: (case.last.last.outcome, case.last.last.axes["qnn"])
        for name, case in cases.items()
        if case.last is not None
    }
    assert outcomes == {
        "a": ("failed", "2.50.40"),
        "b": ("passed", "2.51.0"),
        "c": ("passed", "2.51.0"),
        "d": ("passed", "2.50.40"),
        "e": ("passed", "2.51.0"),
    }
    assert [attempts.last.outcome for attempts in cases["b"].before] == [
        *("passed", "error", "error", "crashed")
    ], "the oldest first"


def test_only_what_does_not_just_pass_is_looked_for(tmp_path: Path) -> None:
    base = RunFolder.open(run_folder(tmp_path, attempt("a@2.50.40 passed"), attempt("b passed")))
    new = RunFolder.open(run_folder(tmp_path, attempt("a passed"), attempt("b passed")))
    assert histories(new, base) == {}
    (name,) = histories(new, base, {attempt("a@2.50.40 passed").case})
    assert name == attempt("a passed").case
    assert len(histories(new, None)) == 2, "without a base all is to be judged"


def test_what_became_of_cases_since_then_is_on_the_page(tmp_path: Path) -> None:
    run_folder(tmp_path, attempt("a passed"), attempt("b failed"), attempt("c passed"))
    folder = RunFolder.open(run_folder(tmp_path, attempt("a failed"), attempt("b passed")))
    since = since_previous(folder)
    assert sorted(since.became.values()) == ["fixed", "new"]
    (missing,) = since.not_run
    assert missing.endswith("-c]")
    project(folder, since)
    page = (folder.path / "report.html").read_text()
    for text in (
        "1 new failure",
        "1 fixed",
        "1 not in this run",
        missing,
        f"../{since.base}/report.html",
    ):
        assert text in page
    rows = rows_of(page)
    assert [rows["pool"][place] for place in rows["since"]] == ["new", "fixed"]


def test_a_failure_with_another_version_is_not_said_to_fail_still(tmp_path: Path) -> None:
    run_folder(tmp_path, attempt("a@2.50.40 failed"), attempt("b failed"))
    both = [attempt("a@2.50.40 failed"), attempt("a failed"), attempt("b failed")]
    since = since_previous(RunFolder.open(run_folder(tmp_path, *both)))
    words = dict.fromkeys((record.case for record in both), "failing")
    assert since.became == words | {both[1].case: "otherwise"}
    assert since.titles["otherwise"] == "failing as with another version"


def test_the_page_has_the_day_since_which_a_case_fails(tmp_path: Path) -> None:
    outcomes = ("passed", "failed", "failed", "failed")
    for day, outcome in enumerate(outcomes, 1):
        started = datetime(2026, 11, day, tzinfo=UTC)
        run = run_folder(tmp_path, attempt(f"a {outcome}", started=started))
    since = since_previous(RunFolder.open(run))
    assert [began[:10] for began in since.began.values()] == ["2026-11-02"]
    project(RunFolder(run), since)
    assert 'data-label="Since">2026-11-02</td>' in (run / "report.html").read_text()


def test_without_an_earlier_run_nothing_is_called_new(tmp_path: Path) -> None:
    only = RunFolder.open(run_folder(tmp_path, attempt("a failed")))
    assert since_previous(only) is None
    assert "new failure" not in (only.path / "report.html").read_text()


def test_durations_are_those_of_the_last_verdicts_on_each_device(tmp_path: Path) -> None:
    attempts = [attempt("a failed"), attempt("a passed"), attempt("a error"), attempt("b passed")]
    first = run_folder(tmp_path, *attempts)
    rows = [json.loads(line) for line in (first / "results.jsonl").read_text().splitlines()]
    for row, seconds in zip(rows, (1.0, 2.0, 9.0, -3.0), strict=True):
        row["duration_s"] = seconds
    lines = [*map(json.dumps, rows), "[]", '{"kind": "case"}', "cut of", '{"kind": "device"}']
    (first / "results.jsonl").write_text("\n".join(lines))
    second = run_folder(tmp_path, attempt("a passed"))
    row = json.loads((second / "results.jsonl").read_text())
    row["device"]["name"] = "other"
    (second / "results.jsonl").write_text(json.dumps(row | {"duration_s": 5.0}))
    new = RunFolder.open(run_folder(tmp_path, ONE))
    selection = new.info()["selection"]
    known = {row["case"]: {rows[1]["device"]["name"]: 2.0, "other": 5.0}}
    assert last_durations(new.path, selection) == known
    assert last_durations(first, selection) == {}
    shutil.rmtree(new.path)
    assert last_durations(new.path, selection) == known, "it has not begun"
    assert last_durations(new.path, ["other"]) == {}


def test_two_runs_of_one_id_are_compared_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    logger = logging.getLogger("harness.history.comparison_text")
    monkeypatch.setattr(logger, "warning", lambda text, *more: messages.append(text % more))
    name = "20261121T060000Z-3f9a"
    base = RunFolder.open(run_folder(tmp_path / "x", ONE, run_id=name))
    other = RunFolder.open(run_folder(tmp_path / "y", attempt("a failed"), run_id=name))
    assert len(compare_folders(base, other, FailOn.parse("new"), late=False)["new"]) == 1
    assert [all(str(run.path) in text for run in (base, other)) for text in messages] == [True]


@pytest.mark.parametrize(("without", "slower"), [("", 1), (" without dcvs (1007)", 0)])
def test_times_under_other_votes_are_no_regression(
    tmp_path: Path, without: str, slower: int
) -> None:
    def run(power: str, times: list[int]) -> list[RunFolder]:
        figures = [{"surroundings": {"power": power}, "execute_us": [t + 1]} for t in times]
        cases = (attempt("a passed", measurements=measured) for measured in figures)
        return [RunFolder.open(run_folder(tmp_path, case)) for case in cases]

    *_, base = run("burst", [1000, 1002, 1001, 1003, 1000])
    *_, new = run(f"burst{without}", [3000, 3002, 3001, 3003, 3001])
    comparison = compare_folders(base, new, FailOn.parse("perf:10%"), late=False)
    assert comparison.speed is not None
    assert len(comparison.speed.slower) == slower
    assert len(comparison.other_power) == 1 - slower


def test_what_was_asked_when_a_case_was_bad_last(tmp_path: Path) -> None:
    case = attempt("a passed").case
    for ending, limit in (("passed", "9"), ("failed id=x", "1")) * 6:
        command = ("qnn-harness", "run", "a.onnx", f"--limit=max-error={limit}")
        run_folder(tmp_path, attempt(f"a {ending}"), command=command)
    run, asked_then = find_failed_run(tmp_path, case)
    assert (run, asked_then) == (run_folders(tmp_path)[-1].name, {"max-error": "1"})
    assert find_failed_run(tmp_path, "other") == ("", {})
