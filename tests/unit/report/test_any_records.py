"""Whatever a journal holds, all that is made of it can be read, is bounded, and leaves no case out.

One test for all of them: to make up records takes longer than most of what is made of them.
"""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.report.ci import step_summary
from harness.report.html import html_text
from harness.report.junit import junit_parts
from harness.report.report_files import project
from harness.report.sections import RunData
from harness.report.summary import failure_groups, summary_lines, totals
from harness.results import journal
from harness.results.coverage import coverage_of
from harness.results.journal import Contents
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder
from tests.properties import reached, reaches
from tests.report_page import Page
from tests.unit.report.test_html import SCRIPTS
from tests.unit.report.test_junit import valid
from tests.unit.results.records import final_attempts, records

LISTS = st.lists(records(), max_size=6)


@reaches(0.2)
@settings(max_examples=60)
@given(LISTS, st.integers(60, 200))
def test_any_records_are_told_everywhere(records: list[CaseRecord], width: int) -> None:
    if any(item.is_bad for item in records):
        reached()
    cases = final_attempts(records)
    the_summary(cases, width)
    junit(cases)
    ci(cases)
    page(records)


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS)
def test_reports_of_a_large_journal_are_those_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[CaseRecord]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{record.model_dump_json()}\n" for record in records)
    (folder / "results.jsonl").write_text(lines)
    reports = []
    for held_bytes in (1 << 30, 0):
        monkeypatch.setattr(journal, "_HELD_BYTES", held_bytes)
        run = project(RunFolder(folder))
        files = [(folder / name).read_bytes() for name in ("report.html", "junit.xml")]
        reports.append([*files, run.summary])
    assert reports[0] == reports[1]


def the_summary(records: list[CaseRecord], width: int) -> None:
    lines = summary_lines(records, coverage_of(records), "r", width=width)
    assert all(len(line) <= width and line.isprintable() for line in lines)
    assert sum(totals(records).values()) == len({item.case for item in records})
    groups = failure_groups(records)
    assert sum(len(group.cases) for group in groups) == sum(
        item.is_bad or (item.outcome == "unsupported" and item.error is not None)
        for item in records
    )
    assert (coverage_of(records).exit_code == 0) is not any(
        group.first.is_unexpected for group in groups
    )


def junit(records: list[CaseRecord]) -> None:
    content = b"".join(junit_parts(records, coverage_of(records), run="r"))
    assert content == b"".join(junit_parts(records, coverage_of(records), run="r"))
    assert len(list(valid(content).iter("testcase"))) == len(records)


def ci(records: list[CaseRecord]) -> None:
    text = step_summary(RunData("r", Contents(tuple(records), ())))
    assert not re.search(r"[<>@\[]", re.sub(r"```.*?```|`r`", "", text, flags=re.DOTALL))


def page(records: list[CaseRecord]) -> None:
    shown_page = Page(html_text(RunData("r", Contents(tuple(records), ()))))
    assert shown_page.tags.count("script") == SCRIPTS
    assert shown_page.tags.count("body") == 1
