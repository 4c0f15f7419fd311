"""Each series of a run that is small enough to work out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harness.results.record import CaseRecord, DeviceEvent
from tests.unit.report.test_metrics import samples, text_of
from tests.unit.results.records import DEVICE, error, record

BEGAN = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)


def case(name: str, seconds: float, **more: Any) -> CaseRecord:
    return record(
        **({"case": name, "suite": "s", "duration_s": seconds, "measurements": {}} | more)
    )


def event(name: str, **more: Any) -> DeviceEvent:
    fields = {"run": "r", "device": "sim-v73", "started": BEGAN, "duration_s": 0.25}
    return DeviceEvent(**(fields | {"event": name, "state": "good"} | more))


def test_all_that_is_told_of_a_run() -> None:
    records = [
        case("a", 1.0),
        case("b", 2.0, attempt=2),
        case("c", 6.0, outcome="crashed", error=error()),
        case("d", 4.0, device=None, suite="other"),
        case("e", 0.5, outcome="error", cause="infra", error=error(code=None)),
        case("f", 1.5),
    ]
    vitals = {"free_ram_bytes": 9, "battery_percent": "full", "hottest_c": 30}
    events = [
        event("push", pushed_bytes=100),
        event("push", pushed_bytes=None, duration_s=0.50049),
        event("health", vitals=vitals, started="2026-11-21T06:00:02Z"),
        event("health", vitals={"hottest_c": 44.5}, started="2026-11-21T06:00:01Z"),
        event("health", state="bad"),
        event("health", state="bad"),
    ]
    end = BEGAN.timestamp() + 6
    place = ("sim-v73", "2.51.0")
    assert samples(text_of(records, events, {"selected": 7})) == {
        ("run_end_seconds",): end,
        ("run_duration_seconds",): 6,
        ("selected_cases",): 8,
        ("coverage_whole",): 0,
        ("missing_verdicts", "lab"): 1,
        ("missing_verdicts", "not run"): 2,
        ("cases", "passed", "none", *place): 3,
        ("cases", "crashed", "target", *place): 1,
        ("cases", "passed", "none", "none", "2.51.0"): 1,
        ("cases", "error", "infra", *place): 1,
        ("case_duration_seconds", "sim-v73", "s", "median"): 1.5,
        ("case_duration_seconds", "sim-v73", "s", "max"): 6,
        ("case_duration_seconds", "sim-v73", "s", "sum"): 11,
        ("case_duration_seconds", "none", "other", "median"): 4,
        ("case_duration_seconds", "none", "other", "max"): 4,
        ("case_duration_seconds", "none", "other", "sum"): 4,
        ("retried_cases", "sim-v73"): 1,
        ("device_events", "sim-v73", "health"): 2,
        ("device_pushed_bytes", "sim-v73"): 100,
        ("device_push_seconds", "sim-v73"): 0.75,
        ("device_temperature_celsius", "sim-v73"): 30,
        ("device_free_memory_bytes", "sim-v73"): 9,
    }


def test_a_run_of_nothing_has_no_end() -> None:
    assert text_of([], [], {"selected": 0}).splitlines() == [
        "# TYPE qnn_harness_selected_cases gauge",
        "# HELP qnn_harness_selected_cases Cases that the run was to run.",
        "qnn_harness_selected_cases 0",
        *text_of([], [], {}).splitlines()[:2],
        "qnn_harness_coverage_whole 1",
        *text_of([], [], {}).splitlines()[3:],
    ]
    assert samples(text_of([], [], {})) == {("coverage_whole",): 0}, "nobody knows"
    assert text_of([], []).endswith("\n# EOF\n")


def test_units_are_told_where_there_are_any() -> None:
    lines = text_of([case("a", 0.1234567)], []).splitlines()
    assert lines[:4] == [
        "# TYPE qnn_harness_run_end_seconds gauge",
        "# UNIT qnn_harness_run_end_seconds seconds",
        "# HELP qnn_harness_run_end_seconds When the last run ended, since 1970.",
        f"qnn_harness_run_end_seconds {BEGAN.timestamp() + 0.123!r}",
    ]
    assert "qnn_harness_run_duration_seconds 0.123" in lines
    assert any(line.endswith('statistic="sum"} 0.123457') for line in lines)
    assert not [line for line in lines if line.startswith("# UNIT") and "_cases" in line]


@pytest.mark.parametrize(
    ("finished", "seconds"), [("2026-11-21T06:00:00Z", 0), ("2026-11-21T06:00:09Z", 9)]
)
def test_a_run_may_end_as_it_begins(finished: str, seconds: float) -> None:
    info = {"started": "2026-11-21T06:00:00Z", "finished": finished}
    values = samples(text_of([case("a", 5.0)], [], info))
    assert values["run_duration_seconds",] == seconds
    assert values["run_end_seconds",] == BEGAN.timestamp() + seconds


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("a   b", "a b"),
        ("a" + " " * 399 + "b", "a "),
        ("x" * 101, "x" * 100),
        ("x" * 100, "x" * 100),
        ("", "none"),
    ],
)
def test_a_label_is_one_line_of_at_most_100_characters(name: str, label: str) -> None:
    values = samples(text_of([case("a", 1.0, device=DEVICE | {"name": name})], []))
    assert ("retried_cases", label) not in values
    assert values["cases", "passed", "none", label, "2.51.0"] == 1


def test_the_fifty_values_with_most_series_are_told_and_of_as_many_the_first() -> None:
    names = [f"d{n:02}" for n in range(51)]
    records = [case(name, 1.0, device=DEVICE | {"name": name}) for name in names]
    worse = {"outcome": "crashed", "error": error(), "device": DEVICE | {"name": "d50"}}
    values = samples(text_of([*records, case("worse", 1.0, **worse)], []))
    counts = {key[3]: value for key, value in values.items() if key[:2] == ("cases", "passed")}
    assert counts == dict.fromkeys([*names[:49], "d50", "other"], 1)
