"""Summary: totals, groups by signature, exit codes, bounded lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error import ChainLink
from harness.report.summary import (
    event_lines,
    preflight_lines,
    summary_lines,
)
from harness.results.coverage import coverage_of
from harness.results.record import CaseRecord, DeviceEvent, PreflightRecord
from tests.unit.results.records import error, final_attempts, record

EXPECTED = {"known_issue": "pd"}


def lines_of(records: Sequence[CaseRecord], report: str, **more: Any) -> list[str]:
    """Of a run that has these cases and no others."""
    return summary_lines(final_attempts(records), coverage_of(records), report, **more)


def test_what_strictness_fails_is_counted_in_the_first_line() -> None:
    fixed = {"known_issues": ("x",), "fails": True}
    lines = lines_of([record(fixed=fixed), record(case="s/test_b.py::test_c[d]")], "r")
    assert lines[0] == "2 of 2 cases have a verdict: 2 passed (1 of them failed by --strict-known)"


def test_each_wrong_file_has_a_line_of_its_own() -> None:
    records = [
        record(
            case=f"case{number}",
            outcome="error",
            cause="config",
            error=error(api=None, code=None, message=f"/here/{name}.bin: is none", symbol=None),
        )
        for number, name in enumerate(("one", "two", "two"))
    ]
    lines = lines_of(records, "r")[1:-1]
    assert [line.split("  [")[0] for line in lines] == [
        "   2 x ERROR, lost to a wrong test or input: /here/two.bin: is none",
        "   1 x ERROR, lost to a wrong test or input: /here/one.bin: is none",
    ]


def test_what_one_adb_server_lost_is_one_line() -> None:
    problem = "no adb server at localhost:5037: refused"
    records = [
        record(
            case=f"case{number}",
            outcome="error",
            cause="infra",
            error=error(api=None, code=None, message=text, symbol=None),
        )
        for number, text in enumerate(
            (f"a: {problem}", f"b is not used: {problem}; start it", "other")
        )
    ]
    lines = lines_of(records, "r")[1:-1]
    assert [line.split("lost to")[0] for line in lines] == ["   2 x ERROR, ", "   1 x ERROR, "]


def test_the_lines_say_what_happened() -> None:
    records = [
        record(case="a"),
        record(case="b", outcome="failed", expected=EXPECTED),
        record(case="c", outcome="failed", expected=EXPECTED),
        record(case="d", outcome="crashed", error=error(code=None, message="SIGSEGV 0x1f")),
        record(case="e", outcome="crashed", error=error(code=None, message="SIGSEGV 0x2e")),
        record(
            case="f",
            outcome="error",
            cause="infra",
            error=error(api=None, code=None, message="gone", symbol="device-lost"),
        ),
        record(
            case="g",
            outcome="unsupported",
            error=error(api="QnnMem_register", code=1000, message="no", symbol=None),
        ),
    ]
    assert lines_of(records, "reports/x") == [
        "5 of 7 cases have a verdict, 1 lost to the lab, 1 unsupported: 1 passed, 2 failed, "
        "2 expected",
        "   2 x CRASHED: QnnContext_createFromBinary QNN_COMMON_ERROR_MEM_ALLOC SIGSEGV 0x1f"
        "  [first: d]",
        "   1 x ERROR, lost to the lab: gone  [first: f]",
        "   2 x expected, pd: failed: QnnContext_createFromBinary 1002 QNN_COMMON_ERROR_MEM_ALLOC "
        "Failed to find available PD for contextId 56 on deviceId 0 coreId 0with context size "
        "estimate 74989568  [first: b]",
        "   1 x UNSUPPORTED: QnnMem_register 1000 QNN_COMMON_ERROR_NOT_SUPPORTED no  [first: g]",
        "report: reports/x",
    ]


def test_the_first_cause_stands_before_what_came_of_it() -> None:
    chain = tuple(
        ChainLink(message=text, code=code, source=source)
        for text, code, source in (
            ("libcdsprpc.so: cannot open", None, "log"),
            ("Failed to load skel", 4000, "log"),
            ("Invalid config", 14001, "call"),
        )
    )
    shown = error(code=14001, message="Failed to load skel", symbol=None, chain=chain)
    line = lines_of([record(case="x", outcome="failed", error=shown)], "r")[1]
    assert "libcdsprpc.so: cannot open -> Failed to load skel  [first: x]" in line
    same = error(message="libcdsprpc.so: cannot open", chain=chain)
    line = lines_of([record(case="x", outcome="failed", error=same)], "r")[1]
    assert line.count("libcdsprpc.so") == 1
    assert "->" not in line


def test_what_a_case_concluded_is_said() -> None:
    records = [record(case="suites/test_a.py::test_limit[x]", measurements={"conclusion": "bytes"})]
    assert lines_of(records, "r")[1] == "test_a.py::test_limit[x]: bytes"
    table = [
        record(case="suites/test_a.py::test_limit[x]", measurements={"conclusion": "a\n b\nc"})
    ]
    assert lines_of(table, "r")[1:4] == ["test_a.py::test_limit[x]: a", "     b", "    c"]


def test_what_cases_of_one_test_concluded_alike_is_said_once() -> None:
    figures = {"conclusion": "only its 3 contexts ran"}
    cases = ["m.pte::test_contexts[a]", "m.pte::test_contexts[b]", "n.pte::test_contexts[a]"]
    records = [record(case=f"own/{case}", measurements=figures) for case in cases]
    assert lines_of(records, "r")[1:-1] == [
        f"{cases[0]} and 1 more: only its 3 contexts ran",
        f"{cases[2]}: only its 3 contexts ran",
    ]


@pytest.mark.parametrize(
    ("outcomes", "is_said"),
    [
        (["unsupported", "skipped"], True),
        (["unsupported"], True),
        (["unsupported", "passed"], False),
        (["unsupported", "failed"], False),
        (["unsupported", "error"], False),
    ],
)
def test_a_run_that_tells_nothing_of_any_target_says_so(outcomes: list[Any], is_said: bool) -> None:
    records = [
        record(case=f"x[{index}]", outcome=outcome) for index, outcome in enumerate(outcomes)
    ]
    assert ("NOTHING WAS TESTED" in "\n".join(lines_of(records, "r"))) == is_said


def test_nothing_run() -> None:
    assert lines_of([], "r") == ["no case was run", "report: r"]


def test_failures_without_an_error_are_shown_too() -> None:
    lines = lines_of([record(case="x", outcome="failed", error=None)], "r")
    assert lines[1] == "   1 x FAILED: no explanation  [first: x]"


def test_retries_are_mentioned_and_only_the_last_attempt_counts() -> None:
    records = [record(outcome="error", cause="infra"), record(attempt=2)]
    assert lines_of(records, "r")[:2] == [
        "1 of 1 case has a verdict: 1 passed",
        "1 case was tried more than once",
    ]
    assert coverage_of(records).exit_code == 0


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], 0),
        ([record()], 0),
        ([record(outcome="unsupported"), record(case="b", outcome="skipped")], 0),
        ([record(outcome="failed", expected=EXPECTED)], 0),
        ([record(outcome="failed")], 1),
        ([record(outcome="hung"), record(case="b", outcome="error", cause="infra")], 1),
        ([record(outcome="error", cause="infra")], 3),
        ([record(outcome="error", cause="harness")], 3),
        (
            [
                record(outcome="error", cause="config"),
                record(case="b", outcome="error", cause="infra"),
            ],
            2,
        ),
    ],
)
def test_exit_codes(records: list[CaseRecord], code: int) -> None:
    assert coverage_of(records).exit_code == code


def test_many_signatures_are_cut_off() -> None:
    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]
    records = [record(case=n, outcome="failed", error=error(message=f"why {n}")) for n in names]
    lines = lines_of(records, "r")
    assert len(lines) == 43
    assert lines[-2] == "... and 20 more signatures"


def test_preflight_is_one_line_per_code_with_what_came_of_it() -> None:
    def finding(code: str, explanation: str, severity: str = "error") -> PreflightRecord:
        fields = {"code": code, "severity": severity, "explanation": explanation, "fix": "f"}
        return PreflightRecord.model_validate(fields)

    records = [
        record(case="a", preflight=(finding("sdk-mix", "one"), finding("x", "quiet", "info"))),
        record(case="b", outcome="failed", preflight=(finding("sdk-mix", "two"),) * 2),
        record(case="c", preflight=(finding("soc-unknown", "three", "warning"),)),
    ]
    assert preflight_lines(records) == [
        "preflight error sdk-mix: one (and 1 more like it)  [then: 1 passed, 1 failed]",
        "preflight warning soc-unknown: three  [then: 1 passed]",
    ]
    assert all(len(line) <= 70 for line in preflight_lines(records, width=70))


def test_what_is_known_of_a_failure_stands_below_it_unless_it_was_expected() -> None:
    known = diagnosed("failed", error())
    assert known.diagnosis is not None
    failed = record(outcome="failed", error=known)
    wide = lines_of([failed], "r", width=400)[2]
    assert wide.strip().startswith(f"pd-exhausted (known): {known.diagnosis.words}; ")
    assert wide.endswith(f"[{known.diagnosis.thread}]")
    cut = lines_of([failed], "r", width=160)[2]
    assert len(cut) == 160
    assert cut.endswith(f"...  [{known.diagnosis.thread}]")
    assert len(lines_of([failed], "r", width=60)[2]) == 60
    expected = record(outcome="failed", error=known, expected={"known_issue": "x"})
    assert len(lines_of([expected], "r")) == 3
    cannot = record(outcome="unsupported", error=known)
    assert lines_of([cannot], "r", width=400)[3] == wide
    above = f"failed in step 2\n  | diagnosis: {known.diagnosis.text()}"
    assert lines_of([failed], "r", above=above)[2] == "       pd-exhausted (known)"
    assert lines_of([failed], "r", width=400, above="diagnosis: another")[2] == wide


def test_only_what_was_wrong_with_a_device_gets_a_line() -> None:
    fields = {"run": "r", "device": "phone", "started": "2026-11-20T10:00:00Z", "duration_s": 1.0}
    well = DeviceEvent(event="health", state="good", detail="good", **fields)
    sent = DeviceEvent(event="push", state="good", detail="QNN", pushed_bytes=5, **fields)
    assert event_lines([well, sent]) == []
    back = DeviceEvent(event="reboot", state="good", detail="well again", **fields)
    assert event_lines([well, sent, back]) == ["device phone: reboot; at the end well again"]
