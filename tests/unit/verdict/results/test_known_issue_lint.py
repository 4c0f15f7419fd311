"""What a run says of the known issues themselves: over, fixed, or never as they say."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from harness.answers.report.junit import junit_parts
from harness.ground.facts.versions import QnnVersion, VersionRange
from harness.verdict.results.coverage import coverage_of
from harness.verdict.results.known_issue_lint import (
    CollectedTests,
    never_matches,
    rate_lines,
    review_lines,
)
from harness.verdict.results.known_issues import KnownIssue
from harness.verdict.results.record import CaseRecord
from tests.properties import reached, reaches
from tests.unit.verdict.results.records import error, record

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
MARKED = {"known_issue": "xfail: not yet"}
OTHERWISE = case("c", outcome="failed", error=error(code=5005))
A = "suites/test_context_count.py::test_contexts[a]"
C = "suites/test_context_count.py::test_contexts[c]"


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
            [FIXED, FAILED],
            [issue(HERE)],
            [
                "known issue x: fixed? 1 case passed where it is expected, 1 failed as it says: "
                f"its conditions may be too wide  [first: {A}]"
            ],
        ),
        (
            [OTHERWISE, case("d", outcome="error", cause="infra")],
            [issue(HERE)],
            [
                "known issue x: 1 case met its conditions and failed otherwise: code 5005, the "
                f"entry has 1002  [first: {C}]"
            ],
        ),
        # somewhere it is as it says
        ([OTHERWISE, FAILED], [issue(HERE)], []),
        # the test's own mark explains it
        ([case("c", outcome="failed", error=error(code=1), expected=MARKED)], [issue(HERE)], []),
        # another entry explains it
        ([FAILED], [issue(HERE), issue(HERE | {"backend": "htp"}, id_="y")], []),
        (
            [OTHERWISE],
            [
                issue(HERE),
                issue(HERE, id_="y").model_copy(
                    update={"signature": issue(HERE).signature.model_copy(update={"code": 5005})}
                ),
            ],
            [],
        ),
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


@pytest.mark.parametrize(
    ("seen", "wanted", "says"),
    [
        ({"code": 0}, {"code": None}, "code 0, the entry has none"),
        ({"code": None}, {"code": 0}, "code none, the entry has 0"),
        ({"api": "QnnGraph_execute"}, {"api": None}, "api QnnGraph_execute, the entry has none"),
        ({}, {"outcome": "hung"}, "outcome failed, the entry has hung"),
        (
            {"api": None, "code": None},
            {"outcome": "crashed"},
            "outcome failed, the entry has crashed; api none, the entry has "
            f"{error().api}; code none, the entry has 1002",
        ),
        ({}, {"message": "another.*word"}, "no line of its message matches 'another.*word'"),
    ],
)
def test_what_failed_otherwise_says_in_what(
    seen: dict[str, Any], wanted: dict[str, Any], says: str
) -> None:
    entry = issue(HERE)
    entry = entry.model_copy(update={"signature": entry.signature.model_copy(update=wanted)})
    failed = case("c", outcome="failed", error=error(**seen))
    told = f"known issue x: 1 case met its conditions and failed otherwise: {says}  [first: {C}]"
    assert review_lines([failed], [entry], TODAY) == [told]


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
    made = CollectedTests(
        suites=frozenset({"context_count", "backends"}),
        devices=frozenset({"sim-v73"}),
        socs=frozenset({"MYSOC"}),
    )
    for contexts in (50, 66):
        axes = {"contexts": contexts, "workload": "io-heavy-56mb"}
        made.add("context_count", "test_contexts", axes)
    made.add("context_count", "test_limit", {"sizes": [1, 2]})
    return made


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
    found = never_matches(issue(conditions), collected())
    assert found is None if why is None else why in (found or ""), found


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
    made = collected()
    made.suites = frozenset({"context_count"})
    misspelt = issue({"axes": {"contxts": 66}})
    assert never_matches(misspelt, made) == "no case of any suite has the axis contxts"
    made.add("backends", "", {})  # it was collected, and has no test for devices
    made.suites = frozenset({"context_count", "backends"})
    assert never_matches(misspelt, made) == "no case of any suite has the axis contxts"
    assert never_matches(issue({"suite": "backends", "test": "test_a"}), made) == (
        "no test of its suite is called test_a"
    )


def test_where_single_tests_were_named_only_lab_and_versions_are_judged() -> None:
    made = CollectedTests(suites=None, devices=frozenset({"sim-v73"}))
    assert never_matches(issue({"suite": "anything", "axes": {"x": 1}}), made) is None
    assert never_matches(issue({"device": "sim-v37"}), made) == "no device is sim-v37"
    assert never_matches(issue({"backend": "gpuu"}), made) == "no backend is gpuu"


def test_of_many_values_the_first_eight_are_shown() -> None:
    made = CollectedTests()
    for contexts in range(9):
        made.add("a", "t", {"contexts": contexts})
        made.add("b", "t", {"contexts": 0, "other": contexts})
    many = {"axes": {"contexts": [f"{one}-x" for one in "abcdefgh"]}}
    assert never_matches(issue({"suite": "a", **many}), made) == (
        "in no case of its suite contexts is a-x, b-x, c-x, d-x, e-x, f-x, g-x, h-x "
        "(there are: 0, 1, 2, 3, 4, 5, 6, 7, and 1 more)"
    )
    assert never_matches(issue({"suite": "b", **many}), made) == (
        "in no case of its suite contexts is a-x, b-x, c-x, d-x, e-x, f-x, g-x, h-x (there are: 0)"
    )
    either = {"axes": {"other": 8, "contexts": 8}}
    assert never_matches(issue(either), made) is None
    assert never_matches(issue({"suite": "b", "test": "t", **either}), made) == (
        "in no case of its test contexts is 8 (there are: 0)"
    )
    assert never_matches(issue({"test": "u"}), made) == "no test of any suite is called u"


def test_an_entry_is_over_on_the_day_behind_its_last() -> None:
    over = "known issue x expired on 2026-11-21: look at it again"
    last = [issue(HERE, until="2026-11-21")]
    assert review_lines([FIXED], last, TODAY) == review_lines([FIXED], [issue(HERE)], TODAY)
    assert review_lines([FIXED], last, TODAY + datetime.timedelta(days=1)) == [over]


def test_each_entry_is_judged_by_its_own_cases() -> None:
    other = issue({"suite": "context_count", "qnn": "<2"}, id_="y")
    assert review_lines([FIXED, OTHERWISE], [other], TODAY) == []
    assert review_lines([FIXED, OTHERWISE], [issue(HERE), other], TODAY) == [
        "known issue x: fixed? 1 case passed where it is expected, 1 failed otherwise  "
        f"[first: {A}]"
    ]


BOUNDS = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(lambda one: QnnVersion(tuple(one)))
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
    wanted = VersionRange(tuple(clauses))
    held = any(version in wanted for version in SMALL)
    if not held:
        reached()
    assert (never_matches(issue({"qnn": str(wanted)}), collected()) is None) is held


def flaky(said: Any) -> KnownIssue:
    return KnownIssue.model_validate(issue(HERE).model_dump(by_alias=True) | {"flaky": said})


PASSED = case("a")
ELSEWHERE = record(case="suites/test_other.py::test_x", suite="other", outcome="failed")


@pytest.mark.parametrize(
    ("failed", "passed", "said", "line"),
    [
        (2, 8, "20 %", None),
        (1, 0, "5 %", None),  # one run says nothing
        (8, 2, "20%", "known issue x: 8 of 10 runs failed as it says, not 20%"),
        (0, 40, "20 %", "known issue x: 0 of 40 runs failed as it says, not 20 %: fixed?"),
        (0, 20, "20 %", None),
        (9000, 11000, "50 %", "known issue x: 9000 of 20000 runs failed as it says, not 50 %"),
        (9900, 10100, "50 %", None),
        (0, 400, True, None),
        (400, 0, False, None),
        (0, 0, "99.9 %", None),
    ],
)
def test_a_rate_is_compared_with_what_many_runs_show(
    failed: int, passed: int, said: object, line: str | None
) -> None:
    lost = case("a", outcome="error", cause="infra", error=error(code=1))
    records = [FAILED] * failed + [PASSED] * passed + [lost, ELSEWHERE] * 50
    assert list(rate_lines(records, [flaky(said)])) == ([line] if line else [])


def test_what_fails_otherwise_does_not_fail_as_it_says() -> None:
    (line,) = rate_lines([OTHERWISE] * 60, [flaky("20 %")])
    assert line == "known issue x: 0 of 60 runs failed as it says, not 20 %: fixed?"


@pytest.mark.parametrize("wrong", ["0 %", "00.0%", "100 %", "20", "x", "-1 %", 20, "2 0 %"])
def test_what_is_no_rate_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        flaky(wrong)
    assert flaky("0.5 %").rate == 0.005
    assert flaky(True).rate is None
