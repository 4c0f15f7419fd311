"""What history answers on a terminal (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from harness.answers.history.comparison_json import CaseSide
from harness.answers.history.facts import facts_line
from harness.answers.history.states import attempts_said
from harness.answers.history.timeline import RunHeld
from harness.answers.history.timeline_json import CaseRow, KindRow
from harness.answers.history.told import History
from harness.answers.report.document import as_text, shortened
from harness.ground.errors.outgoing_text import counted
from harness.verdict.results.coverage import LOST_TO

_SHOWN: Final = 40
_WIDTH: Final = 200


def lines(report: History) -> Iterator[str]:
    """For a terminal: kinds of failures, then the cases that fail or do not always pass."""
    if not report.rows:
        yield f"nothing is held of that{_lacks(report)}"
        return
    yield headline(report)
    for kind in report.kinds(_SHOWN):
        yield (
            f"{kind.failures:5} x {shortened(kind.kind, _WIDTH)}: {_days(kind)}, "
            f"{counted(kind.cases, 'case')}"
        )
        yield f"        on {_some(kind.devices)}; {_some(kind.versions)}"
        if kind.facts is not None:
            yield f"        {as_text(facts_line(kind.facts))}"
    if report.kind_rows > _SHOWN:
        yield f"... and {report.kind_rows - _SHOWN} more kinds"
    limits = dict[str, None]()
    for case in report.cases(_SHOWN, troubled=True):
        limits |= dict.fromkeys([case.limits] if case.limits else [])
        yield f"{case.recent}  {case.case}"
        yield f"        {ends(case)}; {rates(case)}"
        if len(case.kinds) > 1:
            yield f"        failed for {counted(len(case.kinds), 'cause')}: {_some(case.kinds)}"
        if case.first_bad_at and case.last_good_at:
            good, bad = case.last_good_at[:19], case.first_bad_at[:19]
            if case.changed:
                good, bad = good + _with(case.last_good), bad + _with(case.first_bad)
            beside = case.last_good_at >= case.first_bad_at  # what one run has ran in any order
            words = ("passed", "failed") if beside else ("last good", "first bad")
            yield f"        {words[0]} {good}, {words[1]} {bad}"
            command = case.hindrance if case.bisect is None else shlex.join(case.bisect)
            yield f"        {command}"
    if report.troubled > _SHOWN:
        yield f"... and {report.troubled - _SHOWN} more cases"
    yield from limits
    lost = report.lost_alone
    rest = report.rows - report.troubled - report.unjudged - lost
    said = [f"{counted(rest, 'case')} never failed"] if rest else []
    said += [f"{counted(lost, 'case')} never failed before the verdict was lost"] if lost else []
    said += [f"{counted(report.unjudged, 'case')} never had a verdict"] if report.unjudged else []
    yield ", ".join(said) or "each case failed at some time"


def _with(side: CaseSide | None) -> str:
    return f" ({shortened(side.versions, _WIDTH)})" if side is not None and side.versions else ""


def headline(report: History) -> str:
    """What it is about, how many cases have no verdict now, and how many left no record."""
    if not report.rows:
        return f"Nothing is held of that{_lacks(report)}"
    lost = f"; {counted(report.lost, 'case')} without a verdict in the last run"
    told = f"{counted(report.runs, 'run')}, {_days(report)}{lost if report.lost else ''}"
    return f"{told}{_lacks(report)}"


def _lacks(report: History) -> str:
    """In which runs cases left no record, so that nobody knows their names; empty if in none."""
    known = [one for one in report.lacking if one.not_run]
    unknown = [one for one in report.lacking if one.not_run is None]
    told = ""
    if known:
        count = counted(sum(one.not_run or 0 for one in known), "case")
        told += f"; {count} not run in {_runs(known)}"
    if unknown:
        told += f"; whether all was run is unknown of {_runs(unknown)}"
    return told


def _runs(found: Sequence[RunHeld]) -> str:
    newest = found[-1].run
    return newest if len(found) == 1 else f"{len(found)} runs, the last of them {newest}"


def ends(case: CaseRow) -> str:
    """How a case ends, and since when. One never judged neither passes nor fails; of one without a
    verdict now, how it ended before.
    """
    if not case.since:
        return "no verdict"
    if case.lost is not None:
        verb = "failed" if case.fails else "passed"
        return f"no verdict now, {LOST_TO[case.lost]}; {verb} before, since {case.since[:10]}"
    if case.state == "flaky":
        return f"flaky, {'failed' if case.fails else 'passed'} in its last run"
    return f"{'fails' if case.fails else 'passes'} since {case.since[:10]}"


def rates(case: CaseRow) -> str:
    """How often it passes, in words."""
    if not case.passed + case.failed:
        return f"{counted(case.no_verdict, 'run')}, none with a verdict"
    runs = case.passed + case.failed
    told = [f"{case.passed} of {counted(runs, 'run')} passed"]
    if case.attempts > runs:
        told.append(attempts_said(case.failed_attempts, case.attempts))
    if case.flaky_attempts is not None:
        failed = attempts_said(case.flaky_failed or 0, case.flaky_attempts)
        told.append(f"{failed} on the same versions")
    if case.flaky_runs:
        told.append(f"flaky within {counted(case.flaky_runs, 'run')}")
    if case.no_verdict:
        told.append(f"{case.no_verdict} without a verdict")
    if case.asked:
        told.append(f"asked: {shortened(case.asked, _WIDTH)}")
    return ", ".join(told)


def _days(seen: KindRow | History) -> str:
    first, last = seen.first[:10], seen.last[:10]
    return first if first == last else f"{first} to {last}"


def _some(names: tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(shortened(name, _WIDTH) for name in names[:most]) + more
