"""The export to CI systems: GitHub's summary, nothing elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.report.ci import (
    export_to_ci,
    step_summary,
)
from harness.report.sections import RunData
from harness.results.coverage import coverage_of
from harness.results.journal import Contents
from harness.results.record import CaseRecord
from tests.integration.hostile_words import CANARY
from tests.unit.results.records import error, final_attempts, record

BAD = {"outcome": "failed", "error": error()}


def summary_of(records: Sequence[CaseRecord], *more: Any, **named: Any) -> str:
    return step_summary(final_attempts(records), coverage_of(records), *more, **named)


def exported(records: Sequence[CaseRecord], run_id: str, environment: dict[str, str]) -> list[str]:
    run = RunData(run_id, Contents(tuple(records), ()), {"selected": len(records)})
    return export_to_ci(run, environment)


def test_words_of_a_device_are_no_command_and_steer_nothing() -> None:
    message = f"a,b:c%\r\n::stop-commands::x\n{CANARY}<img src=x>`@me` [x](http://e)"
    records = [record(case=f"suites/t,:%{CANARY}.py::x", **BAD | {"error": error(message=message)})]
    summary = summary_of(records, "r`n")
    outside = re.sub(r"`[^`\n]*`", "", summary)
    assert not re.search(r"[<>@\[]", outside)


def test_the_summary_says_what_is_new_and_is_bounded() -> None:
    records = [record(case=f"s.py::{n}", **BAD) for n in range(9)]
    text = summary_of(records, "r", {"s.py::3": "new", "s.py::4": "failing"})
    assert "### Devices: 9 of 9 cases have a verdict: 9 failed" in text
    assert "**9 cases** failed, **1 new**" in text
    assert "and 4 more" in text
    many = [
        record(case="x" * 4000 + str(n), **BAD | {"error": error(api=str(n), message="y" * 9000)})
        for n in range(500)
    ]
    assert len(summary_of(many, "r").encode()) <= 256 << 10
    wide = [
        record(case=f"{kind}{n}" + "\N{OCTOPUS}" * 400, **BAD | {"error": error(api=f"api{kind}")})
        for kind in range(100)
        for n in range(5)
    ]
    content = summary_of(wide, "r").encode()
    assert 64 << 10 < len(content) <= 256 << 10, "as much as there is room for"
    assert content.endswith(b"- ... and more\n\n")


def test_the_summary_of_a_run_that_was_cut_short_says_so() -> None:
    cut = summary_of([record()], "r", cut="x\n<b>")
    (line,) = (line for line in cut.splitlines() if "Cut short" in line)
    assert line.startswith("**Cut short**: `x")
    assert "Cut short" not in summary_of([record()], "r")


def test_nothing_happens_outside_of_ci() -> None:
    assert exported([record(**BAD)], "r", {}) == []


def test_github_and_its_summary(tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    fields = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    assert exported([record(**BAD)], "r", fields) == []
    assert summary.read_text() == f"before\n{summary_of([record(**BAD)], 'r')}"
    summary.write_bytes(b"x" * ((1 << 20) - 10))
    exported([record(**BAD)], "r", fields)
    assert summary.stat().st_size == (1 << 20) - 10


def test_a_summary_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    fields = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path)}
    (line,) = exported([record()], "r", fields)
    assert line.startswith("warning: cannot report to CI: ")
