"""Faults through the plug-in as a user runs it: in the middle of a case, and from the start.

A device that cannot be reached is the lab's fault, and the others' cases run. The runs of both
mostly wait, and do so side by side because one file holds their tests.
"""

import re
from collections import Counter
from concurrent.futures import Future
from typing import Any

import pytest

from harness.results.journal import read_journal
from tests.faults.conftest import NEEDS_REAL, daemon_parameters
from tests.faults.table import ALL, ANDROID, ANDROID_TAKES, BOTH, CASES, REAL, UNREACHABLE, Fault
from tests.integration.device_runs import Finished
from tests.integration.transport.adb.remote import SLACK_S

Runs = dict[str, Future[Finished]]
SLOW = ("probe_endless_loop", "probe_stopped", "probe_endless_stderr", "link_stalled")
"""By night: each mostly waits for a deadline, as others do that are met by day."""
ON_ANDROID_BY_DAY = ("probe_sigsegv", "device_gone_during", "work_folder_removed")
ONE_DEVICE_OF_ITS_OWN = ("storage_full_at_push", "storage_full_at_run", "storage_read_only")


def rows(part: str) -> list[Any]:
    rows_ = []
    for fault in CASES:
        if part == "next" and fault.name in ONE_DEVICE_OF_ITS_OWN:
            continue
        by_night = BOTH if fault.name in SLOW else (REAL,)
        by_night += () if fault.name in ON_ANDROID_BY_DAY else (ANDROID,)
        for parameter in daemon_parameters(fault.daemons, fault, by_night=by_night):
            marks = [*parameter.marks]
            if fault.name == "server_of_another_version":
                marks.append(pytest.mark.needs("QNN_HARNESS_ADB29"))
            rows_.append(pytest.param(*parameter.values, marks=marks, id=parameter.id))
    return rows_


def record(completed: Finished, fault: Fault, part: str) -> dict[str, Any]:
    records = [
        case
        for case in completed.cases
        if case["axes"]["fault"] == fault.name and case["axes"].get("part", "fault") == part
    ]
    assert records, completed.output[-3000:]
    # What the fault itself came to, before the case was tried again; and how the next one ended.
    return records[0] if part == "fault" else records[-1]


@pytest.mark.slow
@NEEDS_REAL
@pytest.mark.parametrize(("daemon", "fault"), rows("fault"))
def test_what_the_fault_comes_to(runs: Runs, daemon: str, fault: Fault) -> None:
    case = record(runs[daemon].result(), fault, "fault")
    message = (case["error"] or {}).get("message", "")
    assert (case["outcome"], case["cause"]) == (fault.outcome, fault.cause), message
    most_s = fault.deadline_s * (ANDROID_TAKES if daemon == ANDROID else 1) + SLACK_S
    assert case["duration_s"] < most_s
    assert re.search(fault.said, message, re.DOTALL), message


@pytest.mark.slow
@NEEDS_REAL
@pytest.mark.parametrize(("daemon", "fault"), rows("next"))
def test_the_next_case_runs_and_finds_nothing_left(runs: Runs, daemon: str, fault: Fault) -> None:
    case = record(runs[daemon].result(), fault, "next")
    assert case["outcome"] == "passed", case["error"]
    assert case["measurements"]["left"] == []


@pytest.mark.slow
@NEEDS_REAL
@pytest.mark.parametrize("daemon", daemon_parameters(ALL, by_night=(REAL,)))
def test_the_journal_is_whole(runs: Runs, daemon: str) -> None:
    completed = runs[daemon].result()
    contents = read_journal(completed.folder / "latest/results.jsonl")
    assert contents.damage == ()
    counts = Counter(
        str(record.axes["fault"]) for record in contents.records if record.attempt == 1
    )
    for name, times in counts.items():
        assert times == (1 if name in ONE_DEVICE_OF_ITS_OWN else 2)
    assert (completed.folder / "latest/junit.xml").exists()
    assert (completed.folder / "latest/report.html").exists()
    assert "INTERNALERROR" not in completed.output


@pytest.mark.slow
@pytest.mark.parametrize("fault", UNREACHABLE, ids=str)
def test_a_device_out_of_reach(runs: Runs, fault: Fault) -> None:
    completed = runs["unreachable"].result()
    (case,) = (case for case in completed.cases if case["device"]["name"] == fault.name)
    message = (case["error"] or {}).get("message", "")
    assert (case["outcome"], case["cause"]) == (fault.outcome, fault.cause), message
    assert re.search(fault.said, message), message
    assert case["duration_s"] < fault.deadline_s + SLACK_S


@pytest.mark.slow
def test_the_others_run_and_the_journal_is_whole(runs: Runs) -> None:
    completed = runs["unreachable"].result()
    (case,) = [case for case in completed.cases if case["device"]["name"] == "fine"]
    assert case["outcome"] == "passed", case["error"]
    assert read_journal(completed.folder / "latest/results.jsonl").damage == ()
    assert len({case["device"]["name"] for case in completed.cases}) == len(UNREACHABLE) + 1
    assert completed.code == 3, completed.output
