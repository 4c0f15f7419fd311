"""Known issues: the shipped file, matching, and mistakes by line."""

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.diagnosis.error_record import OrtCode
from harness.results.known_issues import (
    MAX_LINE_CHARS,
    KnownIssue,
    compiled_pattern,
    fixed_issues,
    is_in_message,
    load_known_issues,
    match,
)
from harness.results.record import CaseRecord
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.results.records import DEVICE, error, record

ROOT = Path(__file__).parents[3]
SHIPPED = load_known_issues(ROOT / "suites" / "known_issues.yaml")
FAILED = record(outcome="failed")

HEAD = (
    "schema: 1\nknown_issues:\n  - id: x\n    link: https://example.com/1\n    until: 2027-01-31\n"
)
SIGNATURE = "    signature: {api: A, code: 1, message: m}\n"


def issue(conditions: dict[str, Any] | None = None, **signature: Any) -> KnownIssue:
    fields: dict[str, Any] = {"api": error().api, "code": 1002, "message": "available PD"}
    return KnownIssue.model_validate(
        {
            "id": "x",
            "link": "https://example.com/x",
            "signature": fields | signature,
            "conditions": conditions or {},
            "until": datetime.date(2027, 1, 31),
        }
    )


def test_the_shipped_entry_explains_the_failure_it_is_for() -> None:
    explaining = match(FAILED, SHIPPED)
    assert explaining.id == "pd-exhausted-by-many-contexts"
    assert explaining.link == "https://github.com/pytorch/executorch/issues/14985"


@pytest.mark.parametrize(
    "changed",
    [
        {"error": error(code=5005)},
        {"error": error(api="QnnGraph_execute")},
        {"error": error(message="Invalid flatbuffer version")},
        {"outcome": "crashed"},
        {"cause": "config"},
        {"suite": "spill_fill"},
        {"axes": FAILED.axes | {"contexts": 50}},
        {"axes": FAILED.axes | {"contexts": "66"}},
        {"axes": FAILED.axes | {"residency": "sequential"}},
        {"axes": FAILED.axes | {"backend": "gpu"}},
        {"axes": {"backend": "htp", "residency": "resident", "workload": "io-heavy"}},
        {"outcome": "passed", "cause": None, "error": None},
    ],
)
def test_anything_else_at_the_same_place_is_not_expected(changed: dict[str, Any]) -> None:
    assert match(record(**({"outcome": "failed"} | changed)), SHIPPED) is None


def test_after_its_day_an_entry_explains_nothing() -> None:
    known = issue()
    last = known.until
    after = last + datetime.timedelta(days=1)
    assert match(on_day(last, outcome="failed"), [known]) is known
    assert match(on_day(after, outcome="failed"), [known]) is None


def on_day(day: datetime.date, **changed: Any) -> CaseRecord:
    noon = datetime.datetime.combine(day, datetime.time(12), datetime.UTC)
    return record(started=noon, **changed)


@pytest.mark.parametrize(
    ("conditions", "is_met"),
    [
        ({}, True),
        ({"suite": "context_*"}, True),
        ({"suite": ["spill_fill", "context_count"]}, True),
        ({"test": "test_contexts"}, True),
        ({"test": ["test_limit", "test_context"]}, False),
        ({"backend": "htp"}, True),
        ({"backend": "gpu"}, False),
        ({"engine": "qnn"}, True),
        ({"engine": ["ort", "executorch"]}, False),
        ({"device": "phone"}, False),
        ({"target": "android-*"}, False),
        ({"compiler": ">=2.51"}, True),
        ({"soc": "QCS8550", "target": "linux-x64", "device": "sim-*"}, True),
        ({"soc": "SM8650"}, False),
        ({"htp_arch": 73}, True),
        ({"htp_arch": [68, 69]}, False),
        ({"htp_arch": ">=73"}, True),
        ({"htp_arch": "> 73"}, False),
        ({"qnn": ">=2.48,<2.52"}, True),
        ({"qnn": "2.51"}, True),
        ({"compiler": "<2.51"}, False),
        ({"ort": ">=1.24"}, False),
        ({"axes": {"contexts": [50, 66]}}, True),
        ({"axes": {"contexts": "<= 66"}}, True),
        ({"axes": {"contexts": "<66"}}, False),
        ({"axes": {"contexts": "6?"}}, True),
        ({"axes": {"ort": None}}, True),
        ({"axes": {"absent": None}}, False),
        ({"axes": {"residency": ">=60"}}, False),
    ],
)
def test_conditions(conditions: dict[str, Any], is_met: bool) -> None:
    assert (match(FAILED, [issue(conditions)]) is not None) is is_met


