"""Review of known issues by a run: over, perhaps fixed, or impossible to match."""

import datetime
import itertools
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from harness.core.versions import QnnVersion, VersionRange
from harness.report.junit import junit_parts
from harness.results.coverage import coverage_of
from harness.results.known_issues import CollectedTests, KnownIssue, never_matches, review_lines
from harness.results.record import CaseRecord
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.results.records import error, record

TODAY = datetime.date(2026, 11, 21)
AXES = record().axes


def issue(
    conditions: dict[str, Any], *, until: str = "2027-01-31", id_: str = "x", **signature: object
) -> KnownIssue:
    return KnownIssue.model_validate(
        {
            "id": id_,
            "link": "https://example.com/x",
            "signature": {"api": error().api, "code": 1002, "message": "available PD", **signature},
            "conditions": conditions,
            "until": until,
        }
    )


def case(name: str, **changed: Any) -> CaseRecord:
    return record(**({"case": f"suites/test_context_count.py::test_contexts[{name}]"} | changed))


NAMED = CollectedTests(suites=None, devices=frozenset({"sim-v73"}))
COLLECTED = CollectedTests()
COLLECTED.add("context_count", "test_contexts", AXES)
COLLECTED.suites = frozenset({"spill_fill"})
HERE = {"suite": "context_count"}
FIXED = case("a", fixed={"known_issues": ("x",), "fails": False})
FAILED = case("b", outcome="failed")
KNOWN = case("b", outcome="failed", error=error(code=1002), expected={"known_issue": "x"})
OTHERWISE = case("c", outcome="failed", error=error(code=5005))
LOST = case("d", outcome="error", cause="infra")
MISSPELT = {"suite": "context_count", "axes": {"contxts": 66, "contexts": 66}}


def reviewed(*arguments: Any) -> list[str]:
    """The kind of each line of a review."""
    kinds = ("expired", "fixed?", "limit its conditions", "can never match", "but not its `api`")
    return [next(kind for kind in kinds if kind in line) for line in review_lines(*arguments)]


@pytest.mark.parametrize(
    ("records", "entry", "expected"),
    [
        ([], issue(HERE), []),
        ([FAILED], issue(HERE), []),
        ([FAILED], issue(HERE, until="2026-11-20"), ["expired"]),
        ([FIXED], issue(HERE, until="2026-11-21"), ["fixed?"]),
        ([case("a", outcome="error", cause="infra"), FIXED], issue(HERE), ["fixed?"]),
        ([FIXED, KNOWN], issue(HERE), ["limit its conditions"]),
        ([FIXED, FAILED], issue(HERE, api=None, code=None), ["but not its `api`"]),
        ([FIXED], issue(HERE, id_="y"), []),
        ([OTHERWISE, LOST], issue(HERE), []),
        # nobody was there
        ([OTHERWISE], issue({"suite": "spill_fill"}), []),
        ([OTHERWISE, FAILED], issue(MISSPELT), ["can never match"]),
        ([OTHERWISE], issue(MISSPELT | {"qnn": "<2"}), ["can never match"]),
    ],
)
def test_review(records: list[CaseRecord], entry: KnownIssue, expected: list[str]) -> None:
    assert reviewed(records, [entry], TODAY, COLLECTED) == expected
    if entry.conditions.axes:
        assert reviewed(records, [entry], TODAY) == []  # nobody knows which cases there are


def test_lines_of_a_review(snapshot: Snapshot) -> None:
    entries = [issue(HERE, until="2026-11-20", id_="old"), issue(HERE), issue(MISSPELT, id_="y")]
    assert review_lines([FIXED, FAILED], entries, TODAY, COLLECTED) == snapshot


def test_only_a_strict_run_fails_because_something_may_be_fixed() -> None:
    strict = FIXED.model_copy(update={"fixed": FIXED.fixed.model_copy(update={"fails": True})})  # type: ignore[union-attr]
    assert coverage_of([FIXED]).exit_code == 0
    assert coverage_of([strict]).exit_code == 1
    assert coverage_of([strict, LOST]).exit_code == 1
    assert not strict.is_bad
    assert "<failure" not in b"".join(junit_parts([FIXED], coverage_of([FIXED]), run="r")).decode()
    assert (
        'message="fixed? x"'
        in b"".join(junit_parts([strict], coverage_of([strict]), run="r")).decode()
    )


