"""The export to CI systems: GitHub's summary, nothing elsewhere."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.report.ci import qnn_run_finished, step_summary
from harness.report.sections import RunData, Since
from harness.results.journal import Contents
from harness.results.record import CaseRecord
from tests.integration.hostile_words import CANARY
from tests.snapshots import Snapshot
from tests.unit.results.records import error, record

BAD = {"outcome": "failed", "error": error()}


def run_of(records: Sequence[CaseRecord], since: Since | None = None, **info: Any) -> RunData:
    facts = {"selected": len(records)} | info
    return RunData("r", Contents(tuple(records), ()), facts, since=since)


def exported(records: Sequence[CaseRecord], environment: dict[str, str]) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        lines: list[str] = qnn_run_finished(run_of(records))
        return lines


def test_words_of_a_device_are_no_command_and_steer_nothing() -> None:
    message = f"a,b:c%\r\n::stop-commands::x\n{CANARY}<img src=x>`@me` [x](http://e)"
    records = [record(case=f"suites/t,:%{CANARY}.py::x", **BAD | {"error": error(message=message)})]
    text = step_summary(run_of(records, problem="x\n<b>`"))
    outside = re.sub(r"```.*?```|`` [^\n]*? ``|`[^`\n]*`", "", text, flags=re.DOTALL)
    assert not re.search(r"[<>@\[]", outside)


def test_the_summary_says_what_is_new_and_is_bounded(snapshot: Snapshot) -> None:
    records = [record(case=f"s.py::{n}", **BAD) for n in range(9)]
    became = {"s.py::3": "new", "s.py::4": "failing", "s.py::5": "fixed"}
    assert step_summary(run_of(records, Since("base", became, (), {}))) == snapshot
    assert step_summary(run_of([record()], problem="x\n<b>")) == snapshot
    mistakes = ["t.py:4: no marker", "t.py:4: no marker", "t.py:9: htp_arch=99"]
    assert step_summary(run_of([record()], not_started=mistakes)) == snapshot
    many = [
        record(case="x" * 4000 + str(n), **BAD | {"error": error(api=str(n), message="y" * 9000)})
        for n in range(500)
    ]
    assert len(step_summary(run_of(many)).encode()) <= 256 << 10


def test_github_and_its_summary(tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    fields = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    assert exported([record(**BAD)], {}) == exported([record(**BAD)], fields) == []
    assert summary.read_text() == f"before\n{step_summary(run_of([record(**BAD)]))}"
    summary.write_bytes(b"x" * ((1 << 20) - 10))
    exported([record(**BAD)], fields)
    assert summary.stat().st_size == (1 << 20) - 10


def test_a_summary_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    fields = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path)}
    (line,) = exported([record()], fields)
    assert line.startswith("warning: ")
