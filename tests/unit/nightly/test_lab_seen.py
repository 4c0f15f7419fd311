"""The state of the lab at night, from `devices --json`, and the cases not tested."""

from __future__ import annotations

from typing import Any

import pytest

from harness.nightly.night import (
    DeviceSeen,
    lab_lines,
    lost_by_device,
    lost_devices,
    read_devices,
)
from harness.results.record import CaseRecord, PlacementRecord
from tests.unit.history.runs import attempt

GONE = {"since": "2026-11-20T01:00:00Z", "why": "it does not answer", "until": "answers"}
SICK = {"since": "2026-11-21T01:00:00Z", "why": "three cases in a row", "until": "healed"}


def row(name: str, **text: Any) -> dict[str, Any]:
    row = {"name": name, "enabled": True, "state": "device", "health": "good", "findings": []}
    return row | {"problem": None, "quarantine": None} | text


@pytest.mark.parametrize(
    ("text", "state", "why"),
    [
        ({}, "good", ""),
        ({"findings": ["its GPU only prepares"]}, "good", ""),
        (
            {"health": "suspect", "findings": ["hot has 95.0 C", "full"]},
            "suspect",
            "hot has 95.0 C; full",
        ),
        ({"health": "bad", "findings": ["its battery has 9 %"]}, "bad", "its battery has 9 %"),
        ({"health": "quarantine", "quarantine": SICK}, "quarantine", "three cases in a row"),
        ({"health": "bad", "problem": "device offline"}, "away", "device offline"),
        ({"health": None, "state": "leased"}, "in use", ""),
        ({"health": None, "problem": "no folder"}, "away", "no folder"),
    ],
)
def test_how_a_device_was(text: dict[str, Any], state: str, why: str) -> None:
    (devices,) = read_devices({"devices": [row("a", **text), row("b", enabled=False)]}, (), "now")
    assert (devices.device, devices.state, devices.why) == ("a", state, why)
    assert devices.since == (text["quarantine"]["since"] if text.get("quarantine") else "now")


def test_since_when_it_is_so_is_known_from_the_nights_before() -> None:
    before = [DeviceSeen(device=name, state="away", since="earlier") for name in "abc"]
    now = [row("a", health=None, problem="x"), row("b"), row("c", problem="y", quarantine=GONE)]
    devices = read_devices({"devices": now}, before, "now")
    assert [device.since for device in devices] == ["earlier", "now", GONE["since"]]
    assert read_devices(None, before, "now") == read_devices([], (), "now") == ()


def placed(text: str, device: str, soc: str = "SM8650", **changed: Any) -> CaseRecord:
    name = text.split()[0]
    record = attempt(text, device=device, case=f"test_a.py::test_b[{device}-{name}]")
    where = {"device": device, "engine": "qnn", "backend": "htp", "qnn": "2.51.0"}
    placement = PlacementRecord(**{"ort": None, "compiler": None} | where | changed)
    assert record.device is not None
    shown = record.device.model_copy(update={"soc": soc})
    return record.model_copy(
        update={"placement": placement, "test": f"test_a.py::test_b[{name}]", "device": shown}
    )


def test_what_the_lab_lost_is_counted_for_each_device() -> None:
    records = [
        *(placed(f"{name} error", "phone-2") for name in "abc"),
        placed("a passed", "phone-1"),
        placed("c error", "phone-1"),
        *(placed(f"{name} error", "phone-3") for name in "abcd"),
    ]
    assert [*lost_by_device(records).items()] == [("phone-3", 4), ("phone-2", 3), ("phone-1", 1)]


def test_what_is_told_of_the_lab() -> None:
    text = [row("a"), row("b", problem="device offline"), row("c"), row("d", health="suspect")]
    begin = read_devices({"devices": text}, (), "2026-11-26T22:00:00+00:00")
    later = [
        row("a"),
        row("b"),
        row("c", health="bad", findings=["hot"]),
        row("d", health="suspect"),
    ]
    end = read_devices({"devices": later}, begin, "2026-11-27T02:00:00+00:00")
    assert list(lab_lines(begin, {})) == [
        "Lab: 3 of 4 devices there.",
        "- `b`: away since 2026-11-26T22:00 (`device offline`)",
        "- `d`: suspect since 2026-11-26T22:00",
    ]
    assert list(lab_lines(end, {"b": 5, "c": 1})) == [
        "Lab: 3 of 4 devices there; 2 devices did not test all cases.",
        "- `b`: 5 cases not tested there",
        "- `c`: bad since 2026-11-27T02:00 (`hot`); 1 case not tested there",
        "- `d`: suspect since 2026-11-26T22:00",
    ]
    assert list(lab_lines((), {})) == []
    assert list(lab_lines((), {"z": 2})) == ["- `z`: 2 cases not tested there"]


