"""What a run says of the known issues themselves: over, fixed, or never as they say."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.qnn.versions import QnnVersion, VersionRange
from harness.report.junit import junit_parts
from harness.results.coverage import coverage_of
from harness.results.known_issue_lint import CollectedTests, never_matches, review_lines
from harness.results.known_issues import KnownIssue
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
            [f"known issue x: 1 case met its conditions and failed otherwise  [first: {C}]"],
        ),
        # somewhere it is as it says
        ([OTHERWISE, FAILED], [issue(HERE)], []),
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
        ({"axes": {"contxts": 66}}, "no case of any suite has the axis contxts"),
        (
            {"suite": "context_count", "axes": {"contexts": ">66"}},
            "in no case of its suite contexts is >66 (there are: 50, 66)",
        ),
        ({"backend": "dsp"}, "no backend is dsp"),
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


VERSIONS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).map(
    lambda parts: QnnVersion(parts)
)
CLAUSES = st.lists(
    st.tuples(st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]), VERSIONS),
    min_size=1,
    max_size=3,
)


@reaches(0.15)
@given(CLAUSES, VERSIONS)
def test_a_range_that_holds_a_version_is_never_said_to_hold_none(
    clauses: list[tuple[str, QnnVersion]], version: QnnVersion
) -> None:
    wanted = VersionRange(tuple(clauses))
    if version in wanted:
        reached()
        assert never_matches(issue({"qnn": str(wanted)}), collected()) is None
