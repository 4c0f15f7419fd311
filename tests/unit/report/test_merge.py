"""Runs become one with all their records and logs, or are refused as a whole."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.cli.main import commands
from harness.core.errors import ConfigError, InfraError
from harness.lab.health import DeviceEvent
from harness.report.report_files import finish
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt

DAYS = [f"2026-11-2{day}T10:00:00Z" for day in range(5)]
LOG = "logs/b/probe.jsonl"


def run_of(
    reports: Path, *cases: CaseRecord, day: int = 0, selected: int = 0, **info: object
) -> Path:
    """Return a finished run of a day, with a log of each case that tells which run it is of."""
    folder = RunFolder.create(
        reports,
        command=["pytest", "-m", "device"],
        lab={"schema": 1},
        devices=[f"device-{reports.name}"],
        more={"selection": ["-m=device"]},
    )
    folder.keep_selected([*(case.case for case in cases), *map(str, range(selected))])
    for case in cases:
        (folder.path / LOG).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / LOG).write_text(folder.run_id)
        fields = {"run": folder.run_id, "logs": [LOG], "started": DAYS[day]}
        folder.journal.append(case.model_dump(mode="json") | fields)
    finish(folder, exit_code=0)
    change(folder.path, lambda said: {**said, "started": DAYS[day], "finished": DAYS[day], **info})
    return folder.path


def change(run: Path, edited: Callable[[dict[str, Any]], Any]) -> None:
    file = run / "run.json"
    file.write_text(json.dumps(edited(json.loads(file.read_text()))))


def merge(*words: object) -> Result:
    return CliRunner().invoke(commands, ["report", "merge", *map(str, words)])


def merged(*runs: Path, into: Path) -> RunFolder:
    completed = merge(*runs, "-o", into)
    assert completed.exception is None, completed.exception
    return RunFolder.open(into)


def refused(*words: object) -> BaseException | None:
    error = merge(*words).exception
    assert isinstance(error, ConfigError), error
    return error


def attempts(run: RunFolder) -> list[tuple[str, str, int]]:
    return [
        (record.axes["which"], record.outcome, record.attempt) for record in run.contents().records
    ]


def test_runs_of_two_machines_become_one_with_all_cases(tmp_path: Path) -> None:
    second = run_of(tmp_path / "b", attempt("b failed"), attempt("c passed"), day=1)
    first = run_of(tmp_path / "a", attempt("a passed"))
    output = tmp_path / "new" / "merged"
    completed = merge(second, first, "-o", output)
    assert completed.exit_code == 0
    run = RunFolder.open(output)
    assert attempts(run) == [("a", "passed", 1), ("b", "failed", 1), ("c", "passed", 1)]
    info = run.info()
    assert [part["run"] for part in info["merged"]] == [first.name, second.name]
    assert (info["run"], info["exit_code"], info["problem"]) == ("merged", 1, None)
    assert (info["started"], info["finished"]) == (DAYS[0], DAYS[1])
    assert info["devices"] == ["device-a", "device-b"]
    assert info["selection"] == ["-m=device"]
    assert run.selected_cases() == {case.case for case in run.contents().cases}
    records = run.contents().records
    texts = {(run.path / record.logs[0]).read_text() for record in records}
    assert texts == {record.run for record in records}, "logs of the same name stay apart"
    written = {path.name for path in output.iterdir()}
    assert {"report.html", "junit.xml", "results.jsonl", "run.json"} <= written
    assert not (output.parent / "latest").exists()


def test_a_case_of_two_runs_keeps_both_attempts_and_the_latest_is_final(tmp_path: Path) -> None:
    late = run_of(tmp_path / "b", attempt("a passed"), day=3)
    early = run_of(
        tmp_path / "a", attempt("a failed"), attempt("a failed").model_copy(update={"attempt": 2})
    )
    lines = (early / "results.jsonl").read_text().splitlines()
    again = json.loads(lines[1]) | {"started": DAYS[1]}
    (early / "results.jsonl").write_text(f"{lines[0]}\n{json.dumps(again)}\n")
    between = run_of(tmp_path / "c", attempt("a crashed"), day=2)
    nested = merged(late, early, into=tmp_path / "nested")
    run = merged(nested.path, between, into=tmp_path / "merged")
    assert sorted(number for *_, number in attempts(run)) == [1, 2, 3, 4]
    final = {number: outcome for _, outcome, number in attempts(run)}
    assert final == {1: "failed", 2: "failed", 3: "crashed", 4: "passed"}
    assert [case.outcome for case in run.contents().cases] == ["passed"]


def test_an_attempt_in_two_inputs_counts_once(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", attempt("a passed"), attempt("b failed"))
    second = run_of(tmp_path / "b", attempt("c passed"), day=1)
    event = DeviceEvent(
        run=second.name,
        device="sim",
        event="health",
        state="good",
        started=DAYS[1],  # type: ignore[arg-type]
        duration_s=1,
    )
    with RunFolder(second).journal as journal:
        journal.append(event)
    both = merged(first, second, into=tmp_path / "both")
    again = merged(first, both.path, second, first, into=tmp_path / "again")
    assert attempts(again) == [("a", "passed", 1), ("b", "failed", 1), ("c", "passed", 1)]
    assert again.contents().events == (event,)


def test_what_cases_put_out_is_kept_for_comparisons(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", attempt("a passed"))
    (run / "outputs").mkdir()
    (run / f"outputs/{'0' * 16}-4.raw").write_bytes(b"1234")
    both = merged(run, run, into=tmp_path / "merged")
    assert both.kept_output(f"{'0' * 16}-4") == b"1234"


def test_no_link_leads_out_of_a_run_and_nothing_is_overwritten(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", attempt("a passed"))
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    for name in ("link", "fifo", "folder"):
        (run / "logs" / name).mkdir()
    (run / "logs/link/x").symlink_to(secret)
    os.mkfifo(run / "logs/fifo/x")
    (run / "logs/linked").symlink_to(secret.parent)
    names = [LOG, "logs/link/x", "logs/fifo/x", "logs/folder", "logs/linked/secret", "run.json"]
    line = json.loads((run / "results.jsonl").read_text())
    (run / "results.jsonl").write_text(json.dumps(line | {"logs": names}) + "\n")
    completed = merge(run, "-o", tmp_path / "merged")
    assert completed.exit_code == 0, completed.output
    assert completed.stderr.count("warning: ") == 1
    folder = RunFolder.open(tmp_path / "merged")
    (case,) = folder.contents().records
    assert case.logs == (LOG,)
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert not [path for path in files if "SECRET" in path.read_text()]


def test_a_run_that_was_cut_short_is_told_so(tmp_path: Path) -> None:
    whole = run_of(tmp_path / "a", attempt("a passed"))
    cut = run_of(tmp_path / "b", attempt("b passed"), day=1, selected=2, finished=None)
    completed = merge(whole, cut, "-o", tmp_path / "merged")
    assert completed.exit_code == 0
    assert f"{cut.name}: no end" in completed.stderr
    folder = RunFolder.open(tmp_path / "merged")
    coverage = folder.coverage()
    assert (len(folder.contents().cases), coverage.selected, coverage.not_run) == (2, 4, 2)
    assert [part["run"] for part in folder.info()["merged"]] == [whole.name, cut.name]
    assert RunFolder.open(tmp_path / "merged").info()["exit_code"] == 3


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("results.jsonl", '{"schema": 2, "kind": "case"'),
        ("results.jsonl", '{"schema": 9, "kind": "case"}\n'),
        ("run.json", "{"),
        ("run.json", '{"schema": 7}'),
        ("cases.json", "{}"),
    ],
)
def test_a_damaged_run_is_refused_by_name(tmp_path: Path, file: str, content: str) -> None:
    whole = run_of(tmp_path / "a", attempt("a passed"))
    damaged = run_of(tmp_path / "b", attempt("b passed"))
    (damaged / file).write_text(content)
    text = str(refused(whole, damaged, "-o", tmp_path / "merged"))
    assert str(damaged) in text
    assert "\n" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_an_output_with_content_is_left_alone(tmp_path: Path, snapshot: Snapshot) -> None:
    run = run_of(tmp_path / "a", attempt("a passed"))
    snapshot.hide(run.name, "RUN")
    output = tmp_path / "merged"
    output.mkdir()
    merged(run, into=output)
    before = (output / "run.json").read_bytes()
    assert refused(run, "-o", output) == snapshot
    assert (output / "run.json").read_bytes() == before
    assert refused(run, tmp_path, "-o", tmp_path / "other") == snapshot
    assert merge("-o", tmp_path / "other").exit_code == 2


def test_nothing_is_left_of_what_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "a", attempt("a passed"))

    def no_room(self: RunFolder, *arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "end", no_room)
    error = merge(run, "-o", tmp_path / "merged").exception
    assert isinstance(error, InfraError)
    assert str(error) == f"cannot write {tmp_path / 'merged'}: No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_times_that_nobody_can_believe_do_no_harm(tmp_path: Path) -> None:
    odd = {"devices": [], "started": "9999", "finished": "0001"}
    first = run_of(tmp_path / "a", attempt("a passed"), **odd)
    second = run_of(tmp_path / "b", attempt("b passed"))
    run = merged(first, second, into=tmp_path / "merged")
    assert (run.info()["exit_code"], run.info()["devices"]) == (0, ["device-b"])
