"""Several processes in one log: each failure has its own cause, and time tells what is near."""

from __future__ import annotations

import io
from itertools import groupby, permutations

import pytest

from harness.diagnosis.any_log import read_log
from harness.diagnosis.explanation import Explained, explain

SKEL = "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406, prio 100"
OPENED = "apps_std_imp.c:1088: Successfully opened file /data/local/tmp/libQnnHtpV79Skel.so"
NO_SKEL = "QnnDsp <E> fopen failed for libQnnHtpV79Skel.so (No such file)"
VTCM = "QnnDsp <E> Request feature vtcm size with value 8388608 unsupported"
CRASH = "remoteproc remoteproc1: crash detected in cdsp: type fatal error"
UNSUPPORTED = "QnnDsp <E> QnnBackend_validateOpConfig failed 3110"
XNNPACK = "Replacing 42 out of 42 node(s) with delegate (TfLiteXNNPackDelegate) node"
PD = "QnnDsp <E> Failed to find available PD for contextId 56"
CREATED = "QnnDsp <E> QnnContext_createFromBinary returned 5005"


def logcat(*lines: tuple[int, str, str]) -> list[tuple[str, int | None]]:
    return [(line.id, line.process) for line in causes(*lines)]


def causes(*lines: tuple[int, str, str]) -> tuple[Explained, ...]:
    """Explain lines of logcat: each with its process, its time and its text."""
    text = "\n".join(
        f"12-07 {time} {pid:5} {pid:5} E tag : {message}" for pid, time, message in lines
    )
    return explain(read_log(io.BytesIO(text.encode())).lines).diagnoses


def test_what_another_process_did_rightly_excuses_nothing() -> None:
    causes = logcat((10, "04:15:01.000", NO_SKEL), (11, "04:15:02.000", f"QnnDsp {OPENED}"))
    assert causes == [("skel-not-found", 10)]
    together = logcat((10, "04:15:01.000", NO_SKEL), (10, "04:15:02.000", f"QnnDsp {OPENED}"))
    assert together == []


def test_two_processes_fail_each_of_its_own_cause() -> None:
    causes = logcat((10, "04:15:01.000", SKEL), (11, "04:15:01.100", VTCM))
    assert causes == [("other-vtcm-size", 11), ("skel-not-found", 10)]


def test_the_same_line_of_two_processes_is_kept_for_both() -> None:
    lines = ((10, "04:15:01.000", SKEL), (11, "04:15:01.100", SKEL), (11, "04:15:01.200", VTCM))
    expected = [("other-vtcm-size", 11), ("skel-not-found", 11), ("skel-not-found", 10)]
    assert logcat(*lines) == expected
    assert [line.number for line in causes(*lines)[1].lines] == [2]


def test_a_crash_of_the_dsp_counts_near_the_failure() -> None:
    near = logcat((0, "04:14:50.000", CRASH), (10, "04:15:01.000", UNSUPPORTED))
    assert near[0] == ("dsp-restarted", 10)
    far = logcat((0, "02:14:50.000", CRASH), (10, "04:15:01.000", UNSUPPORTED))
    assert far == [("op-unsupported", 10), ("dsp-restarted", None)]


def test_a_crash_of_the_dsp_is_one_failure_of_all_its_processes() -> None:
    crashed = (0, "04:14:50.000", CRASH)
    alike = ((pid, "04:15:01.000", f"QnnDsp <I> session {pid}") for pid in (10, 11, 12))
    assert logcat(crashed, *alike) == [("dsp-restarted", 10)]
    # what else another process says stands below the crash, which is told once
    two = causes(crashed, (10, "04:15:01.000", UNSUPPORTED), (11, "04:15:01.000", CREATED))
    assert [(cause.id, cause.process, cause.failure) for cause in two] == [
        ("dsp-restarted", 10, 1),
        ("op-unsupported", 10, 1),
        ("context-refused", 11, 1),
    ]


def failures(*lines: tuple[int, str, str]) -> list[list[str]]:
    """The causes of each failure, the answer first."""
    return [
        [cause.id for cause in some]
        for _, some in groupby(causes(*lines), lambda cause: cause.failure)
    ]


