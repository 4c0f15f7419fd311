"""Known issues in whole runs: expected, fixed, strict, and failing otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = """
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("name", ["good", "bad"])
def test_case(bench, name):
    step = Step("noop") if name == "good" else Step("crash", {"signal": "11"})
    bench.run(Plan((step,)), timeout_s=60).check()
"""
ISSUE = """schema: 1
known_issues:
  - id: {id}
    link: https://example.com/1
    signature: {{outcome: {outcome}, api: crash, code: null, message: SIGSEGV}}
    conditions: {{suite: shaky, axes: {{name: {name}}}}}
    until: {until}
"""
ENTRY = {"id": "shaky", "outcome": "crashed", "name": "'*'", "until": "2099-01-01"}
HERE_AND_ON_A_WORKER = pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="here"),
        pytest.param(("-n", "1"), id="xdist", marks=pytest.mark.nightly),
    ],
)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite" / "test_shaky.py"
    path.parent.mkdir()
    path.write_text(SUITE)
    return path


def issues(folder: Path, **changed: str) -> str:
    path = folder / "issues.yaml"
    path.write_text(ISSUE.format_map(ENTRY | changed))
    return f"--known-issues={path}"


@pytest.mark.nightly
def test_what_passes_is_named_and_the_run_is_fine(
    lab: DeviceRuns, tmp_path: Path, suite: Path
) -> None:
    completed = lab.run(issues(tmp_path), suites=suite)
    assert completed.code == 0, completed.output
    assert completed.case(name="bad")["expected"] == {"known_issue": "shaky"}
    good = completed.case(name="good")
    assert (good["outcome"], good["fixed"]) == (
        "passed",
        {"known_issues": ["shaky"], "fails": False},
    )
    line = "known issue shaky: fixed? 1 case passed where it is expected  [first: "
    assert line in completed.output
    assert "1 passed, 1 xfailed" in completed.output


@HERE_AND_ON_A_WORKER
def test_strict_runs_fail(
    lab: DeviceRuns, tmp_path: Path, suite: Path, workers: tuple[str, ...]
) -> None:
    completed = lab.run(issues(tmp_path), "--strict-known", *workers, suites=suite)
    assert completed.code == 1, completed.output
    good = completed.case(name="good")
    assert (good["outcome"], good["fixed"]["fails"]) == ("passed", True)
    assert "fixed? it passed, and is a known issue: shaky (--strict-known)" in completed.output
    assert "1 failed, 1 xfailed" in completed.output
    assert 'message="fixed? shaky"' in (completed.folder / "latest/junit.xml").read_text()


@pytest.mark.slow
def test_another_failure_at_the_same_place_is_a_failure(
    lab: DeviceRuns, tmp_path: Path, suite: Path
) -> None:
    completed = lab.run(issues(tmp_path, outcome="hung", name="bad"), suites=suite)
    assert completed.code == 1, completed.output
    assert completed.case(name="bad")["expected"] is None


@pytest.mark.parametrize(
    "way",
    [
        pytest.param((), id="here"),
        pytest.param(("-n", "1"), id="xdist"),
        pytest.param(("-m", ""), id="device tests among others"),
        pytest.param(("-m", "", "-n", "1"), id="among others, with xdist"),
    ],
)
@pytest.mark.nightly
def test_an_entry_that_is_over_or_cannot_match_is_named(
    lab: DeviceRuns, tmp_path: Path, suite: Path, way: tuple[str, ...]
) -> None:
    option = issues(tmp_path, until="2026-01-01")
    path = tmp_path / "issues.yaml"
    _, _, entry = ISSUE.partition("known_issues:\n")
    other = entry.format_map(ENTRY | {"id": "misspelt"}).replace("{name:", "{nme:")
    path.write_text(path.read_text() + other)
    completed = lab.run(option, "-k", "good", *way, suites=suite)
    assert completed.code == 0, completed.output
    assert "known issue shaky expired on 2026-01-01: look at it again" in completed.output
    assert "misspelt can never match: no case of its suite has the axis nme" in completed.output