def test_the_arch_is_that_of_the_soc_if_the_record_does_not_say() -> None:
    bare = {key: value for key, value in DEVICE.items() if key != "htp_arch"}
    assert match(record(outcome="failed", device=bare), [issue({"htp_arch": 73})]) is not None
    unknown = record(outcome="failed", device=bare | {"soc": None})
    assert match(unknown, [issue({"htp_arch": 73})]) is None


@pytest.mark.parametrize(("expected", "is_met"), [(">=1.24,<1.26", True), ("<1.24", False)])
def test_the_version_of_ort_is_that_of_the_libraries_where_no_axis_names_it(
    expected: str, is_met: bool
) -> None:
    runtime = {"qnn": "2.51.0", "source": "pypi", "ort": "1.25.0"}
    case = record(outcome="failed", runtime=runtime)
    assert (match(case, [issue({"ort": expected})]) is not None) is is_met
    axis = record(outcome="failed", runtime=runtime, axes=FAILED.axes | {"ort": "1.23.0"})
    assert (match(axis, [issue({"ort": expected})]) is not None) is not is_met


PASSED = record()


@pytest.mark.parametrize(
    ("case", "conditions", "fixed"),
    [
        (PASSED, {"suite": "context_count"}, True),
        (PASSED, {"suite": "context_count", "qnn": "<2.51"}, False),
        (PASSED, {"axes": {"contexts": ">=60"}}, True),
        # it does not say where
        (PASSED, {}, False),
        (FAILED, {"suite": "context_count"}, False),
        (record(outcome="unsupported"), {"suite": "context_count"}, False),
        (record(outcome="skipped"), {"suite": "context_count"}, False),
        (record(outcome="error", cause="infra"), {"suite": "context_count"}, False),
    ],
)
def test_what_passes_where_it_is_expected_to_fail_may_be_fixed(
    case: Any, conditions: dict[str, Any], fixed: bool
) -> None:
    known = issue(conditions)
    assert fixed_issues(case, [known]) == ([known] if fixed else [])
    after = datetime.datetime.combine(known.until, datetime.time(), datetime.UTC)
    late = case.model_copy(update={"started": after + datetime.timedelta(days=1)})
    assert fixed_issues(late, [known]) == []
    assert fixed_issues(case, [known.model_copy(update={"flaky": True})]) == []


def test_a_crash_is_expected_by_what_names_a_crash_or_no_outcome() -> None:
    crash = record(outcome="crashed", error=error(code=None, message="ended by SIGSEGV"))
    assert match(crash, [issue(code=None, message="SIGSEGV")]) is not None, "no outcome is any"
    assert match(crash, [issue(outcome="failed", code=None, message="SIGSEGV")]) is None
    known = issue(outcome="crashed", code=None, message="SIGSEGV")
    assert match(crash, [known]) is known


@reaches(0.4)
@given(st.integers(0, 70_000), st.integers(0, 70_000), st.sampled_from([None, 0, 1 << 16, 9 << 16]))
def test_codes_match_by_their_low_16_bits(known: int, code: int, above: int | None) -> None:
    if above is not None:
        code = known + above
        reached()
    case = record(outcome="failed", error=error(code=code))
    assert (match(case, [issue(code=known)]) is not None) is (known % 65536 == code % 65536)


def test_a_code_of_ort_counts_where_there_is_none_of_qnn() -> None:
    ort = OrtCode(code=1, name="ORT_FAIL")
    codes = {(qnn, code) for qnn in (None, 1002) for code in (None, 1, 2, 1002)}
    matching = {
        (qnn, code)
        for qnn, code in codes
        if match(record(outcome="failed", error=error(code=qnn, ort=ort)), [issue(code=code)])
    }
    assert matching == {(None, None), (None, 1), (1002, 1002)}


