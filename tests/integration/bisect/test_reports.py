"""Reports of bisections are listed by the reports of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.bisect.driver import Bisection
from harness.bisect.report_text import RESULT, write_reports
from harness.bisect.result import AxisFinding
from harness.bisect.search import AxisSpec
from harness.report.document import html
from harness.report.projections import finish
from harness.report.sections import bisection_table, bisections_in
from harness.results.run_folder import RunFolder
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection, record

VERSIONS = ("2.47.0", "2.48.40", "2.49.40")
SAID = "last good 2.47.0, first bad 2.48.40"


@pytest.fixture
def bisection(tmp_path: Path) -> Bisection:
    """One that is over."""
    runs = ScriptedRuns(lambda point, _: "failed" if point[0] > "2.48" else "passed")
    new = new_bisection(tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), runs)
    finding = new.run()
    assert isinstance(finding, AxisFinding)
    write_reports(new.folder, finding, None, tmp_path)
    new.folder.close()
    return new


def test_the_report_of_a_run_of_the_same_test_lists_them(bisection: Bisection) -> None:
    for case, is_listed in (
        (bisection.task.case.replace("tiny", "other"), True),
        ("a.py::b", False),
    ):
        run = RunFolder.create(bisection.folder.path.parent, command=[], lab={}, devices=[])
        run.journal.append(record("passed").model_copy(update={"case": case}))
        finish(run, exit_code=0)
        page = (run.path / "report.html").read_text()
        link = f'href=".././{bisection.folder.path.name}/report.html"'
        assert ((link in page), (SAID in page)) == (is_listed, is_listed)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2",
        "[]",
        '{"kind": "run"}',
        json.dumps({"kind": "bisect"}),
        json.dumps({"kind": "bisect", "case": ["<script>"], "axes": 3, "answer": 4, "runs": {}}),
        json.dumps({"kind": "bisect", "case": "<script>" * 900, "axes": [{}], "answer": {}}),
    ],
)
def test_nothing_in_a_result_can_break_the_lists(tmp_path: Path, content: Any) -> None:
    folder = tmp_path / "<b>-bisect"
    folder.mkdir()
    (folder / RESULT).write_text(content)
    assert len(bisections_in(tmp_path)) == ("bisect" in content)
    if "bisect" in content:
        page = html([bisection_table(bisections_in(tmp_path))])
        assert "<script" not in page
        assert "<b>" not in page
