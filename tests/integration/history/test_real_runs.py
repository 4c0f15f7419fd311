"""Runs on the simulated device with the real libraries, and what they say."""

import pytest

from harness.core.versions import QNN_WHEELS
from tests.integration.device_runs import DeviceRuns

QNN = list(QNN_WHEELS)
SURROUNDED = """import pytest
from harness.models.builtin_models import Model
from harness.models.session_plan import schedule
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
