"""What was written before records had `test` and `placement` is read by every command."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.answers.history.brief import read_briefs
from harness.ground.errors import ConfigError
from harness.libraries.containers.open import open_artefact
from harness.search.nightly.kept_nights import nights
from harness.verdict.results.journal import read_journal
from harness.verdict.results.record import CaseRecord
from tests.integration.device_runs import LAB, RUN_TIMEOUT_S, DeviceRuns
from tests.integration.forked import ROOT, run_module
from tests.integration.in_process import qnn_harness
from tests.logged import Logged

KEPT = ROOT / "tests" / "schema_1"
BASE, NEW, FIRST_SHARD, SECOND_SHARD, NAMED_ORT, OWN_FILE = (
    folder.name for folder in sorted((KEPT / "reports").glob("2*-????????????????"))
)
(BISECT,) = (folder.name for folder in (KEPT / "reports").glob("*-bisect"))
"""The names of the kept runs and of the bisection."""

TWICE = "test_kept.py::test_words[sim-v73-htp-{}-a-htp-2.1-by-2.2-b]"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy, which may be written to."""
    copy = tmp_path / "kept"
    shutil.copytree(KEPT, copy, symlinks=True)
    return copy


def journals() -> Iterator[Path]:
    return KEPT.rglob("results.jsonl")


def place(record: CaseRecord) -> str:
    """A placement as its name has it."""
    found = record.placement
    if found is None:
        return "no-device"
    ort = f"-ort-{found.ort}" if found.ort else ""
    by = f"-by-{found.compiler}" if found.compiler else ""
    return f"{found.device}-{found.backend}-{found.qnn}{ort}{by}"


@pytest.mark.parametrize("journal", list(journals()), ids=lambda path: path.parent.name)
def test_a_record_says_what_its_name_said(journal: Path) -> None:
    assert b'"schema":1' in journal.read_bytes()
    contents = read_journal(journal)
    assert contents.records
    assert contents.damage == ()
    for one in contents.records:
        base, _, rest = one.test.partition("[")
        assert one.case == f"{base}[{place(one)}{'-' * bool(rest)}{rest or ']'}"
        assert not one.test.startswith(f"{base}[{one.axes['backend']}")
        if one.placement is not None:
            assert one.device is not None
            assert one.placement.device == one.device.name
            assert one.placement.backend == one.axes["backend"]
            assert one.placement.qnn == one.axes["qnn"]
            assert one.placement.engine == one.engine
            assert one.placement.compiler in (None, one.axes["compiler"])


def test_tests_are_called_without_what_the_harness_put_in() -> None:
    tests = [one.test for one in read_journal(KEPT / "reports" / BASE / "results.jsonl").records]
    assert tests[:4] == [
        f"test_kept.py::test_count[tiny-{way}]"
        for way in ("resident-1", "resident-2", "window-1", "window-2")
    ]
    assert tests.count("test_kept.py::test_mine") == 3
    assert "test_kept.py::test_words[a-htp-2.1-by-2.2-b]" in tests
    assert "test_kept.py::test_words[1:2[3]]" in tests
    assert "test_kept.py::test_nowhere" in tests
    (own,) = read_journal(KEPT / "reports" / OWN_FILE / "results.jsonl").records
    assert own.test == "add.bin::test_contexts[add.bin-resident-1]"
    (ort,) = read_journal(KEPT / "reports" / NAMED_ORT / "results.jsonl").records
    assert ort.placement is not None
    assert (ort.placement.ort, ort.placement.engine) == ("1.26.0", "ort")


def test_what_is_held_of_a_record_is_the_whole_of_it() -> None:
    journal = KEPT / "reports" / NEW / "results.jsonl"
    for one in read_journal(journal).records:
        whole = one.whole()
        assert (one.test, one.placement) == (whole.test, whole.placement)
        assert json.loads(one.model_dump_json())["schema"] == 2
    briefs, _ = read_briefs(journal)
    assert [one.test for one in briefs] == [one.test for one in read_journal(journal).records]


