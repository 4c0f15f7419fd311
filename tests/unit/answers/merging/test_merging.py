"""Runs with `--shard` become one: whole, or with what it lacks; nothing leads out of them."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings, strategies as st

from harness.answers.history.database import open_database
from harness.answers.history.importing import import_run, runs_in
from harness.answers.history.timeline import Filter
from harness.answers.merging import merging
from harness.answers.merging.shards import gaps, shard_of
from harness.answers.report.projections import finish
from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import LINE_WAS_CUT, log_without_secrets
from harness.probe.events import MARK, SEAL, kept_events
from harness.run.pytest_plugin.selection import selection
from harness.tools.cli.main import commands
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.journal import LeftOut, cases_in
from harness.verdict.results.record import CaseRecord
from harness.verdict.results.run_folder import RunFolder
from tests.properties import reached, reaches
from tests.unit.answers.history.runs import attempt, run_folder, stored_runs

COMMAND = ("pytest", "-m", "device")
SELECTION = selection(COMMAND)
CASES = [*(attempt(f"{name} passed") for name in "abcde"), attempt("f failed")]


def shards(
    root: Path,
    of: int = 2,
    *,
    cases: Sequence[CaseRecord] = CASES,
    ran: int = 99,
    codes: Sequence[dict[str, str]] = (),
) -> list[Path]:
    """Finished runs of all shards, each in a folder of its own; of each case a log."""
    found = []
    for number in range(1, of + 1):
        places = {one.case: "sim" for one in cases}
        code = codes[number - 1] if codes else {"test_a.py": "0" * 64}
        shard, own = shard_of((number, of), places, {}, None, code=code)
        folder = RunFolder.create(
            root / f"machine{number}",
            command=COMMAND,
            lab={"schema": 1},
            devices=[f"device{number}"],
            more=shard.in_run_json(SELECTION),
        )
        folder.keep_selected(own)
        for one in [one for one in cases if one.case in own][:ran]:
            log = f"logs/{one.axes['which']}/probe.jsonl"
            (folder.path / log).parent.mkdir(parents=True)
            (folder.path / log).write_text(f"of {one.case}")
            more = {"run": folder.run_id, "logs": (log,)}
            folder.journal.append(one.model_copy(update=more))
        finish(folder, exit_code=0)
        found.append(folder.path)
    return found


def merge(*words: object) -> Result:
    return CliRunner().invoke(commands, ["merge", *map(str, words)], standalone_mode=False)


def refused(*words: object) -> str:
    error = merge(*words).exception
    assert isinstance(error, ConfigError), error
    return str(error)


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ([{"test_a.py": "a" * 64}, {"test_a.py": "b" * 64}], "1 file: test_a.py;"),
        ([{"test_a.py": "a" * 64}, {}], "1 file: test_a.py;"),
        (
            [
                {"test_a.py": "a" * 64, "conftest.py": "a" * 64, "x.bin": "c" * 64},
                {"test_a.py": "a" * 64, "conftest.py": "b" * 64, "known_issues.yaml": "c" * 64},
            ],
            "3 files: conftest.py, known_issues.yaml, x.bin;",
        ),
    ],
)
@pytest.mark.parametrize("words", [(), ("--partial",)])
def test_shards_of_other_test_code_are_no_parts_of_one_run(
    tmp_path: Path, codes: list[dict[str, str]], says: str, words: tuple[str, ...]
) -> None:
    runs = shards(tmp_path, codes=codes)
    text = refused(*runs, "--reports", tmp_path / "reports", *words)
    assert "ran other test code or files: " in text
    assert f"differ in {says}" in text
    assert str(runs[0]) in text
    assert str(runs[1]) in text
    assert not (tmp_path / "reports").exists()


def test_shards_become_the_run_that_they_are_parts_of(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    runs = shards(tmp_path)
    done = merge(*reversed(runs), "--reports", reports)
    assert done.return_value == 1, "as the whole run would have ended"
    assert done.output.startswith("6 of 6 cases have a verdict: 5 passed, 1 failed\n")
    merged = RunFolder.open(reports / "latest")
    beside = {path.name for path in reports.iterdir()} - {"latest", ".number", ".gitignore"}
    assert beside == {merged.run_id}
    assert {one.case: one.outcome for one in merged.contents().records} == {
        one.case: one.outcome for one in CASES
    }
    assert {one.run for one in merged.contents().records} == {merged.run_id}
    for one in merged.contents().records:
        assert (merged.path / one.logs[0]).read_text() == f"of {one.case}"
    assert {"junit.xml", "metrics.prom", "report.html"} <= {p.name for p in merged.path.iterdir()}
    info, own = merged.info(), [RunFolder(run).info() for run in runs]
    assert (info["run"], info["problem"], info["exit_code"]) == (merged.run_id, None, 1)
    assert info["started"] == min(one["started"] for one in own)
    assert info["finished"] == max(one["finished"] for one in own)
    assert info["devices"] == ["device1", "device2"]
    assert info["selection"] == list(SELECTION), "that of a whole run"
    assert [one["run"] for one in info["shards"]] == [one["run"] for one in own]
    assert all(one["selection"] != info["selection"] for one in own)


def test_it_is_told_as_json_and_made_once(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    runs = shards(tmp_path)
    told = json.loads(merge(*runs, "--reports", reports, "--json").stdout)
    latest = (reports / "latest").resolve()
    assert told == {
        "schema": 1,
        "run": latest.name,
        "folder": str(latest),
        "shards": 2,
        "cases": 6,
        "coverage": Coverage(selected=6, passed=5, failed=1).model_dump(),
        "outcomes": {"passed": 5, "failed": 1},
        "lacks": [],
        "left_out": 0,
    }
    assert f"{latest.name}: these shards are merged already" in refused(*runs, "--reports", reports)


def test_what_is_missing_is_named_or_taken_as_cut_short(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    first, second, _ = shards(tmp_path, 3, ran=1)
    said = refused(first, second, "--reports", reports)
    assert "of 3 shards these are missing: 3" in said
    assert f"shard 1 ({first}) has not run 1 case: suites/test_a.py::test_b[" in said
    assert "--partial" in said
    assert not reports.exists()
    done = merge(first, second, "--reports", reports, "--partial")
    assert done.return_value == 3
    assert "warning: of 3 shards these are missing: 3" in done.stderr
    info = RunFolder.open(reports / "latest").info()
    assert info["problem"].startswith("of 3 shards these are missing: 3; shard 1")
    again = CliRunner().invoke(commands, ["report", str(reports / "latest")])
    assert "was cut short: of 3 shards" in again.stderr


def test_a_shard_of_two_merged_runs_counts_once_in_history(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    first, second, third = shards(tmp_path, 3)
    for runs in ((first, second), (first, third), (first, second, third)):
        merge(*runs, "--reports", reports, "--partial")
    database = open_database(str(tmp_path / "history.sqlite"))
    for path in runs_in(reports):
        import_run(database, path)
    held = [brief.case for _, found in stored_runs(database, Filter()) for brief in found]
    assert sorted(held) == sorted(one.case for one in CASES)


def test_a_shard_without_an_end_is_not_whole(tmp_path: Path) -> None:
    first, second = shards(tmp_path)
    change(first, lambda info: info | {"finished": None})
    assert f"{first} has no end" in refused(first, second)


def change(run: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    file = run / "run.json"
    file.write_text(json.dumps(how(json.loads(file.read_text()))))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (lambda info: info | {"shard": None}, "run.json: tells of no run with --shard"),
        (lambda info: info | {"shard": info["shard"] | {"of": "2"}}, "tells of no run with"),
        (
            lambda info: info | {"schema": 2},
            "run.json: is of schema 2; this version reads schema 1: ",
        ),
        (lambda info: info | {"shard": info["shard"] | {"cases": 7}}, "were not divided alike"),
        (lambda info: [], "tells of no run with --shard"),
    ],
)
def test_what_is_no_shard_of_the_selection(
    tmp_path: Path, how: Callable[[dict[str, Any]], Any], told: str
) -> None:
    first, second = shards(tmp_path)
    change(first, how)
    assert told in refused(first, second, "--reports", tmp_path / "reports")
    assert not (tmp_path / "reports").exists()


def test_a_journal_of_another_schema_and_a_list_that_is_none(tmp_path: Path) -> None:
    first, second = shards(tmp_path)
    journal = second / "results.jsonl"
    whole = journal.read_text()
    journal.write_text(whole.replace('"schema":2', '"schema":3'))
    assert f"{journal}:1: is of schema 3" in refused(first, second)
    journal.write_text(whole)
    (second / "cases.json").write_text('{"a": 1}')
    assert f"{second}/cases.json: cannot be read as a list of cases" in refused(first, second)
    assert "both shard 1/2" in refused(first, first)
    assert "is no run's folder" in refused(first, tmp_path)


def test_what_a_run_json_makes_up_does_no_harm(tmp_path: Path) -> None:
    first, second = shards(tmp_path)
    odd = {"devices": 5, "known_issues": [1], "lab": "x", "selection": {}, "exit_code": 2**70}
    change(first, lambda info: info | odd | {"started": "9999", "finished": "0001-01-01T00:00:00"})
    done = merge(first, second, "--reports", tmp_path / "reports")
    assert done.exception is None
    assert done.return_value == 1


def test_logs_do_not_lead_out_of_a_run_nor_over_what_was_written(tmp_path: Path) -> None:
    first, second = shards(tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "probe.jsonl").write_text("SECRET")
    logs = sorted((first / "logs").iterdir())
    (logs[0] / "probe.jsonl").unlink()
    (logs[0] / "probe.jsonl").symlink_to(secret / "probe.jsonl")
    (logs[1] / "probe.jsonl").unlink()
    os.mkfifo(logs[1] / "probe.jsonl")
    (logs[2] / "probe.jsonl").unlink()
    logs[2].rmdir()
    logs[2].symlink_to(secret)
    others = sorted((second / "logs").iterdir())
    journal = second / "results.jsonl"
    named = journal.read_text().replace(f"logs/{others[0].name}/probe.jsonl", "run.json")
    journal.write_text(named.replace(f"logs/{others[1].name}/", f"logs/{others[2].name}/"))
    done = merge(first, second, "--reports", tmp_path / "reports")
    assert done.exception is None, done.exception
    assert "warning: 4 files or lines left out" in done.stderr
    latest = tmp_path / "reports/latest"
    found = sorted(path for path in (latest / "logs").rglob("*") if path.is_file())
    assert [path.parent.name for path in found] == [others[2].name]
    assert json.loads((latest / "run.json").read_text())["run"] == latest.resolve().name


def test_nothing_is_left_of_what_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = shards(tmp_path)

    def no_room(self: RunFolder, *given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "end", no_room)
    done = merge(*runs, "--reports", tmp_path / "reports")
    assert "No space left on device" in str(done.exception)
    assert [path.name for path in (tmp_path / "reports").iterdir()] == [".gitignore"]


def said(*words: object) -> Result:
    return CliRunner().invoke(commands, list(map(str, words)), standalone_mode=False)


@pytest.mark.parametrize("shards_first", [True, False])
def test_in_history_each_case_counts_once(tmp_path: Path, shards_first: bool) -> None:
    runs, reports = shards(tmp_path), tmp_path / "reports"
    assert merge(*runs, "--reports", reports).return_value == 1
    order = [*runs, reports / "latest"]
    for path in order if shards_first else order[::-1]:
        assert said("history", "import", path, "--reports", reports).exception is None
    with sqlite3.connect(reports / "history.sqlite") as connection:
        counts = list(connection.execute("SELECT run, count(*) FROM attempts GROUP BY run"))
    assert counts == [((reports / "latest").resolve().name, 6)]


def test_a_run_json_drops_no_run_whose_journal_it_does_not_know(tmp_path: Path) -> None:
    other = run_folder(tmp_path / "reports", attempt("a passed"))
    evil = run_folder(tmp_path / "reports", attempt("b passed"))
    change(evil, lambda info: info | {"shards": [{"run": other.name, "journal": "0" * 64}, 5]})
    assert said("history", "import", "--reports", tmp_path / "reports").exception is None
    with sqlite3.connect(tmp_path / "reports/history.sqlite") as connection:
        assert list(connection.execute("SELECT count(*) FROM attempts")) == [(2,)]


def test_it_is_compared_with_whole_runs(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    before = [attempt(f"{name} passed", qnn="2.50.40") for name in "abcdef"]
    run_folder(reports, *before, command=COMMAND)
    assert merge(*shards(tmp_path), "--reports", reports).return_value == 1
    done = said("compare", "--previous", reports / "latest")
    assert done.return_value == 1
    assert "qnn-harness bisect --case" in done.output


SECRET = "s3cr3t-can4ry"


def sealed(number: int, text: str) -> bytes:
    content = f'{{"n":{number},"event":"log","text":{json.dumps(text)}'.encode()
    return MARK + content + SEAL % crc32(content) + b"\n"


def test_a_log_of_somebody_else_is_kept_without_secrets(tmp_path: Path) -> None:
    runs = shards(tmp_path)
    said = {"probe.jsonl": sealed(0, f"https://me:{SECRET}@host/x"), "logcat.txt": b"quiet\n"}
    said["logcat.txt"] += f"Authorization: Bearer {SECRET}\n".encode()
    record = next(cases_in(runs[0] / "results.jsonl", LeftOut()))[1]
    folder = (runs[0] / record.logs[0]).parent
    for name, content in said.items():
        (folder / name).write_bytes(content)
    logs = [f"logs/{folder.name}/{name}" for name in said]
    lines = (runs[0] / "results.jsonl").read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"logs": logs})
    (runs[0] / "results.jsonl").write_text("\n".join([*lines, ""]))
    assert merge(*runs, "--reports", tmp_path / "whole").return_value == 1
    found = {
        name: (tmp_path / "whole/latest" / log).read_bytes()
        for name, log in zip(said, logs, strict=True)
    }
    assert found["probe.jsonl"] == sealed(0, "https://***@host/x"), "sealed anew"
    assert found["logcat.txt"] == b"quiet\nAuthorization: Bearer ***\n"


KEY = "-----BEGIN PRIVATE KEY-----\n" + f"{'k3yk3yk3' * 8}\n" * 12 + "-----END PRIVATE KEY-----\n"
PIECES = (
    f"password={SECRET}\n".encode(),
    KEY.encode(),
    b"quiet\n" * 9,
    b"\n",
    sealed(7, f"password={SECRET}"),
    b"no end \xff",
)


@reaches(0.9)
@settings(max_examples=60)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(1, 600), st.booleans())
def test_a_log_is_without_secrets_wherever_its_blocks_end(
    pieces: list[bytes], at_once: int, probe: bool
) -> None:
    """Blocks are of some bytes here, and a key goes over many of them."""
    text, kept = b"".join(pieces), io.BytesIO()
    reached()
    with mock.patch.object(merging, "_AT_ONCE", at_once):
        merging.copy_without_secrets(io.BytesIO(text), kept, sealed=probe)
    assert kept.getvalue() == (kept_events if probe else log_without_secrets)(text)
    assert b"k3yk3yk3" not in kept.getvalue()
    assert SECRET.encode() not in kept.getvalue()


@reaches(0.9)
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from((b"q", b"\n", b"password=b ", b"x" * 40, b"y" * 99)), max_size=30),
    st.integers(1, 70),
)
def test_of_a_long_line_the_beginning_is_kept(pieces: list[bytes], at_once: int) -> None:
    """Lines are long from 64 bytes on here."""
    text, kept = b"".join(pieces), io.BytesIO()
    reached()
    with mock.patch.multiple(merging, _AT_ONCE=at_once, MOST_LINE_BYTES=64):
        merging.copy_without_secrets(io.BytesIO(text), kept, sealed=False)
    given_lines, lines = text.split(b"\n"), kept.getvalue().split(b"\n")
    assert len(lines) == len(given_lines)
    for one, line in zip(given_lines, lines, strict=True):
        if line.endswith(LINE_WAS_CUT):
            assert len(one) > 64
            assert line == log_without_secrets(one[:64]) + LINE_WAS_CUT
        else:
            assert len(one) <= 64 + at_once
            assert line == log_without_secrets(one)


def test_a_journal_that_changes_while_it_is_merged_is_told(tmp_path: Path) -> None:
    """What is written is what was judged: the names of its cases were asked for before."""
    runs = shards(tmp_path)
    journal = runs[1] / "results.jsonl"

    def then_changed(parts: Any) -> list[str]:
        found = gaps(parts)
        journal.write_bytes(journal.read_bytes() * 2)
        return found

    with mock.patch.object(merging, "gaps", then_changed):
        text = refused(*runs, "--reports", tmp_path / "reports")
    assert text == f"{journal}: was changed while it was read"
    assert not list((tmp_path / "reports").glob("2*"))
