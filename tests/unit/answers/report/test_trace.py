"""trace.json: the structure that Chrome's trace format asks for, and where its times come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harness.answers.report.trace import trace_of
from harness.verdict.results.coverage import coverage_of
from harness.verdict.results.record import CaseRecord, DeviceEvent
from tests.integration.hostile_words import CANARY
from tests.stand_in.events import event_lines
from tests.unit.verdict.results.records import record

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)
EPOCH_US = round(BEGAN.timestamp() * 1e6)
AT = {"run": "r", "device": "sim-v73", "started": BEGAN, "duration_s": 2.0}
PUSH = DeviceEvent(event="push", state="good", detail="QNN 2.51.0", pushed_bytes=500, **AT)
HOT = DeviceEvent(event="health", state="suspect", vitals={"hottest_c": 71.5}, **AT)
LOG = "logs/x/probe.jsonl"


def traced(made: Sequence[CaseRecord], events: Sequence[DeviceEvent], read: Any) -> dict[str, Any]:
    return trace_of(made, events, coverage_of(made), read)


def ran(**changed: Any) -> CaseRecord:
    later = BEGAN.replace(second=5)
    return record(started=later, duration_s=1.0, logs=(LOG,), **changed)


def probe_log(start_us: int) -> bytes:
    return event_lines(
        [
            {"event": "start", "time_us": start_us},
            {"event": "begin", "step": 0, "verb": "load", "api": "dlopen", "t_us": 10},
            {"event": "end", "step": 0, "code": 0, "rss_after_bytes": 4096, "t_us": 60},
            {"event": "begin", "step": 1, "verb": "execute", "t_us": 70},
        ]
    )


def well_formed(trace: dict[str, Any]) -> list[dict[str, Any]]:
    events = trace["traceEvents"]
    assert json.loads(json.dumps(trace)) == trace
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    for one in events:
        assert one["ph"] in ("M", "X", "C")
        assert isinstance(one["ts"], int)
        assert isinstance(one["args"], dict)
        if one["ph"] == "X":
            assert one["dur"] >= 0
            assert (one["pid"], one["tid"]) in named
        if one["ph"] == "C":
            assert all(isinstance(value, int | float) for value in one["args"].values())
    return [one for one in events if one["ph"] != "M"]


def test_a_device_is_a_process_with_cases_steps_pushes_and_counters() -> None:
    told = probe_log(EPOCH_US + 5_200_000)
    found = {one["name"]: one for one in well_formed(traced([ran()], [PUSH, HOT], {LOG: told}.get))}
    assert found["QNN 2.51.0"]["args"]["bytes"] == 500
    assert (found["QNN 2.51.0"]["ts"], found["QNN 2.51.0"]["dur"]) == (0, 2_000_000)
    assert found["temperature"]["args"] == {"celsius": 71.5}
    assert found["test_contexts[66-resident] (passed)"]["ts"] == 5_000_000
    assert (found["load"]["ts"], found["load"]["dur"]) == (5_200_010, 50)
    assert found["memory of steps"]["args"] == {"rss_bytes": 4096}
    last = found["execute (did not end)"]
    assert last["ts"] + last["dur"] == 6_000_000, "as long as its case"


def test_a_device_whose_clock_is_wrong_is_told_by_the_cases_time() -> None:
    told = probe_log(86_400_000_000)
    found = {one["name"]: one for one in well_formed(traced([ran()], [PUSH], {LOG: told}.get))}
    assert found["load"]["ts"] == 5_000_010


def test_processes_beside_each_other_have_a_thread_each() -> None:
    logs = {LOG: probe_log(EPOCH_US + 5_000_000), "b.jsonl": probe_log(EPOCH_US + 5_100_000)}
    case = ran().model_copy(update={"logs": tuple(logs)})
    found = well_formed(traced([case], [PUSH], logs.get))
    assert {one["tid"]: one["ts"] for one in found if one["name"] == "load"} == {
        4: 5_000_010,
        5: 5_100_010,
    }


def test_an_empty_run_is_a_trace() -> None:
    assert well_formed(traced([], [], {}.get)) == []


def test_logs_can_hold_anything() -> None:
    nasty = [
        b"",
        b"{" * 100_000,
        b'{"event":"begin","step":{},"verb":[1],"t_us":-5}\n',
        b'{"event":"begin","step":0,"t_us":1e400}\n{"event":"end","step":0,"t_us":true}\n',
        f'{{"event":"begin","step":0,"verb":"{"x" * 1_000_000}","t_us":5}}\n'.encode(),
        b'{"event":"start","time_us":99999999999999999999999}\n\xff\xfe\n[]\n',
    ]
    for log in nasty:
        for one in well_formed(traced([ran()], [], {LOG: log}.get)):
            assert len(json.dumps(one)) < 10_000


def test_no_word_of_a_device_is_more_than_text() -> None:
    said = PUSH.model_copy(update={"detail": CANARY, "device": CANARY})
    text = json.dumps(traced([], [said], {}.get), ensure_ascii=False)
    assert text.replace("\xa0", " ").isprintable()


def test_profiled_ops_take_their_part_of_the_accelerators_time() -> None:
    ops = [
        {"op": "a", "source": "n", "cycles": 30, "share": 0.75},
        {"op": "b", "source": None, "cycles": 10, "share": 0.25},
        {"op": "c", "us": 7, "share": 0.0},
        {"op": "<b>", "share": "x"},
        3,
    ]
    said = [
        {"name": "QNN (execute) time", "unit": "us", "value": 99},
        {"name": "Accelerator (execute) time", "unit": "us", "value": 40},
    ]
    made = ran(measurements={"profile": {"ops": ops, "events": said}})
    found = [one for one in well_formed(traced([made], [], lambda _: None)) if one["cat"] == "ops"]
    assert [(one["name"], one["ts"], one["dur"]) for one in found] == [
        ("a", 0, 30),
        ("b", 30, 10),
        ("c", 40, 7),
        ("<b>", 47, 0),
    ]
    assert found[0]["args"] == {"source": "n", "cycles": 30, "share": 0.75}
