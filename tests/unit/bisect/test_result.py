"""What a bisection came to: dates, sides, reports that nothing in a record can break."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.outcome import write_outcome
from harness.bisect.result import build_date
from harness.bisect.sides import sides_of
from harness.bisect.specs import AxisSpec, GridSpec
from tests.unit.bisect.scripted_runs import CASE, ScriptedRuns, new_bisection

VERSIONS = ("2.47.0", "2.48.40", "2.49.40")


@pytest.mark.parametrize(
    ("build", "day"),
    [
        ("2.51.0.260929181845", "2026-09-29"),
        ("2.28.2.241116", "2024-11-16"),
        ("2.51.0", None),
        ("2.51.0.261399000000", None),
        ("", None),
        (None, None),
    ],
)
def test_the_day_of_a_build(build: str | None, day: str | None) -> None:
    assert build_date(build) == day


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_one_axis(tmp_path: Path) -> None:
    runs = ScriptedRuns(lambda at, _: "failed" if at[0] > "2.48" else "passed")
    bisection = new_bisection(
        tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), runs, held={"compiler": "2.47.0"}
    )
    finding = bisection.go_on()
    assert isinstance(finding, Finding)
    result = write_outcome(bisection.folder, bisection.task, finding, None, tmp_path)
    assert json.loads((bisection.folder.path / "result.json").read_text()) == result
    assert result["answer"]["last_good"] == "2.47.0"
    assert result["versions"]["qnn"]["2.48.40"]["date"] == "2026-09-29"
    assert (result["before"]["at"], result["after"]["at"]) == (["2.47.0"], ["2.48.40"])
    assert result["after"]["error"]["code"] == 1002
    assert [run["answer"] for run in result["runs"]] == ["good", "bad", "bad"]
    for run in result["runs"]:
        assert (bisection.folder.path / run["run"] / "results.jsonl").is_file()
    text = (bisection.folder.path / "report.md").read_text()
    assert "last good 2.47.0, first bad 2.48.40" in text
    assert f"--only-case '{CASE}' --device sim --compiler 2.47.0 --qnn 2.48.40" in text
    # a bar would end the cell, and what looks like a tag would vanish
    assert "bad at step &lt;script> \\| failed" in text
    page = (bisection.folder.path / "report.html").read_text()
    parser = Tags()
    parser.feed(page)
    assert "script" not in parser.seen


def test_a_grid(tmp_path: Path) -> None:
    grid = GridSpec(axes=("ort", "qnn"), rows=("1", "2"), columns=VERSIONS)
    runs = ScriptedRuns(lambda at, _: "passed" if at[1] >= "2.49" else "failed")
    bisection = new_bisection(tmp_path, grid, runs)
    finding = bisection.go_on()
    assert isinstance(finding, GridFinding)
    result = write_outcome(bisection.folder, bisection.task, finding, None, tmp_path)
    assert result["answer"]["first"] == [["1", "2.49.40"]]
    assert result["answer"]["mattered"] == {"ort": False, "qnn": True}
    page = (bisection.folder.path / "report.html").read_text()
    assert page.count('class="a-') == len(grid.rows) * len(grid.columns)
    assert "The grid" in page
    assert (result["before"]["at"][0], result["after"]["at"][0]) == ("1", "1")
    assert "ort \\ qnn" in (bisection.folder.path / "report.md").read_text()


def test_before_it_is_over_there_are_no_sides(tmp_path: Path) -> None:
    bisection = new_bisection(
        tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), ScriptedRuns(lambda at, _: "passed")
    )
    result = write_outcome(bisection.folder, bisection.task, None, None, tmp_path)
    assert (result["finished"], result["answer"], result["before"]) == (False, None, None)
    assert sides_of(None, []) == (None, None)
    assert "not over" in (bisection.folder.path / "report.html").read_text()
