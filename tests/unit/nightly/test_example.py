"""The example of a cause for a tracker: case, log, places, the command that runs it again."""

from __future__ import annotations

import shlex
from typing import Any

from harness.diagnosis.error import ChainLink, ErrorRecord
from harness.nightly.issues import (
    PlaceTried,
    example_lines,
    example_of,
    grid,
)
from harness.report.document import markdown
from harness.results.record import CaseRecord, PlacementRecord, RuntimeRecord
from tests.unit.history.runs import attempt

WHERE = {"engine": "qnn", "backend": "htp", "ort": None, "compiler": "2.47.0"}
CHAIN = (
    ChainLink(code=1002, symbol="NO_PD", message="no room\nfor `it`", source="log"),
    ChainLink(code=1002, hex="0x3ea", message="failed", source="call"),
)


def ran(text: str, device: str, soc: str, qnn: str = "2.51.0", **changed: Any) -> CaseRecord:
    name = text.split()[0]
    record = attempt(
        text, qnn=qnn, device=device, test=f"suites/test_a.py::test_b[{name}]", **changed
    )
    assert record.device is not None
    more = {"soc": soc, "simulated": False, "target": "android-arm64", "os_build": f"A14 {device}"}
    return record.model_copy(
        update={
            "device": record.device.model_validate(record.device.model_dump() | more),
            "placement": PlacementRecord(device=device, qnn=qnn, **WHERE),
            "runtime": RuntimeRecord(
                qnn=qnn, build_id=f"{qnn}.9", source="sdk", contexts_by="2.47.0"
            ),
            "logs": (f"logs/{name}/probe.plan",),
        }
    )


def test_all_that_a_tracker_asks_for_is_there() -> None:
    error = ErrorRecord.of(message="failed", api="call", code=1002, chain=CHAIN)
    records = [
        ran("a failed", "one", "SM8650", duration_s=5, error=error),
        ran("b failed", "one", "SM8650", duration_s=9, error=error),
        ran("a passed", "two", "SM8550"),
        ran("b failed message=else", "two", "SM8550"),
        ran("a passed", "one", "SM8650", qnn="2.50.0"),
        ran("c passed", "one", "SM8650"),
        ran("b error", "three", "SM8750"),
    ]
    named = {record.case: record for record in records}
    example = example_of(
        records[0], [records[0].case, records[1].case], named, run="r", lab="my lab.yaml"
    )
    assert example.ran == (
        *("device one (SM8650, android-arm64)", "OS A14 one", "QNN 2.51.0, build 2.51.0.9"),
        "contexts by QNN 2.47.0",
    )
    assert example.log == ("log: NO_PD no room for `it`", "call: 0x3ea failed")
    observed = [
        (place.device, place.kind, place.versions, place.failed, place.tested)
        for place in example.places
    ]
    assert observed == [
        ("one", "SM8650", "qnn 2.51.0", 2, 2),
        ("one", "SM8650", "qnn 2.50.0", 0, 1),
        ("two", "SM8550", "qnn 2.51.0", 0, 2),
    ]
    assert (example.logs, example.bundle) == ("reports/r/logs/a", None)
    lines = list(example_lines(example))
    (line,) = (line for line in lines if line.startswith("- to reproduce: `"))
    assert shlex.split(line.partition("`")[2].rpartition("`")[0]) == list(example.command)
    assert example.command == (
        *("pytest", "-m", "device", "suites/test_a.py::test_b", "--qnn-only-case", records[0].case),
        *("--qnn-device", "one", "--qnn-backend", "htp"),
        *("--qnn-version", "2.51.0", "--qnn-compiler", "2.47.0", "--qnn-lab=my lab.yaml"),
    )
    ids = {"run": "r", "lab": "l", "reports": "/my nights"}
    assert example_of(records[0], [records[0].case], named, **ids).logs == "/my nights/r/logs/a"
    elsewhere = example.model_copy(update={"folder": "/a farm"})
    assert "- to reproduce, in `/a farm`: `pytest " in "\n".join(example_lines(elsewhere))
    assert "  - `` log: NO_PD no room for `it` ``" in lines, "nothing in it is more than text"


