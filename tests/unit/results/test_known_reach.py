"""Entries that no case can meet, and why: by table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.qnn.versions import QnnVersion, VersionRange
from harness.results.known_issues import KnownIssue
from harness.results.known_reach import Offered, never_matches


def issue(conditions: dict[str, Any]) -> KnownIssue:
    return KnownIssue.model_validate(
        {
            "id": "x",
            "link": "https://example.com/x",
            "signature": {"api": None, "code": 1002, "message": "m"},
            "conditions": conditions,
            "until": "2027-01-31",
        }
    )


def offered() -> Offered:
    made = Offered(
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
    found = never_matches(issue(conditions), offered())
    assert found is None if why is None else why in (found or ""), found


VERSIONS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).map(
    lambda parts: QnnVersion(parts)
)
CLAUSES = st.lists(
    st.tuples(st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]), VERSIONS),
    min_size=1,
    max_size=3,
)


@given(CLAUSES, VERSIONS)
def test_a_range_that_holds_a_version_is_never_said_to_hold_none(
    clauses: list[tuple[str, QnnVersion]], version: QnnVersion
) -> None:
    wanted = VersionRange(tuple(clauses))
    if version in wanted:
        assert never_matches(issue({"qnn": str(wanted)}), offered()) is None