def test_a_file_without_entries_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "known_issues.yaml"
    path.write_text("schema: 1\nknown_issues: []\n")
    assert load_known_issues(path) == ()


@pytest.mark.parametrize(
    ("condition", "compiler", "qnn", "is_met"),
    [
        (">qnn", "2.51.0", "2.47.0", True),
        (">qnn", "2.47.0", "2.47.0", False),
        (">qnn", "2.10.0", "2.9.0", True),
        ("==qnn", "2.51.0", "2.51.0.260929", True),
        (">ort", "2.51.0", "2.47.0", False),  # the case has none
    ],
)
def test_a_version_compared_with_another_axis(
    condition: str, compiler: str, qnn: str, is_met: bool
) -> None:
    axes = {"backend": "htp", "qnn": qnn, "ort": None, "compiler": compiler}
    failed = record(outcome="failed", axes=axes)
    assert (match(failed, [issue({"compiler": condition})]) is not None) is is_met


@pytest.mark.parametrize(
    ("pattern", "message", "is_found"),
    [
        ("Failed to find available PD", "x\nFailed to find available PD for contextId 5", True),
        ("^Fail to create .* err 1002$", "a\nFail to create context with err 1002", True),
        (r"arch with value \d+ unsupported", "arch with value 75 unsupported", True),
        ("(?i)map buffer", "failed to Map Buffer to SMMU", True),
        (r"0x[0-9a-f]{8}\b", "magic 0x5678abcd", True),
        ("x", "", False),
        ("^$", "", True),
        ("a.b", "a\nb", False),
        (r"\(no\) \[x\]\*\?\{2\}", "(no) [x]*?{2}", True),
        ("(?:ab)+c", "ababc", True),
    ],
)
def test_a_pattern_is_searched_in_each_line(pattern: str, message: str, is_found: bool) -> None:
    assert is_in_message(pattern, message) is is_found


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(?:a|a)" * 6 + "a*a*a{100}b", "(?:(?:a?){30}){30}d", ".*.*.*.*x"]
)
def test_the_worst_patterns_end_soon(pattern: str) -> None:
    message = "\n".join(["b" + "a" * (MAX_LINE_CHARS - 2) + "c"] * 50)
    start_s = time.process_time()
    assert not is_in_message(pattern, message)
    assert time.process_time() - start_s < 5


def test_fifty_lines_of_500_characters_are_searched() -> None:
    full = "a" * 500
    assert is_in_message("xyz", "\n".join([full] * 49 + ["a" * 497 + "xyz"]))
    assert not is_in_message("xyz", "\n".join([full] * 49 + ["a" * 498 + "xyz"]))
    assert not is_in_message("xyz", "\n".join([full] * 50 + ["xyz"]))


@pytest.mark.parametrize(
    "pattern", ["", "x" * 201, "(", r"(a)\1", "(?=a)b", "a**", "(?:(?:a?){30}){40}", r"\pL{1000}"]
)
def test_other_patterns_are_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError):
        compiled_pattern(pattern)
    assert capfd.readouterr().err == ""


MISTAKES = [
    HEAD + "    signature: {api: A, code: '1', message: m}\n",
    HEAD + "    signature: {api: A, code: 1, message: ''}\n",
    *(
        f"{HEAD}{SIGNATURE}    conditions: {{{condition}}}\n"
        for condition in (
            "suite: [x, test_context_count.py]",
            "qnn: 2.50",
            "qnn: new",
            "compiler: '>backend'",
            "axes: {contexts: {a: 1}}",
            "soc: []",
        )
    ),
    HEAD.replace("2027-01-31", "soon") + SIGNATURE,
    HEAD.replace("https", "http") + SIGNATURE,
    HEAD + SIGNATURE + HEAD.partition("known_issues:\n")[2] + SIGNATURE,
]


def test_mistakes_name_their_place(tmp_path: Path, snapshot: Snapshot) -> None:
    errors = []
    for text in MISTAKES:
        (tmp_path / "known_issues.yaml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_known_issues(tmp_path / "known_issues.yaml")
        errors.append(caught.value)
    assert errors == snapshot