def as_it_was_then(said: Any) -> Any:
    """What was told then, without what is told only since, and otherwise of flaky cases."""
    if isinstance(said, dict):
        new = {"engine", "versions", "state", "flake_rate", "flaky_failed", "flaky_attempts"}
        new |= {"files_changed"}
        if "failed_attempts" in said:  # a side of a comparison had its attempts then, too
            new |= {"attempts", "failed_attempts"}
        return {key: as_it_was_then(one) for key, one in said.items() if key not in new}
    return [as_it_was_then(one) for one in said] if isinstance(said, list) else said


def told(text: str, reports: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(text.replace(str(reports), "/home/user/lab/reports"))
    return said


def test_two_runs_compare_as_they_did(kept: Path) -> None:
    reports = kept / "reports"
    done = qnn_harness(
        *("compare", reports / BASE, reports / NEW, "--lab", "devices.yaml", "--json")
    )
    assert done.returncode == 1, done.stderr
    before = json.loads((KEPT / "compare.json").read_text())
    assert before.pop("schema_version") == 1
    now = as_it_was_then(told(done.stdout, reports))
    assert now.pop("schema") == 1
    # the one whose parameter looks like a placement was taken for two cases then
    assert [one["case"] for one in before["added"]] == [TWICE.format("2.51.0")]
    assert [one["case"] for one in before["vanished"]] == [TWICE.format("2.47.0")]
    assert (now["passing"], now["added"], now["vanished"]) == (before["passing"] + 1, [], [])
    assert now.pop("ops") is None  # nothing was profiled then
    told_then = {"passing", "added", "vanished", "verdict", "failed_on"}
    assert {k: v for k, v in now.items() if k not in told_then} == {
        k: v for k, v in before.items() if k not in told_then
    }


def test_a_database_of_before_says_what_it_said(kept: Path) -> None:
    old, new = kept / "old.sqlite", kept / "new.sqlite"
    with sqlite3.connect(old) as connection:
        connection.executescript((KEPT / "history.sql").read_text())
    done = qnn_harness("history", "--database", old, "--json")
    before = json.loads((KEPT / "history.json").read_text())
    assert before.pop("schema_version") == 1
    now = as_it_was_then(json.loads(done.stdout))
    assert now.pop("schema") == 1
    then, cases = as_it_was_then(before.pop("cases")), now.pop("cases")
    words = [one for one in cases if "test_words" in one["case"]]
    # of which two versions were two cases each then, for what their parameters look like
    assert [(one["case"].partition("-2.")[2][:4], one["runs"]) for one in words] == [
        ("51.0", 2)
    ] * 2
    assert len([one for one in then if "test_words" in one["case"]]) == 4
    # versions that came again were one case with those between them then
    assert [one["recent"] for one in then if ".F." in one["recent"]] == [".F.F", ".F.F", ".F.F.F"]
    assert not [one for one in cases if ".F." in one["recent"]]
    known = {one["case"]: one for one in then}
    parted = {one["case"] for one in cases if known.get(one["case"]) != one}
    assert {name.partition("::")[2].partition("[")[0] for name in parted} == {
        *("test_mine", "test_count", "test_words")
    }
    untold = [name for name in known if name not in {one["case"] for one in cases}]
    assert all("test_words" in name for name in untold)
    assert now == as_it_was_then(before)
    taken_in = qnn_harness("history", "import", kept / "reports", kept / "night", "--database", new)
    assert taken_in.stdout.startswith("8 runs of 8 taken in")
    # their journals have what tables of then did not hold
    again = qnn_harness("history", "import", kept / "reports", kept / "night", "--database", old)
    assert again.stdout.startswith("8 runs of 8 taken in")
    assert attempts(old) == attempts(new)


def attempts(database: Path) -> list[dict[str, Any]]:
    """What is held; tables of before did not hold the engine."""
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        rows = [
            dict(row) for row in connection.execute("SELECT * FROM attempts ORDER BY run, line")
        ]
    for row in rows:
        if row["placement"] is not None:
            row["placement"] = {**json.loads(row["placement"]), "engine": None}
    return rows


def test_shards_become_one_run_of_today(kept: Path) -> None:
    reports = kept / "reports"
    done = qnn_harness(
        "merge", reports / FIRST_SHARD, reports / SECOND_SHARD, "--reports", kept / "merged"
    )
    assert done.returncode == 1, done.stderr
    assert "14 cases" in done.stdout
    lines = (kept / "merged/latest/results.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    assert {one["schema"] for one in said} == {2}
    by = {one["placement"]["compiler"] for one in said if one["kind"] == "case"}
    assert by == {None, "2.47.0"}


def test_reports_are_made_of_a_run(kept: Path) -> None:
    done = qnn_harness("report", kept / "reports" / NEW)
    assert "11 of 12 cases have a verdict, 1 unsupported" in done.stdout
    page = (kept / "reports" / NEW / "report.html").read_text()
    assert "too-new-alike" in page


def test_a_bisection_goes_on(kept: Path) -> None:
    """Its log says all that was answered, so that no run is made again."""
    folder = kept / "reports" / BISECT
    log = folder / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    (kept / "devices.yaml").write_text(LAB)
    log.write_text(log.read_text().replace("/home/user/lab", str(kept)))
    done = qnn_harness("bisect", "--resume", folder, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["answer"]["first_bad"], said["answer"]["last_good"]) == ("2.49.40", "2.48.40")


def test_nights_follow_each_other() -> None:
    second, first = nights(KEPT / "night")
    assert second.follows(first)
    assert json.loads(second.model_dump_json())["schema"] == 1
    (issue,) = second.issues
    assert issue.cases == ("test_kept.py::test_mine[sim-v73-htp-2.51.0]",)


def test_a_bundle_is_read() -> None:
    found = open_artefact(KEPT / "add.bundle.zip")
    assert [piece.facts["artefact"] for piece in found.pieces] == ["add.bin"]


SUITE = """import pytest

@pytest.mark.device(backend=("htp", "gpu", "cpu"))
def test_mine(bench):
    assert bench.placement.qnn < "2.49", "too new"
    bench.measure(noted=1)
"""


def test_a_run_that_was_cut_short_is_completed(kept: Path, lab: DeviceRuns) -> None:
    """What it has a verdict of is not run again; what is added is of schema 2."""
    run, reports = kept / "reports" / BASE, lab.reports
    (lab.folder / "pytest.ini").write_text("[pytest]\n")
    (lab.folder / "test_kept.py").write_text(SUITE)
    mine = [line for line in (run / "results.jsonl").read_text().splitlines() if "_mine[" in line]
    assert len(mine) == 3
    (run / "results.jsonl").write_text("".join(f"{line}\n" for line in mine[:2]))
    reports.mkdir()
    shutil.copytree(run, reports / BASE)
    words = ["pytest", "-p", "no:cacheprovider", "-m", "device", "--qnn", "2.47.0"]
    words += ["--resume", str(reports / BASE), "--reports", str(reports), "test_kept.py"]
    done = run_module(words, lab.folder, lab.environment, RUN_TIMEOUT_S)
    assert "1 passed, 2 deselected" in done.stdout
    assert "3 of 11 cases have a verdict, 8 not run" in done.stdout
    lines = [json.loads(line) for line in (reports / BASE / "results.jsonl").open()]
    cases = [one for one in lines if one["kind"] == "case"]
    assert [one["schema"] for one in cases] == [1, 1, 2]
    assert len({one["case"] for one in cases}) == 3
    assert cases[2]["test"] == "test_kept.py::test_mine"


NEWER = "is of schema 7; this version reads schema 1: a newer qnn-harness wrote it"


def test_what_a_newer_harness_wrote_is_refused_by_name(kept: Path, logged: Logged) -> None:
    manifest, log = kept / "manifest.json", kept / "reports" / BISECT / "log.jsonl"
    manifest.write_text('{"schema": 7, "pieces": []}')
    with pytest.raises(ConfigError, match=f"manifest.json: at byte 0: {NEWER}"):
        open_artefact(manifest)
    log.write_text(log.read_text().replace('"schema":1', '"schema":7', 1))
    done = qnn_harness("bisect", "--resume", log.parent)
    assert done.returncode == 2
    assert f"log.jsonl:1: schema: {NEWER}" in done.stderr
    for state in (kept / "night").glob("*/nightly.json"):
        state.write_text(state.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    assert list(nights(kept / "night")) == []
    assert [NEWER in said for said in logged.warnings] == [True, True]
