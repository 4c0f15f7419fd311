"""Results of bisections: dates, sides, reports that nothing in a record can break."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from jsonschema import Draft202012Validator

from harness.bisect.bad_condition import Point
from harness.bisect.reports import RESULT, summary, title, write_reports
from harness.bisect.result import AxisFinding, BisectionResult, Edge, Finding, Run
from harness.bisect.search import AxisSpec, CornerSpec
from harness.bisect.version_search import Bisection
from harness.cli.bisect import BisectProgress, bisect, result_lines
from harness.cli.schema import schemas
from harness.diagnosis.error_record import ErrorRecord
from harness.results.record import CaseRecord
from tests.report_page import Page
from tests.snapshots import Snapshot
from tests.unit.bisect.scripted_runs import CASE, ScriptedRuns, new_bisection

VERSIONS = ("2.47.0", "2.48.40", "2.49.40")


SCHEMA = Draft202012Validator(json.loads(schemas()["bisect.schema.json"]))


def written(bisection: Bisection, finding: Finding | None) -> dict[str, Any]:
    """The result, which keeps to its schema, and nothing more."""
    folder = bisection.folder.path
    bisection_result = write_reports(bisection.folder, finding, None)
    result = bisection_result.as_json()
    assert json.loads((folder / RESULT).read_text()) == result
    assert BisectionResult.model_validate(result) == bisection_result
    SCHEMA.validate(result)
    for key in result:
        assert not SCHEMA.is_valid({name: value for name, value in result.items() if name != key})
    assert not SCHEMA.is_valid(result | {"more": 1})
    return result


def hide_runs(snapshot: Snapshot, bisection: Bisection) -> None:
    """Hide the names of the folders that the runs of a bisection made."""
    snapshot.hide(bisection.folder.path.name, "BISECTION")
    for run in (bisection.folder.path / "runs").glob("*/2*/"):
        snapshot.hide(run.name, "RUN")


def test_one_axis(tmp_path: Path, snapshot: Snapshot) -> None:
    runs = ScriptedRuns(lambda point, _: "failed" if point[0] > "2.48" else "passed")
    bisection = new_bisection(
        tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), runs, held={"compiler": "2.47.0"}
    )
    finding = bisection.run()
    result = written(bisection, finding)
    assert result["answer"]["last_good"] == "2.47.0"
    assert result["versions"]["qnn"]["2.48.40"] == "2.51.0.260929181845"
    (edge,) = result["edges"]
    before, after = (result["runs"][edge[side] - 1] for side in ("before", "after"))
    assert (before["at"], after["at"]) == (["2.47.0"], ["2.48.40"])
    assert after["record"]["error"]["code"] == 1002
    assert [run["answer"] for run in result["runs"]] == ["good", "bad", "bad"]
    for run in result["runs"]:
        assert (bisection.folder.path / run["run"] / "results.jsonl").is_file()
    assert result["most_runs"] == 3
    hide_runs(snapshot, bisection)
    text = (bisection.folder.path / "report.md").read_text()
    # a bar would end a cell, and what looks like a tag would vanish
    assert text.partition("## Side by side")[2].partition("## All runs")[0] == snapshot
    assert text.startswith(f"# {title(BisectionResult.model_validate(result))}\n")
    assert f"-o 'qnn_only_case={CASE}' --qnn-device sim --qnn-compiler 2.47.0" in text
    page = Page((bisection.folder.path / "report.html").read_text())
    assert "script" not in page.tags


CORNERS = CornerSpec(
    axes=("qnn", "ort"),
    candidates=(VERSIONS, ("1", "2", "3")),
    good=(VERSIONS[0], "1"),
    bad=(VERSIONS[2], "3"),
)


def corners_result(
    folder: Path, bad: Callable[[Point], bool], **more: Any
) -> tuple[dict[str, Any], str, str]:
    """The result where these pairs are bad, report.md and report.html."""
    runs = ScriptedRuns(lambda point, _: "failed" if bad(point) else "passed")
    bisection = new_bisection(folder, CORNERS.model_copy(update=more), runs)
    finding = bisection.run()
    result = written(bisection, finding)
    pages = ((bisection.folder.path / name).read_text() for name in ("report.md", "report.html"))
    return result, *pages


def test_where_both_axes_matter_both_edges_are_shown(tmp_path: Path) -> None:
    result, text, page = corners_result(
        tmp_path, lambda point: point[0] >= "2.48" and point[1] >= "3"
    )
    edges = {
        edge["axis"]: tuple(result["runs"][edge[side] - 1]["at"] for side in ("before", "after"))
        for edge in result["edges"]
    }
    assert edges == {
        "qnn": (["2.47.0", "3"], ["2.48.40", "3"]),
        "ort": (["2.49.40", "2"], ["2.49.40", "3"]),
    }
    places = {tuple(place) for sides in edges.values() for place in sides}
    assert text.count("qnn_only_case") == len(places)
    for shown in (text, page):
        for version in ("qnn 2.48.40", "ort 3"):
            assert re.search(rf"(## |<h2.*>).* {version}\b", shown)


def test_an_axis_that_alone_matters_is_shown_alone(tmp_path: Path) -> None:
    result, _, _ = corners_result(tmp_path, lambda point: point[1] >= "2")
    assert result["answer"]["fails_with"] == "ort"
    assert [edge["axis"] for edge in result["edges"]] == ["ort"]
    assert result["answer"]["searches"][0]["held"] == {"qnn": "2.47.0"}


def test_flaky_versions_are_part_of_the_result_and_its_reports(tmp_path: Path) -> None:
    points = list[Point]()

    def outcome_at(point: Point, _: str) -> str:
        points.append(point)
        return "failed" if point == (VERSIONS[2],) and points.count(point) == 2 else "passed"

    spec = AxisSpec(axis="qnn", candidates=VERSIONS, repeat=5)
    bisection = new_bisection(tmp_path, spec, ScriptedRuns(outcome_at))
    finding = bisection.run()
    result = written(bisection, finding)
    assert result["answer"]["flaky"] == [{"at": ["2.49.40"], "failed": 1, "runs": 5, "repeats": 21}]
    (text,) = (version.description for version in finding.flaky)
    assert text in "\n".join(result_lines(BisectionResult.model_validate(result), "folder"))
    for name in ("report.md", "report.html"):
        assert text in (bisection.folder.path / name).read_text()


SINCE = "last good 2.48.40, first bad 2.49.40"
ERROR = ErrorRecord.of(api="QnnContext_create", code=1002, symbol="MEM_ALLOC", message="")
LONG = "suites/a.py::test_context_count[sim-v73-htp-2.51.0-io-heavy-56mb-resident-66]"
SHORT = "a.py::test_b[sim-htp-2.51.0-tiny]"


def titled(text: str | None, error: ErrorRecord | None, case: str = SHORT) -> str:
    bad = Run.model_construct(answer="bad", record=CaseRecord.model_construct(error=error))
    edge = Edge.model_construct(axis="qnn", before=1, after=1)
    answer = None if text is None else AxisFinding.model_construct(text=text)
    return title(
        BisectionResult.model_construct(
            axes=["qnn"], case=case, answer=answer, runs=[bad], edges=[edge]
        )
    )


def test_a_title_names_the_versions_first(snapshot: Snapshot) -> None:
    long_error = ErrorRecord.of(message="it is not so\n" + "x" * 60)
    titles = [titled(SINCE, ERROR, LONG), titled(None, None, LONG), titled(SINCE, long_error)]
    assert titles == snapshot
    assert len(titled("x" * 500, ERROR)) <= 200


def test_bad_for_several_reasons_is_pointed_out(tmp_path: Path, snapshot: Snapshot) -> None:
    """ "All are bad" hides that one of the reasons may have come with a version."""
    warnings, pages = [], []
    for match in (None, "code=1002 else good"):
        runs = ScriptedRuns(lambda point, _: "failed" if point[0] > "2.48" else "crashed")
        axis = AxisSpec(axis="qnn", candidates=VERSIONS)
        bisection = new_bisection(tmp_path / str(match), axis, runs, match=match)
        finding = bisection.run()
        warnings.append({*summary(BisectionResult.model_validate(written(bisection, finding)))})
        pages.append((bisection.folder.path / "report.md").read_text())
    assert sorted(warnings[0] - warnings[1]) == snapshot
    assert "1002" in pages[0].partition("All runs")[2]


def test_before_it_is_over_there_are_no_sides(tmp_path: Path, snapshot: Snapshot) -> None:
    bisection = new_bisection(
        tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), ScriptedRuns(lambda point, _: "passed")
    )
    result = written(bisection, None)
    assert (result["finished"], result["answer"], result["edges"]) == (False, None, [])
    assert title(BisectionResult.model_validate(result)) == snapshot


def test_progress_is_a_plain_line_for_each_run(tmp_path: Path, snapshot: Snapshot) -> None:
    tries = []

    def outcome_at(point: Point, _: str) -> str:
        tries.append(point)
        lab_fails = len(tries) in (2, 3)
        return "lab" if lab_fails else "failed" if point == VERSIONS[2:] else "passed"

    spec = AxisSpec(axis="qnn", candidates=VERSIONS)
    bisection = new_bisection(tmp_path, spec, ScriptedRuns(outcome_at), held={"compiler": "1"})
    stream = io.StringIO()
    bisection.watcher = BisectProgress(bisection.folder.read(), bisection.folder.path, stream)
    bisection.run()
    hide_runs(snapshot, bisection)
    assert stream.getvalue() == snapshot


def test_the_log_is_shown(tmp_path: Path, snapshot: Snapshot) -> None:
    runs = ScriptedRuns(lambda point, _: "failed" if point == VERSIONS[2:] else "passed")
    bisection = new_bisection(tmp_path, AxisSpec(axis="qnn", candidates=VERSIONS), runs)
    bisection.run()
    bisection.folder.close()
    hide_runs(snapshot, bisection)
    shown = CliRunner().invoke(bisect, ["log", str(bisection.folder.path)])
    assert (shown.exit_code, shown.exception) == (0, None)
    assert shown.output == snapshot
    assert CliRunner().invoke(bisect, ["log", "--reports", str(tmp_path)]).output == shown.output
