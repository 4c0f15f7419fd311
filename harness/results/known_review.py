"""What a run says of the known issues themselves: over, fixed, or never as they say (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from harness.results.known_issues import KnownIssue, expired, holds_under, match
from harness.results.known_reach import Offered, never_matches
from harness.results.record import CaseRecord, final_attempts


def review_lines(
    records: Iterable[CaseRecord],
    issues: Sequence[KnownIssue],
    today: datetime.date,
    offered: Offered | None = None,
) -> list[str]:
    """A line for each entry that wants to be looked at.

    A run is mostly a part of the matrix: that none of its cases met an entry's conditions says
    nothing. What does is a case that met them and passed or failed otherwise, and conditions that
    none of the cases `offered` can meet (None: nobody knows which there are).
    """
    cases = final_attempts(records)
    over = [
        f"known issue {issue.id} expired on {issue.until}: look at it again"
        for issue in expired(issues, today)
    ]
    valid = [issue for issue in issues if issue.until >= today]
    return over + [line for issue in valid for line in _of_one(issue, issues, cases, offered)]


def _of_one(
    issue: KnownIssue,
    issues: Sequence[KnownIssue],
    cases: Sequence[CaseRecord],
    offered: Offered | None,
) -> list[str]:
    passed = [
        case for case in cases if case.fixed is not None and issue.id in case.fixed.known_issues
    ]
    matched = [case for case in cases if match(case, [issue]) is not None]
    if passed:
        where = f"known issue {issue.id}: fixed? {_count(passed)} passed where it is expected"
        if matched:
            where += f", {len(matched)} failed as it says: its conditions may be too wide"
        return [f"{where}  [first: {passed[0].case}]"]
    if matched:
        return []
    # what failed as another entry says is explained
    otherwise = [
        case
        for case in cases
        if case.cause == "target"
        and holds_under(case, issue.conditions)
        and match(case, issues) is None
    ]
    if otherwise:
        return [
            f"known issue {issue.id}: {_count(otherwise)} met its conditions and failed otherwise"
            f"  [first: {otherwise[0].case}]"
        ]
    why = None if offered is None else never_matches(issue, offered)
    return [] if why is None else [f"known issue {issue.id} can never match: {why}"]


def _count(cases: Sequence[CaseRecord]) -> str:
    return "1 case" if len(cases) == 1 else f"{len(cases)} cases"
