"""Runs on the simulated device with the real libraries, one after the other, and what they say."""

from __future__ import annotations

import json

import pytest

from harness.core.versions import QNN_WHEELS
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness

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


@pytest.mark.slow
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