def test_only_what_passed_may_be_fixed() -> None:
    with pytest.raises(ValidationError):
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
    "conditions",
    [
        {},
        {"suite": "context_count", "axes": {"contexts": ">=60"}},
        {"axes": {"contexts": 66, "qnn": "2.51.0", "backend": "htp"}},
        {"suite": "backends", "axes": {"whatever": 1}},
        {"axes": {"contxts": 66}},  # nobody knows which axes `backends` has
        {"htp_arch": ">=73"},
        {"soc": "MYSOC"},
        {"device": "sim-*"},
        {"compiler": ">qnn", "qnn": ">=2.47,<2.47.1", "ort": ">=1,<2,!=1.5"},
    ],
)
def test_an_entry_that_may_match(conditions: dict[str, Any]) -> None:
    assert never_matches(issue(conditions), collected()) is None


MANY = {"contexts": [f"{letter}-x" for letter in "abcdefgh"]}
NEVER: list[dict[str, Any]] = [
    {"suite": "context_*", "test": "test_limit", "axes": {"sizes": None}},
    {"suite": ["contxt_count", "contextcount"]},
    {"suite": "context_count", "test": "test_limits"},
    {"suite": "backends", "test": "test_a"},
    {"test": "u"},
    {"suite": "context_count", "axes": {"contxts": 66}},
    {"suite": "context_count", "axes": {"contexts": ">66"}},
    {"suite": "a", "axes": MANY},
    {"suite": "b", "test": "t", "axes": {"other": 8, "contexts": 8}},
    {"backend": "dsp"},
    {"engine": "tflite"},
    {"htp_arch": 72},
    {"target": "windows-*"},
    {"soc": "SM8x50"},
    {"device": "phone"},
    {"qnn": ">=2.51,<2.47"},
    {"ort": "1.24,!=1.24"},
    # compared as far as both are given, no version is above 2.51 and below 2.52
    {"ort": ">2.51,<2.52"},
]


def test_why_an_entry_never_matches(snapshot: Snapshot) -> None:
    tests = collected()
    for contexts in range(9):
        tests.add("a", "t", {"contexts": contexts})
        tests.add("b", "t", {"contexts": 0, "other": contexts})
    tests.add("backends", "", {})  # it was collected, and has no test for devices
    assert [never_matches(issue(conditions), tests) for conditions in NEVER] == snapshot
    assert never_matches(issue({"axes": {"other": 8, "contexts": 8}}), tests) is None


@pytest.mark.parametrize(
    ("tests", "conditions", "is_known"),
    [
        (CollectedTests(), {}, False),
        (CollectedTests(), {"axes": {"contexts": 7}}, False),
        (CollectedTests(), {"test": "anything"}, False),
        (CollectedTests(), {"soc": "SM8x50"}, True),
        (CollectedTests(), {"suite": "anything"}, True),
        # single tests were named: only lab and versions are judged
        (NAMED, {"suite": "anything", "axes": {"x": 1}}, False),
        (NAMED, {"device": "sim-v37"}, True),
        (NAMED, {"backend": "gpuu"}, True),
    ],
)
def test_where_nothing_was_collected_little_is_known(
    tests: CollectedTests, conditions: dict[str, Any], is_known: bool
) -> None:
    assert (never_matches(issue(conditions), tests) is not None) is is_known


def test_an_entry_without_a_suite_is_judged_by_all_files() -> None:
    tests = collected()
    misspelt = issue({"axes": {"contxts": 66}})
    tests.suites = frozenset({"context_count"})
    assert never_matches(misspelt, tests)
    tests.add("backends", "", {})
    tests.suites = frozenset({"context_count", "backends"})
    assert never_matches(misspelt, tests)


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
