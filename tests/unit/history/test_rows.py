"""Rows of devices, hosts and figures, made of a journal."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.history.attempts import Attempt
from harness.history.database import (
    CauseSummary,
    DeviceSums,
    NightSummary,
    bounded,
    hosts_in,
    load_nights,
    open_database,
    store_night,
)
from harness.history.importing import import_run, stored_attempts
from harness.history.timeline import Filter
from harness.lab.health import DeviceEvent
from harness.results.record import CaseRecord
from tests.unit.history.runs import attempt, run_folder
from tests.unit.results.records import record

HOT = {"hottest_c": 61.5, "battery_percent": 40, "free_storage_bytes": 9}
COOL = {"hottest_c": 30.0, "battery_percent": True, "free_storage_bytes": 1 << 70}


def event(kind: str, state: str = "good", **more: Any) -> DeviceEvent:
    fields = {"run": "r", "device": "sim", "started": record().started, "duration_s": 1.0}
    return DeviceEvent.model_validate({"event": kind, "state": state, **fields, **more})


def case(**more: Any) -> CaseRecord:
    return attempt("a passed", duration_s=2.0, **more)


def sums(*lines: CaseRecord | DeviceEvent, **hosts: str) -> list[dict[str, Any]]:
    device_sums = DeviceSums(hosts)
    for line in lines:
        device_sums.add(line)
    return list(device_sums.rows("r"))


def test_what_happened_to_a_device_is_summed_up() -> None:
    later = record().started + timedelta(seconds=8)
    (row,) = sums(
        event("health", vitals=HOT),
        case(measurements={"gate": COOL}),
        event("reconnect", "suspect", detail="the link broke"),
        event("reboot"),
        event("quarantine", "bad", detail="it is hot"),
        event("push", "suspect", detail="no word of health"),
        case(started=later),
        sim="rack-1",
    )
    counts = [row[name] for name in ("link_faults", "recoveries", "quarantines")]
    assert counts == [1, 2, 1]
    assert (row["busy_s"], row["span_s"]) == (4.0, 10.0)
    assert (row["hottest_c"], row["battery_percent"]) == (61.5, 40)
    assert row["free_storage_bytes"] == 9
    assert (row["state"], row["finding"], row["host"]) == ("bad", "it is hot", "rack-1")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, {}),
        ({"lab": {}, "host": {}}, {}),
        ({"lab": {"devices": [{"name": "a", "host": "h"}, {"name": "b"}]}}, {"a": "h"}),
        ({"host": {"name": "here"}, "lab": {"devices": []}}, {"": "here"}),
    ],
)
def test_on_which_computer_devices_hang(info: dict[str, Any], expected: dict[str, str]) -> None:
    assert hosts_in(info) == expected


def test_figures_are_read_from_the_database_as_from_the_journal(tmp_path: Path) -> None:
    measured = {"load_us": [3, 1, 2], "rss_bytes": {"start": 1, "peak": 7}, "execute_us": ["x"]}
    database = open_database(str(tmp_path / "h"))
    import_run(database, run_folder(tmp_path, case(measurements=measured), attempt("b passed")))
    stored = {
        attempt_read.test: attempt_read
        for _, _, attempt_read in stored_attempts(database, Filter())
    }
    expected = Attempt.of(case(measurements=measured))
    assert (
        stored[expected.test].figures == expected.figures == {"load_us": 2.0, "rss_bytes.peak": 7.0}
    )
    assert stored[attempt("b passed").test].figures == {}


def test_the_last_word_of_a_night_counts(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "h"))
    night = NightSummary(night="n", run="r", causes={"c": CauseSummary(known="\0")})
    store_night(database, night)
    store_night(database, night.model_copy(update={"warnings": ("late",)}))
    assert load_nights(database)["r"].warnings == ("late",)
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE nights SET summary = '{}'")
    assert load_nights(database) == {}


def test_texts_are_short_enough_for_an_index_and_still_differ() -> None:
    long, longer = "x" * 600, "x" * 601
    assert len(bounded(long)) < 501
    assert bounded(long) != bounded(longer)
    assert bounded("a\0b") == "a\ufffdb"
