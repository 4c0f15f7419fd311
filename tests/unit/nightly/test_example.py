"""The example of a cause for a tracker: case, log, the command that runs it again."""

from __future__ import annotations

import shlex
from typing import Any

from harness.diagnosis.error import ChainLink, ErrorRecord
from harness.nightly.issues import (
    example_lines,
    example_of,
)
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
    record = ran("a failed", "one", "SM8650", duration_s=5, error=error)
    example = example_of(record, run="r", lab="my lab.yaml")
    assert example.device == "one"
    assert example.ran == (
        *("device one (SM8650, android-arm64)", "OS A14 one", "QNN 2.51.0, build 2.51.0.9"),
        "contexts by QNN 2.47.0",
    )
    assert example.log == ("log: NO_PD no room for `it`", "call: 0x3ea failed")
    assert (example.logs, example.bundle) == ("reports/r/logs/a", None)
    lines = list(example_lines(example))
    (line,) = (line for line in lines if line.startswith("- to reproduce: `"))
    assert shlex.split(line.partition("`")[2].rpartition("`")[0]) == list(example.command)
    assert example.command == (
        *("pytest", "-m", "device", "suites/test_a.py::test_b", "--qnn-only-case", record.case),
        *("--qnn-device", "one", "--qnn-backend", "htp"),
        *("--qnn-version", "2.51.0", "--qnn-compiler", "2.47.0", "--qnn-lab=my lab.yaml"),
    )
    ids = {"run": "r", "lab": "l", "reports": "/my nights"}
    assert example_of(record, **ids).logs == "/my nights/r/logs/a"
    elsewhere = example.model_copy(update={"folder": "/a farm"})
    assert "- to reproduce, in `/a farm`: `pytest " in "\n".join(example_lines(elsewhere))
    assert "  - `` log: NO_PD no room for `it` ``" in lines, "nothing in it is more than text"


def test_a_case_of_a_file_is_packed_and_one_that_says_nothing_has_nothing() -> None:
    files = {"m": {"bytes": 7}, "n": {"bytes": 5}}
    record = ran("a failed", "one", "SM8650", measurements={"context_files": files})
    assert example_of(record, run="r", lab="l").bundle is None
    record = record.model_copy(update={"case": "m.bin::test_contexts[one-m.bin]"})
    example = example_of(record, run="r", lab="l")
    assert example.bundle is not None
    assert example.bundle[3:] == (record.case, "--run", "reports/r")
    other = example_of(record, run="r", lab="l", reports="mine")
    assert other.bundle == (*example.bundle[:-1], "mine/r")
    assert list(example_lines(example))[-1].startswith(
        "- packed for others by: `qnn-harness contexts"
    )
    bare = attempt("a failed", error=None).model_copy(update={"placement": None, "logs": ()})
    dumb = example_of(bare.model_copy(update={"device": None}), run="r", lab="l")
    assert (dumb.ran, dumb.log, dumb.device, dumb.logs) == ((), (), None, None)
    assert next(iter(example_lines(dumb))) == "- seen on: nothing"
