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
    records: Sequence[CaseRecord],
    events: Sequence[DeviceEvent],
    info: Mapping[str, Any] | None = None,
) -> str:
    return metrics_text(records, events, info or {}, coverage_of(records, info))


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("qnn_harness_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_a_run_came_to() -> None:
    records = [
        record(duration_s=1.0),
        record(case="b", duration_s=3.0, attempt=2, measurements={"gate": {"hottest_c": 30}}),
        record(case="c", outcome="failed", error=error(), expected={"known_issue": "pd"}),
        record(case="d", outcome="failed", error=error(), measurements={"loaded": 55}),
    ]
    text = text_of(records, [PUSH, PUSH, WELL, BACK])
    values = samples(text)
    assert values["cases", "passed", "none", "sim-v73", "2.51.0"] == 2
    assert values["cases", "expected", "target", "sim-v73", "2.51.0"] == 1
    assert values["cases", "failed", "target", "sim-v73", "2.51.0"] == 1
    assert values["case_duration_seconds", "sim-v73", "context_count", "max"] == 3.0
    assert values["retried_cases", "sim-v73"] == 1
    assert values["device_events", "sim-v73", "reboot"] == 1
    assert ("device_events", "sim-v73", "push") not in values
    assert values["device_pushed_bytes", "sim-v73"] == 1000
    assert values["device_push_seconds", "sim-v73"] == 4.0
    assert values["device_temperature_celsius", "sim-v73"] == 30  # what was told last
    assert text.endswith("# EOF\n")
    assert {family.type for family in text_string_to_metric_families(text)} == {"gauge"}


@pytest.mark.parametrize(
    ("finished", "seconds"),
    [
        ("2026-11-21T06:10:00.250Z", 600.25),
        (None, 6.41),  # it was cut short
        ("2026-11-21T05:00:00Z", 6.41),
        ("soon", 6.41),
        (10**9, 6.41),
    ],
)
def test_a_run_took_as_long_as_its_run_json_says(finished: object, seconds: float) -> None:
    records = [record(), record(case="b", started=datetime(2026, 11, 21, 6, 0, 6, tzinfo=UTC))]
    info = {"started": "2026-11-21T06:00:00.000Z", "finished": finished}
    values = samples(text_of(records, [], info))
    assert values["run_duration_seconds",] == seconds
    ended = values["run_end_seconds",] - datetime(2026, 11, 21, 6, tzinfo=UTC).timestamp()
    assert ended == pytest.approx(seconds, abs=0.01)


def test_labels_are_bounded_and_the_rest_is_summed_up() -> None:
    records = [record(case=str(n), device=DEVICE | {"name": f"d{n:03}"}) for n in range(120)]
    heat = [WELL.model_copy(update={"device": f"d{n:03}"}) for n in range(120)]
    values = samples(text_of(records, heat))
    cases = {key: value for key, value in values.items() if key[0] == "cases"}
    assert len(cases) == 51
    assert cases["cases", "passed", "none", "other", "2.51.0"] == 70
    assert sum(cases.values()) == 120
    temperatures = [key for key in values if key[0] == "device_temperature_celsius"]
    assert len(temperatures) == 50, "no temperature is a sum"


def test_names_of_devices_are_labels_whatever_they_hold() -> None:
    name = f'a"b\\n\n{CANARY}' + "x" * 10_000_000
    text = text_of([record(device=DEVICE | {"name": name})], [])
    assert len(text) < 20_000
    assert all(line.isprintable() for line in text.splitlines())
    ((_, _, _, label, _),) = [key for key in samples(text) if key[0] == "cases"]
    assert label.startswith('a"b\\n \\x1b]0;')
