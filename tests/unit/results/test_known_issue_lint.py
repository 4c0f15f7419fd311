"""Review of known issues by a run: over, perhaps fixed, or impossible to match."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from harness.core.versions import QnnVersion, VersionRange
from harness.report.junit import junit_parts
from harness.results.coverage import coverage_of
from harness.results.known_issues import (
    CollectedTests,
    KnownIssue,
    never_matches,
    review_lines,
)
from harness.results.record import CaseRecord
from tests.properties import reached, reaches
from tests.unit.results.records import error, record

TODAY = datetime.date(2026, 11, 21)
AXES = record().axes


def issue(conditions: dict[str, Any], *, until: str = "2027-01-31", id_: str = "x") -> KnownIssue:
    return KnownIssue.model_validate(
        {
            "id": id_,
            "link": "https://example.com/x",
            "signature": {"api": error().api, "code": 1002, "message": "available PD"},
            "conditions": conditions,
            "until": until,
        }
    )


def case(name: str, **changed: Any) -> CaseRecord:
    return record(**({"case": f"suites/test_context_count.py::test_contexts[{name}]"} | changed))


COLLECTED = CollectedTests()
COLLECTED.add("context_count", "test_contexts", AXES)
COLLECTED.suites = frozenset({"spill_fill"})
HERE = {"suite": "context_count"}
FIXED = case("a", fixed={"known_issues": ("x",), "fails": False})
FAILED = case("b", outcome="failed")
OTHERWISE = case("c", outcome="failed", error=error(code=5005))
A = "suites/test_context_count.py::test_contexts[a]"


@pytest.mark.parametrize(
    ("records", "known", "lines"),
    [
        ([], [issue(HERE)], []),
        ([FAILED], [issue(HERE)], []),
        (
            [FAILED],
            [issue(HERE, until="2026-11-20")],
            ["known issue x expired on 2026-11-20: look at it again"],
        ),
        (
            [FIXED],
            [issue(HERE)],
            [f"known issue x: fixed? 1 case passed where it is expected  [first: {A}]"],
        ),
        (
            [FIXED, FAILED, OTHERWISE],
            [issue(HERE)],
            [f"known issue x: fixed? 1 case passed where it is expected  [first: {A}]"],
        ),
        ([OTHERWISE, case("d", outcome="error", cause="infra")], [issue(HERE)], []),
        # nobody was there
        ([OTHERWISE], [issue({"suite": "spill_fill"})], []),
        ([OTHERWISE], [issue({"suite": "context_count", "qnn": "<2"})], []),
        (
            [OTHERWISE, FAILED],
            [issue({"suite": "context_count", "axes": {"contxts": 66, "contexts": 66}})],
            ["known issue x can never match: no case of its suite has the axis contxts"],
        ),
        (
            [OTHERWISE],
            [issue({"suite": "context_count", "qnn": "<2", "axes": {"contxts": 66}})],
            ["known issue x can never match: no case of its suite has the axis contxts"],
        ),
    ],
)
def test_lines(records: list[CaseRecord], known: list[KnownIssue], lines: list[str]) -> None:
    assert review_lines(records, known, TODAY, COLLECTED) == lines
    if known[0].conditions.axes:
        assert review_lines(records, known, TODAY) == []  # nobody knows which cases there are


def test_the_last_attempt_counts() -> None:
    first = case("a", outcome="error", cause="infra")
    second = FIXED.model_copy(update={"attempt": 2})
    assert len(review_lines([first, second], [issue(HERE)], TODAY)) == 1


def test_only_a_strict_run_fails_because_something_may_be_fixed() -> None:
    strict = FIXED.model_copy(update={"fixed": FIXED.fixed.model_copy(update={"fails": True})})  # type: ignore[union-attr]
    assert coverage_of([FIXED]).exit_code == 0
    assert coverage_of([strict]).exit_code == 1
    assert coverage_of([strict, case("d", outcome="error", cause="infra")]).exit_code == 1
    assert not strict.is_bad
    assert "<failure" not in b"".join(junit_parts([FIXED], coverage_of([FIXED]), run="r")).decode()
    assert (
        'message="fixed? x"'
        in b"".join(junit_parts([strict], coverage_of([strict]), run="r")).decode()
    )


def test_only_what_passed_may_be_fixed() -> None:
    with pytest.raises(ValidationError, match="only what passed may be fixed"):
        case("a", outcome="failed", fixed={"known_issues": ("x",), "fails": False})
    with pytest.raises(ValidationError):
        case("a", fixed={"known_issues": (), "fails": False})


def collected() -> CollectedTests:
    tests = CollectedTests(
        suites=frozenset({"context_count", "backends"}),
        devices=frozenset({"sim-v73"}),
        socs=frozenset({"MYSOC"}),
    )
    for contexts in (50, 66):
        axes = {"contexts": contexts, "workload": "io-heavy-56mb"}
        tests.add("context_count", "test_contexts", axes)
    tests.add("context_count", "test_limit", {"sizes": [1, 2]})
    return tests


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ({}, None),
        ({"suite": "context_count", "axes": {"contexts": ">=60"}}, None),
        (
            {"suite": "context_*", "test": "test_limit", "axes": {"sizes": None}},
            "there are: [1, 2]",
        ),
        ({"axes": {"contexts": 66, "qnn": "2.51.0", "backend": "htp"}}, None),
        ({"suite": "backends", "axes": {"whatever": 1}}, None),
        ({"suite": ["contxt_count", "contextcount"]}, "no suite is called contxt_count"),
        ({"suite": "context_count", "test": "test_limits"}, "no test of its suite is called"),
        (
            {"suite": "context_count", "axes": {"contxts": 66}},
            "no case of its suite has the axis contxts",
        ),
        ({"axes": {"contxts": 66}}, None),  # nobody knows which axes `backends` has
        (
            {"suite": "context_count", "axes": {"contexts": ">66"}},
            "in no case of its suite contexts is >66 (there are: 50, 66)",
        ),
        ({"backend": "dsp"}, "no backend is dsp"),
        ({"engine": "tflite"}, "no engine is tflite"),
        ({"backend": ["dsp", "gpu"]}, None),
        ({"htp_arch": 72}, "no htp_arch is 72"),
        ({"htp_arch": ">=73"}, None),
        ({"target": "windows-*"}, "no target is windows-*"),
        ({"soc": "SM8x50"}, "no soc is SM8x50"),
        ({"soc": "MYSOC"}, None),
        ({"device": "sim-*"}, None),
        ({"device": "phone"}, "no device is phone"),
        ({"qnn": ">=2.51,<2.47"}, "no version of qnn is >=2.51,<2.47"),
        ({"compiler": ">qnn", "qnn": ">=2.47,<2.47.1", "ort": ">=1,<2,!=1.5"}, None),
        ({"ort": "1.24,!=1.24"}, "no version of ort is"),
        # compared as far as both are given, no version is above 2.51 and below 2.52
        ({"ort": ">2.51,<2.52"}, "no version of ort is"),
    ],
)
def test_why_an_entry_never_matches(conditions: dict[str, Any], why: str | None) -> None:
    reason = never_matches(issue(conditions), collected())
    assert reason is None if why is None else why in (reason or ""), reason


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ({}, None),
        ({"device": "phone"}, None),
        ({"soc": "SM8x50"}, "no soc is SM8x50"),
        ({"suite": "anything"}, "no suite is called anything"),
        ({"axes": {"contexts": 7}}, None),
        ({"test": "anything"}, None),
    ],
)
def test_where_nothing_was_collected_little_is_known(
    conditions: dict[str, Any], why: str | None
) -> None:
    assert never_matches(issue(conditions), CollectedTests()) == why


def test_an_entry_without_a_suite_is_judged_by_all_files_or_not_at_all() -> None:
    tests = collected()
    tests.suites = frozenset({"context_count"})
    misspelt = issue({"axes": {"contxts": 66}})
    assert never_matches(misspelt, tests) == "no case of any suite has the axis contxts"
    tests.add("backends", "", {})  # it was collected, and has no test for devices
    tests.suites = frozenset({"context_count", "backends"})
    assert never_matches(misspelt, tests) == "no case of any suite has the axis contxts"
    assert never_matches(issue({"suite": "backends", "test": "test_a"}), tests) == (
        "no test of its suite is called test_a"
    )


def test_where_single_tests_were_named_only_lab_and_versions_are_judged() -> None:
    tests = CollectedTests(suites=None, devices=frozenset({"sim-v73"}))
    assert never_matches(issue({"suite": "anything", "axes": {"x": 1}}), tests) is None
    assert never_matches(issue({"device": "sim-v37"}), tests) == "no device is sim-v37"
    assert never_matches(issue({"backend": "gpuu"}), tests) == "no backend is gpuu"


def test_of_many_values_the_first_eight_are_shown() -> None:
    tests = CollectedTests()
    for contexts in range(9):
        tests.add("a", "t", {"contexts": contexts})
        tests.add("b", "t", {"contexts": 0, "other": contexts})
    many = {"axes": {"contexts": [f"{letter}-x" for letter in "abcdefgh"]}}
    assert never_matches(issue({"suite": "a", **many}), tests) == (
        "in no case of its suite contexts is a-x, b-x, c-x, d-x, e-x, f-x, g-x, h-x "
        "(there are: 0, 1, 2, 3, 4, 5, 6, 7, and 1 more)"
    )
    assert never_matches(issue({"suite": "b", **many}), tests) == (
        "in no case of its suite contexts is a-x, b-x, c-x, d-x, e-x, f-x, g-x, h-x (there are: 0)"
    )
    either = {"axes": {"other": 8, "contexts": 8}}
    assert never_matches(issue(either), tests) is None
    assert never_matches(issue({"suite": "b", "test": "t", **either}), tests) == (
        "in no case of its test contexts is 8 (there are: 0)"
    )
    assert never_matches(issue({"test": "u"}), tests) == "no test of any suite is called u"


def test_an_entry_is_over_on_the_day_behind_its_last() -> None:
    expected = "known issue x expired on 2026-11-21: look at it again"
    last = [issue(HERE, until="2026-11-21")]
    assert review_lines([FIXED], last, TODAY) == review_lines([FIXED], [issue(HERE)], TODAY)
    assert review_lines([FIXED], last, TODAY + datetime.timedelta(days=1)) == [expected]


def test_each_entry_is_judged_by_its_own_cases() -> None:
    other = issue({"suite": "context_count", "qnn": "<2"}, id_="y")
    assert review_lines([FIXED, OTHERWISE], [other], TODAY) == []
    assert review_lines([FIXED, OTHERWISE], [issue(HERE), other], TODAY) == [
        f"known issue x: fixed? 1 case passed where it is expected  [first: {A}]"
    ]


BOUNDS = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(
    lambda parts: QnnVersion(tuple(parts))
)
SMALL = [QnnVersion(parts) for parts in itertools.product(range(4), repeat=3)]


@reaches(0.2)
@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]), BOUNDS),
        min_size=1,
        max_size=5,
    )
)
def test_a_range_contradicts_itself_exactly_if_no_version_is_within(
    clauses: list[tuple[str, QnnVersion]],
) -> None:
    """A part above those of all bounds stands for all that are larger."""
    expected = VersionRange(tuple(clauses))
    is_within_any = any(version in expected for version in SMALL)
    if not is_within_any:
        reached()
    assert (never_matches(issue({"qnn": str(expected)}), collected()) is None) is is_within_any


@pytest.mark.parametrize("wrong", ["20 %", "yes", 1])
def test_flaky_is_true_or_false(wrong: object) -> None:
    entry = issue(HERE).model_dump(by_alias=True)
    assert KnownIssue.model_validate(entry | {"flaky": True}).flaky
    with pytest.raises(ValidationError):
        KnownIssue.model_validate(entry | {"flaky": wrong})