@pytest.mark.parametrize("later", ["04:16:02.100", "05:15:00.000"])
def test_what_a_process_says_long_after_a_failure_is_another_one(later: str) -> None:
    first = ((10, "04:15:01.000", SKEL), (10, "04:15:02.000", UNSUPPORTED))
    assert failures(*first, (10, later, PD)) == [
        ["pd-exhausted"],
        ["skel-not-found", "op-unsupported"],
    ]
    # at once it is one failure, and so is what a process says again and again
    assert failures(*first, (10, "04:15:03.000", PD)) == [
        ["pd-exhausted", "skel-not-found", "op-unsupported"]
    ]
    assert failures(*first, (10, later, SKEL), (10, later, UNSUPPORTED)) == [
        ["skel-not-found", "op-unsupported"]
    ]


def test_a_number_long_after_a_failure_follows_from_it() -> None:
    last = (10, "05:15:00.000", "QnnDsp <E> QnnGraph_execute returned 6001")
    assert failures((10, "04:15:01.000", PD), last) == [["pd-exhausted", "stale-handle"]]


def test_failures_of_a_log_without_processes_are_told_apart_by_its_times() -> None:
    text = f"2026-12-07 04:15:01.000 {SKEL}\n2026-12-07 06:15:01.000 {PD}\n"
    causes = explain(read_log(io.BytesIO(text.encode())).lines).diagnoses
    assert [(entry.id, entry.failure) for entry in causes] == [
        ("pd-exhausted", 1),
        ("skel-not-found", 2),
    ]


def test_a_number_of_a_process_that_says_nothing_of_ours_counts_for_nothing() -> None:
    lines = ((10, "04:15:01.000", CREATED), (44, "04:15:01.000", "error 1002 while scanning"))
    assert {id for id, _ in logcat(*lines)} == {"context-refused"}
    lines_of_process = (
        (10, "04:15:01.000", CREATED),
        (10, "04:15:01.000", "error 1002 while loading"),
    )
    assert {id for id, _ in logcat(*lines_of_process)} >= {"context-refused", "no-memory"}


def test_of_what_lines_suggest_the_first_of_a_process_is_the_cause() -> None:
    """By the time that they have, in whatever order they stand."""
    causes = {UNSUPPORTED: "op-unsupported", SKEL: "skel-not-found"}
    for first, second in permutations(causes):
        lines = ((10, "04:15:01.000", first), (10, "04:15:02.000", second))
        for text in (lines, lines[::-1]):
            assert [id for id, _ in logcat(*text)][:2] == [causes[first], causes[second]]


def test_what_any_program_says_of_its_cpu_is_a_cause_where_it_wants_the_npu_only() -> None:
    assert logcat((10, "04:15:01.000", XNNPACK)) == []
    two = logcat((10, "04:15:01.000", XNNPACK), (11, "04:15:01.100", "litert: using NPU"))
    assert two == []
    expected = ((10, "04:15:01.000", XNNPACK), (10, "04:15:01.100", "litert: using NPU"))
    assert logcat(*expected) == [("cpu-fallback", 10)]


def test_what_another_process_lacks_is_no_cause_of_a_failure() -> None:
    lines = (
        (10, "04:15:01.000", 'dlopen failed: library "libQnnSystem.so" not found'),
        (11, "04:15:01.100", "QnnDsp <E> Failed to create context from binary with err 0x138d"),
    )
    assert [(line.id, line.process, line.failure) for line in causes(*lines)] == [
        ("backend-not-loaded", 10, 1),
        ("context-refused", 11, 2),
    ]


def test_clients_beyond_those_that_are_told_are_no_cause_of_others() -> None:
    alike = [(pid, "04:15:01.000", f"QnnDsp <I> session {pid}") for pid in range(10, 14)]
    causes = logcat(*alike, (14, "04:15:01.100", VTCM))
    assert causes == [("other-vtcm-size", None)]


@pytest.mark.parametrize(("between", "count"), [(50, 1), (200, 2)])
def test_of_a_log_without_times_its_lines_tell_failures_apart(between: int, count: int) -> None:
    text = f"{SKEL}\n{'fine' * between}\n".replace("fine", "fine\n") + PD
    causes = explain(read_log(io.BytesIO(text.encode())).lines).diagnoses
    assert len({entry.failure for entry in causes if entry.confidence != "possible"}) == count
