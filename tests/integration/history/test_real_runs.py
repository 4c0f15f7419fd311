"""Runs on the simulated device with the real libraries, one after the other, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.versions import QNN_WHEELS
from harness.history.previous import previous_of
from harness.results.run_folder import RunFolder
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.unit.history.runs import attempt, run_folder

QNN = list(QNN_WHEELS)
SUITE = """import pytest
from harness.models.models import Model

@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", [Model("tiny")], ids=str)
def test_mine(bench, model):
    bench.run_contexts([model], 1, "resident").check()
    assert bench.placement.qnn < "2.49", "too new"
"""


SURROUNDED = """import pytest
from harness.models.models import Model
from harness.models.source import schedule
from harness.probe.plan import Settings

@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("level", ["warn", "verbose", None])
def test_times(bench, level):
    bench.measure(level=level)
    if level is not None:
        contexts = bench.contexts(Model("tiny"))
        settings = Settings(log_level=level)
        bench.run(bench.context_plan(contexts, schedule(1, "resident"), settings=settings)).check()
"""


@pytest.mark.nightly
def test_what_was_around_times_is_in_their_records(lab: DeviceRuns) -> None:
    suite = lab.folder / "mine" / "test_mine.py"
    suite.parent.mkdir()
    suite.write_text(SURROUNDED)
    gate = "    gate: {max_busy_percent: 100, max_temperature_c: 150, wait_s: 5}\n"
    lab.file.write_text(lab.file.read_text() + gate)
    completed = lab.run("--device", "sim-v73", "--qnn", QNN[-1], suites=suite)
    assert [case["outcome"] for case in completed.cases] == ["passed"] * 3
    surroundings = [case["measurements"].get("surroundings") for case in completed.cases]
    assert surroundings[2] is None  # it measured no times
    for index, level in enumerate(("warn", "verbose")):
        assert (surroundings[index]["log_level"], surroundings[index]["cases_before"]) == (
            level,
            index,
        )
        assert surroundings[index]["seen_s"] >= 0
    (health,) = [row for row in completed.journal if row.get("event") == "health"]
    assert surroundings[0].get("hottest_c") == health["vitals"]["hottest_c"]


def test_two_nights_are_compared_and_remembered(lab: DeviceRuns) -> None:
    suite = lab.folder / "mine" / "test_mine.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    for version in (QNN[0], QNN[1], QNN[-1]):
        lab.run("--device", "sim-v73", "--qnn", version, suites=suite)
    newest = (lab.reports / "latest").resolve()
    completed = qnn_harness("compare", "--previous", newest, "--json", "--lab", lab.file)
    document = json.loads(completed.stdout)
    assert (completed.returncode, document["failed_on"]) == (1, ["new"]), completed.stderr
    assert document["base"] < document["run"] == newest.name
    completed = qnn_harness("history", "--reports", lab.reports, "--json", "--lab", lab.file)
    history = json.loads(completed.stdout)
    (case,) = history["cases"]
    assert (history["runs"], case["recent"], case["fails"]) == (3, "..F", True)
    for bisect in (document["new"][0]["bisect"], case["bisect"]):
        words = dict(zip(bisect[2::2], bisect[3::2], strict=True))
        assert (words["--good"], words["--bad"]) == (QNN[1], QNN[-1])
    assert len(list(lab.reports.glob("history.sqlite"))) == 1


def test_what_the_runs_before_show_to_be_flaky_is_not_new(tmp_path: Path) -> None:
    for outcome in ("passed", "failed", "passed", "failed"):
        newest = run_folder(tmp_path, attempt(f"a {outcome}"), attempt("b passed"))
    completed = qnn_harness("compare", "--previous", newest)
    assert completed.returncode == 0, completed.stdout
    text = "Flaky\n- 1 case: failed: call 1002 it broke; 2 of 4 attempts failed on the same "
    text += "versions, first on "
    assert text in completed.stdout
    assert "2 of 2 cases have a verdict: 1 passed, 1 failed; 1 flaky; " in completed.stdout
    between = qnn_harness("compare", previous_of(RunFolder.open(newest)).path, newest)
    assert (between.returncode, "New\n- 1 case: " in between.stdout) == (1, True), (
        "two runs say no more"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--markdown", "--html"], "--markdown and --html do not go together"),
        (["--html", "--json"], "--html and --json do not go together"),
    ],
)
def test_one_form_at_a_time(words: list[str], message: str) -> None:
    completed = qnn_harness("compare", "before", "after", *words)
    assert completed.returncode == 2
    assert message in completed.stderr
