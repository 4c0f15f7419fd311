"""metrics.prom: read by Prometheus' own parsers, true, and of bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness.report.metrics import metrics_text
from harness.results.coverage import coverage_of
from harness.results.record import CaseRecord, DeviceEvent
from tests.integration.hostile_words import CANARY
from tests.unit.results.records import DEVICE, error, record

AT = {"run": "r", "device": "sim-v73", "started": "2026-11-20T10:00:00Z", "duration_s": 2.0}
PUSH = DeviceEvent(event="push", state="good", pushed_bytes=500, **AT)
WELL = DeviceEvent(event="health", state="good", vitals={"hottest_c": 41.5}, **AT)
BACK = DeviceEvent(event="reboot", state="good", **AT)


def text_of(
    made: Sequence[CaseRecord],
    events: Sequence[DeviceEvent],
    info: Mapping[str, Any] | None = None,
) -> str:
    return metrics_text(made, events, info or {}, coverage_of(made, info))


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (one.name.removeprefix("qnn_harness_"), *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_what_a_run_came_to() -> None:
    made = [
        record(duration_s=1.0),
        record(case="b", duration_s=3.0, attempt=2, measurements={"gate": {"hottest_c": 30}}),
        record(case="c", outcome="failed", error=error(), expected={"known_issue": "pd"}),
        record(case="d", outcome="failed", error=error(), measurements={"loaded": 55}),
    ]
    text = text_of(made, [PUSH, PUSH, WELL, BACK])
    found = samples(text)
    assert found["cases", "passed", "none", "sim-v73", "2.51.0"] == 2
    assert found["cases", "expected", "target", "sim-v73", "2.51.0"] == 1
    assert found["cases", "failed", "target", "sim-v73", "2.51.0"] == 1
    assert found["case_duration_seconds", "sim-v73", "context_count", "max"] == 3.0
    assert found["retried_cases", "sim-v73"] == 1
    assert found["device_events", "sim-v73", "reboot"] == 1
    assert ("device_events", "sim-v73", "push") not in found
    assert found["device_pushed_bytes", "sim-v73"] == 1000
    assert found["device_push_seconds", "sim-v73"] == 4.0
    assert found["device_temperature_celsius", "sim-v73"] == 30  # what was told last
    assert text.endswith("# EOF\n")
    assert {one.type for one in text_string_to_metric_families(text)} == {"gauge"}


@pytest.mark.parametrize(
    ("finished", "took"),
    [
        ("2026-11-21T06:10:00.250Z", 600.25),
        (None, 6.41),  # it was cut short
        ("2026-11-21T05:00:00Z", 6.41),
        ("soon", 6.41),
        (10**9, 6.41),
    ],
)
def test_a_run_took_as_long_as_its_run_json_says(finished: object, took: float) -> None:
    made = [record(), record(case="b", started=datetime(2026, 11, 21, 6, 0, 6, tzinfo=UTC))]
    info = {"started": "2026-11-21T06:00:00.000Z", "finished": finished}
    found = samples(text_of(made, [], info))
    assert found["run_duration_seconds",] == took
    ended = found["run_end_seconds",] - datetime(2026, 11, 21, 6, tzinfo=UTC).timestamp()
    assert ended == pytest.approx(took, abs=0.01)


def test_labels_are_bounded_and_the_rest_is_summed_up() -> None:
    made = [record(case=str(n), device=DEVICE | {"name": f"d{n:03}"}) for n in range(120)]
    heat = [WELL.model_copy(update={"device": f"d{n:03}"}) for n in range(120)]
    found = samples(text_of(made, heat))
    cases = {key: value for key, value in found.items() if key[0] == "cases"}
    assert len(cases) == 51
    assert cases["cases", "passed", "none", "other", "2.51.0"] == 70
    assert sum(cases.values()) == 120
    told = [key for key in found if key[0] == "device_temperature_celsius"]
    assert len(told) == 50, "no temperature is a sum"


def test_names_of_devices_are_labels_whatever_they_hold() -> None:
    name = f'a"b\\n\n{CANARY}' + "x" * 10_000_000
    text = text_of([record(device=DEVICE | {"name": name})], [])
    assert len(text) < 20_000
    assert all(line.isprintable() for line in text.splitlines())
    ((_, _, _, label, _),) = [key for key in samples(text) if key[0] == "cases"]
    assert label.startswith('a"b\\n \\x1b]0;')