def test_a_device_that_was_lost_is_one_of_those_where_it_is() -> None:
    records = [
        ran("a error", "farm-02", "QCS8550"),
        ran("a passed", "farm-03", "QCS8550"),
        ran("a passed", "farm-01", "SM8650"),
    ]
    example = example_of(
        records[0], [records[0].case], {record.case: record for record in records}, run="r", lab="l"
    )
    assert {place.device: place.failed for place in example.places} == {
        "farm-02": 1,
        "farm-03": 0,
        "farm-01": 0,
    }


def test_a_device_that_fails_as_known_or_otherwise_is_not_well() -> None:
    records = [
        ran("a failed", "one", "S"),
        ran("a failed known=k", "two", "S"),
        ran("a failed message=other", "three", "S"),
        ran("a passed", "four", "S"),
    ]
    named = {f"{record.case}-{number}": record for number, record in enumerate(records)}
    named = {name: record.model_copy(update={"case": name}) for name, record in named.items()}
    first = next(iter(named.values()))
    places = example_of(first, [first.case], named, run="r", lab="l").places
    assert {place.device: (place.failed, place.tested, place.otherwise) for place in places} == {
        "one": (1, 1, 0),
        "two": (1, 1, 0),
        "three": (0, 1, 1),
        "four": (0, 1, 0),
    }
    marks = [row.split(" | ")[1] for row in markdown(grid(places)).strip().splitlines()[2:]]
    assert sorted(marks) == ["⚠️ 0 of 1, 1 otherwise |", "✅ 0 of 1 |", "❌ 1 of 1 |", "❌ 1 of 1 |"]


def test_a_case_of_a_file_is_packed_and_one_that_says_nothing_has_nothing() -> None:
    files = {"m": {"bytes": 7}, "n": {"bytes": 5}}
    record = ran("a failed", "one", "SM8650", measurements={"context_files": files})
    assert example_of(record, [record.case], {record.case: record}, run="r", lab="l").bundle is None
    record = record.model_copy(update={"case": "m.bin::test_contexts[one-m.bin]"})
    example = example_of(record, [record.case], {record.case: record}, run="r", lab="l")
    assert example.bundle is not None
    assert example.bundle[3:] == (record.case, "--run", "reports/r")
    other = example_of(
        record, [record.case], {record.case: record}, run="r", lab="l", reports="mine"
    )
    assert other.bundle == (*example.bundle[:-1], "mine/r")
    assert list(example_lines(example))[-1].startswith(
        "- packed for others by: `qnn-harness contexts"
    )
    bare = attempt("a failed", error=None).model_copy(update={"placement": None, "logs": ()})
    dumb = example_of(
        bare.model_copy(update={"device": None}),
        [bare.case],
        {bare.case: bare.model_copy(update={"device": None})},
        run="r",
        lab="l",
    )
    assert (dumb.ran, dumb.log, dumb.places, dumb.logs) == ((), (), (), None)
    assert next(iter(example_lines(dumb))) == "- seen on: nothing"


def place(device: str, kind: str, versions: str, failed: int, tested: int = 2) -> PlaceTried:
    return PlaceTried(device=device, kind=kind, versions=versions, failed=failed, tested=tested)


def test_where_it_fails_is_one_sentence_and_one_grid() -> None:
    new = [place(f"p{n}", "SM8750", "qnn 2.50.40", 2) for n in range(6)]
    old = [place(f"p{n}", "SM8750", "qnn 2.9.0", 0) for n in range(6)]
    others = [place("q|`x`", "SM8650", "qnn 2.50.40", 0), place("r", "V", "qnn 2.50.40", 1)]
    head, rule, *rows = markdown(grid([*new, *old, *others])).splitlines()
    assert (head, rule) == ("| fails | `qnn 2.9.0` | `qnn 2.50.40` |", "| --- | --- | --- |")
    assert rows[0] == "| `p0` (`SM8750`) | ✅ 0 of 2 | ❌ 2 of 2 |"
    assert rows[6] == "| `` q\\|`x` `` (`SM8650`) | - | ✅ 0 of 2 |"
    assert rows[7] == "| `r` (`V`) | - | ⚠️ 1 of 2 |"
    many = [place(f"d{n}", "K", "", 1) for n in range(50)]
    assert markdown(grid(many)).endswith(" |\n\nand 10 more devices\n\n")
    wide = [place("d", "K", f"qnn 2.{n}.0", 1) for n in range(50)]
    assert markdown(grid(wide)).splitlines()[0].split(" | ")[1::7] == [
        "`qnn 2.42.0`",
        "`qnn 2.49.0` |",
    ]