def test_which_hosts_were_there_and_since_when_not() -> None:
    far, near = {"host": "lab-pc"}, {"host": "bench"}
    missing = {"problem": "no route", "host_lost": True}
    text = [row("a", **far, **missing), row("b", **far, **missing), row("c", **near), row("d")]
    begin = read_devices({"devices": text}, (), "2026-11-26T22:00:00+00:00")
    lines = [*lab_lines(begin, {})]
    assert lines[0] == "Lab: 2 of 4 devices there, 1 of 2 other hosts."
    assert lines[1] == "- host `lab-pc`: out of reach since 2026-11-26T22:00"
    assert lines[2:] == ["- `a`, `b`: away since 2026-11-26T22:00 (`no route`)"]
    later = [row("a", **far), row("b", **far), row("c", **near, **missing), row("d")]
    end = read_devices({"devices": later}, begin, "2026-11-27T02:00:00+00:00")
    assert [*lab_lines(end, {})][1] == "- host `bench`: out of reach since 2026-11-27T02:00"
    same = read_devices({"devices": text}, begin, "2026-11-27T02:00:00+00:00")
    assert [*lab_lines(same, {})][1] == lines[1]


def test_what_one_adb_server_lost_is_one_line_that_names_all_its_devices() -> None:
    refused, silent = "no adb server at pc:5037: refused", "adb server at pc:5037 does not answer"
    dead = {"a": refused, "b": f"it does not answer: {refused}", "c": silent}
    rows = [row(name, problem=why) for name, why in dead.items()]
    rows += [row("d", problem="no adb server at pc:5038: refused"), row("e", problem="offline")]
    begin = read_devices({"devices": rows}, (), "2026-11-26T22:00:00+00:00")
    assert list(lab_lines(begin, {"c": 2, "b": 3, "d": 1}))[1:] == [
        f"- `a`, `b`, `c`: away since 2026-11-26T22:00 (`{refused}`); 5 cases not tested there",
        "- `d`: away since 2026-11-26T22:00 (`no adb server at pc:5038: refused`); "
        "1 case not tested there",
        "- `e`: away since 2026-11-26T22:00 (`offline`)",
    ]
    back = read_devices({"devices": [row("a"), *rows[1:]]}, begin, "2026-11-27T02:00:00+00:00")
    subjects = [line.partition(": ")[0] for line in lab_lines(back, {})]
    assert subjects == ["Lab", "- `b`, `c`", "- `d`", "- `e`"]


def test_a_headline_names_the_devices_on_which_most_was_lost() -> None:
    lost = {"e": 4, "d": 3, "c": 2, "b": 1, "a": 1}
    assert lost_devices(lost) == ": `e` (4), `d` (3), `c` (2), 2 more"
    assert lost_devices({"a": 1}) == ": `a` (1)"
    assert lost_devices({}) == ""


def test_what_no_device_is_to_blame_for_names_none() -> None:
    broken = placed("a error", "phone-1")
    assert broken.standing == "lab"
    assert lost_by_device([broken.model_copy(update={"cause": "config"})]) == {}


@pytest.mark.parametrize(
    ("simulated", "text"),
    [
        ((False,), "Lab: 1 of 1 device there."),
        ((True,), "Lab: 1 of 1 device there. Simulated: 1."),
        ((True, False), "Lab: 2 of 2 devices there. Simulated: 1."),
        ((True, True), "Lab: 2 of 2 devices there. Simulated: 2."),
    ],
)
def test_what_is_simulated_is_told(simulated: tuple[bool, ...], text: str) -> None:
    rows = [
        {"name": str(number), "enabled": True, "health": "good", "simulated": is_simulated}
        for number, is_simulated in enumerate(simulated)
    ]
    devices = read_devices({"devices": rows}, (), "now")
    assert list(lab_lines(devices, {})) == [text]
