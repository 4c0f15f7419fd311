"""What a run says of the known issues themselves: over, fixed, or never as they say (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from harness.results.known_issues import KnownIssue, expired, holds_under, match
from harness.results.record import CaseRecord, final_attempts


def review_lines(
    records: Iterable[CaseRecord], issues: Sequence[KnownIssue], today: datetime.date
) -> list[str]:
    """A line for each entry that wants to be looked at.

    A run is mostly a part of the matrix: that none of its cases met an entry's conditions says
    nothing. What does is a case that met them and passed or failed otherwise, and an axis that no
    case of the entry's suite has.
    """
    cases = final_attempts(records)
    over = [
        f"known issue {issue.id} expired on {issue.until}: look at it again"
        for issue in expired(issues, today)
    ]
    valid = [issue for issue in issues if issue.until >= today]
    return over + [line for issue in valid for line in _of_one(issue, issues, cases)]


def _of_one(
    issue: KnownIssue, issues: Sequence[KnownIssue], cases: Sequence[CaseRecord]
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
    return _axes_without_cases(issue, cases)


def _axes_without_cases(issue: KnownIssue, cases: Sequence[CaseRecord]) -> list[str]:
    conditions = issue.conditions
    if conditions.suite is None:
        return []
    place = conditions.model_copy(
        update={
            name: None
            for name in type(conditions).model_fields
            if name not in ("suite", "test", "axes")
        }
        | {"axes": {}}
    )
    there = [case for case in cases if holds_under(case, place)]
    missing = [name for name in conditions.axes if all(name not in case.axes for case in there)]
    if not there or not missing:
        return []
    named = ", ".join(missing)
    return [f"known issue {issue.id} can never match: no case of its suite has the axis {named}"]


def _count(cases: Sequence[CaseRecord]) -> str:
    return "1 case" if len(cases) == 1 else f"{len(cases)} cases"
