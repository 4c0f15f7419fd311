"""Review of known issues by a run: over, perhaps fixed, or impossible to match (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.axes import AXES, IN_AXES, VERSIONS
from harness.ground.facts.platforms import TARGETS
from harness.ground.facts.socs import HTP_ARCHS, SOCS
from harness.ground.facts.versions import QnnVersion, VersionRange
from harness.verdict.results.known_issues import (
    Conditions,
    KnownIssue,
    is_relative,
    match,
    one_holds,
)
from harness.verdict.results.record import CaseRecord


def review_lines(
    cases: Iterable[CaseRecord],
    issues: Sequence[KnownIssue],
    today: datetime.date,
    collected: CollectedTests | None = None,
) -> list[str]:
    """Return a line for each entry that is over, may be fixed, or can never match.

    A run is mostly a part of the matrix: it says nothing that none of its cases met an entry's
    conditions. Conditions that none of the cases `collected` can meet do say something (None: not
    known).
    """
    lines = []
    fixed: dict[str, list[str]] = {}
    met = set[str]()
    for case in cases:
        for name in case.fixed.known_issues if case.fixed else ():
            fixed.setdefault(name, []).append(case.case)
        if collected is not None:
            met |= {one.id for one in issues if one.id not in met and match(case, [one])}
    for issue in issues:
        if issue.until < today:
            lines.append(f"known issue {issue.id} expired on {issue.until}: look at it again")
        elif passed := fixed.get(issue.id):
            where = f"{counted(len(passed), 'case')} passed where it is expected"
            lines.append(f"known issue {issue.id}: fixed? {where}  [first: {passed[0]}]")
        elif collected and issue.id not in met and (why := never_matches(issue, collected)):
            lines.append(f"known issue {issue.id} can never match: {why}")
    return lines


_MOST_SHOWN: Final = 8


@dataclass
class CollectedTests:
    """What tests there are, whether or not they were chosen for this run.

    `tests` has for each (suite, test) the values of its axes, by their texts. `suites` names those
    that are there although nothing was collected of them; None: nothing is known of tests.
    `devices` and `socs` are those of the lab.
    """

    tests: dict[tuple[str, str], dict[str, dict[str, object]]] = field(default_factory=dict)
    suites: frozenset[str] | None = frozenset()
    devices: frozenset[str] = frozenset()
    socs: frozenset[str] = frozenset()

    def add(self, suite: str, test: str, axes: Mapping[str, object]) -> None:
        """Takes note of one case."""
        known = self.tests.setdefault((suite, test), {})
        for name, value in axes.items():
            known.setdefault(name, {}).setdefault(repr(value), value)


def never_matches(issue: KnownIssue, collected: CollectedTests) -> str | None:
    """Why no case can meet an entry's conditions, whatever is chosen; None if one can.

    Versions count only where they contradict each other: which there are depends on the lab.
    """
    return next(_reasons(issue.conditions, collected), None)


def _reasons(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    known: dict[str, Iterable[object]] = {
        **{axis.name: axis.values for axis in AXES.values() if axis.values},
        "target": TARGETS,
        "htp_arch": HTP_ARCHS,
        "soc": {*SOCS, *collected.socs},
        "device": collected.devices,
    }
    for name, values in known.items():
        wanted = getattr(conditions, name)
        if wanted is not None and values and not _any_holds(values, wanted):
            yield f"no {name} is {_shown(wanted)}"
    for name in VERSIONS:
        wanted = getattr(conditions, name)
        if wanted is not None and not is_relative(wanted) and _contradicts_itself(wanted):
            yield f"no version of {name} is {wanted}"
    yield from _unmet_tests(conditions, collected)


def _unmet_tests(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    suite = conditions.suite
    if collected.suites is None:
        return
    # of a file that was not collected, nobody knows which tests it has
    if suite is None and collected.suites - {names[0] for names in collected.tests}:
        return
    here = {
        names: axes
        for names, axes in collected.tests.items()
        if suite is None or one_holds(names[0], suite)
    }
    if not here:
        if suite is not None and not _any_holds(collected.suites, suite):
            yield f"no suite is called {_shown(suite)}"
        return
    whose = "its suite" if suite is not None else "any suite"
    if conditions.test is not None:
        here = {names: axes for names, axes in here.items() if one_holds(names[1], conditions.test)}
        if not here:
            yield f"no test of {whose} is called {_shown(conditions.test)}"
            return
        whose = "its test"
    missing = [
        name
        for name in conditions.axes
        if name not in IN_AXES and all(name not in axes for axes in here.values())
    ]
    if missing:
        yield f"no case of {whose} has the axis {', '.join(missing)}"
        return
    for name, wanted in conditions.axes.items():
        values = [value for axes in here.values() for value in axes.get(name, {}).values()]
        if name not in IN_AXES and not _any_holds(values, wanted):
            shown = _shown(dict.fromkeys(map(str, values)))
            yield f"in no case of {whose} {name} is {_shown(wanted)} (there are: {shown})"


def _any_holds(values: Iterable[object], wanted: Sequence[object]) -> bool:
    return any(one_holds(value, wanted) for value in values)


def _contradicts_itself(text: str) -> bool:
    wanted = VersionRange.parse(text)
    bounds = [bound.parts for _, bound in wanted.clauses]
    least = [(0,), *bounds, *((*parts[:-1], parts[-1] + 1) for parts in bounds)]
    # longer than any bound, so that it is compared with each to its last part
    zeros = (0,) * max(map(len, bounds))
    return not any(QnnVersion((*parts, *zeros)) in wanted for parts in least)


def _shown(values: Iterable[object]) -> str:
    listed = [str(value) for value in values]
    more = len(listed) - _MOST_SHOWN
    return ", ".join(listed[:_MOST_SHOWN]) + (f", and {more} more" if more > 0 else "")
