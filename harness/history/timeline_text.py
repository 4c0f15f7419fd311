"""The answers of `history`, put together on disk: text for a terminal, and JSON."""

from __future__ import annotations

import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal, Self

from harness.core.bounded_json import parse_json, parse_model
from harness.core.errors import InfraError
from harness.core.outgoing_text import counted
from harness.core.schema_field import Schema1
from harness.diagnosis.error import Part, signature_text
from harness.history.attempts import (
    Attempt,
    CaseAttempts,
    attempts_by_name,
    cause_id,
    limits_of,
)
from harness.history.comparison import Bisectable, Pair
from harness.history.comparison_json import CaseSide
from harness.history.states import (
    CaseState,
    StateKind,
    format_attempts,
    format_versions,
    versions_of,
)
from harness.history.surroundings import named_files
from harness.history.timeline import (
    MARKS,
    CaseLine,
    Filter,
    NightChange,
    StoredRun,
    kind_of,
    lines_of,
    mark_of,
)
from harness.report.document import Span, Style, as_text, shortened
from harness.results.coverage import LOST_TO, Fault

_DEVICES: Final = 5
_SOCS: Final = 4
_VERSIONS: Final = 2


class DeviceResult(Part):
    """A device that ran the tests of a cause: affected by it, or passes them, or fails otherwise.

    A device that fails as a known issue expects is affected, too.
    """

    device: str
    soc: str | None
    result: Literal["affected", "passes", "fails otherwise"]


class CauseFacts(Part):
    """The devices that a cause affects in the last run that had it, and those that it does not.

    `since` is the start of `since_run`, the run that it came with. `versions_changed` are those
    that changed then, in words; null if no earlier run has its cases. `files_changed` are files
    of tests, models and inputs that changed then. `only_with` are the versions with which it shows
    on these devices, if the tests pass there with others.
    """

    shows: Literal["fails", "flaky", "no verdict", "fixed"]
    devices: tuple[DeviceResult, ...]
    only_with: tuple[str, ...] = ()
    since: str
    since_run: str
    versions_changed: str | None = None
    files_changed: tuple[str, ...] = ()


LinkTo = Callable[..., Span]
"""Makes the text for a device or a night, with a link where there are pages, of its `kind`, its
`name` (the run's id for a night), perhaps another `text`, and a `style`."""


def _unlinked(kind: str, name: str, text: str = "", style: Style = "plain") -> Span:
    return Span(text or name, style=style)


def facts_line(facts: CauseFacts, link: LinkTo = _unlinked) -> list[str | Span]:
    """Return the facts as one line, as in `fails on 1 of 2 tested SM8750 (phone-1); passes on
    1 of 2 tested SM8750 (phone-2); since 2026-11-21; changed then: qnn 2.49.40 to 2.50.40`."""
    line: list[str | Span] = []
    for words, result in ((facts.shows, "affected"), ("passes", "passes")):
        if places := list(_places(facts, result, link)):
            line += ["; " if line else "", f"{words} on ", *places]
    line = line or [facts.shows]
    if facts.only_with:
        versions = _separated([[Span(name, style="code")] for name in facts.only_with], " or ")
        line += ["; only with ", *versions]
    line += ["; since ", link("night", facts.since_run, facts.since[:10])]
    changed = [facts.versions_changed] if facts.versions_changed else []
    changed += [named_files(facts.files_changed)] if facts.files_changed else []
    if not changed and facts.versions_changed is None:
        return [*line, ", its first stored run"]
    if not changed:
        return [*line, ", with the same versions"]
    names = _separated([[Span(name, style="code")] for name in changed], ", ")
    return [*line, "; changed then: ", *names]


def facts_of(
    changes: Sequence[NightChange],
    tested: Iterable[tuple[str, str, bool]],
    socs: Mapping[str, str | None],
    started: Mapping[int, tuple[str, str]],
) -> CauseFacts:
    """Return the facts of a cause by the changes of its cases in a run, of which there is one.

    `tested` has, for the tests of these cases in that run, each device, versions, and whether all
    passed there. `started` has the id and the start of each run by its place.
    """
    tested = list(tested)
    affected = {change.device for change in changes if change.device}
    failed_otherwise = {device for device, _, passed in tested if not passed}
    bad = {change.versions for change in changes}
    good = {versions for device, versions, passed in tested if passed and device in affected}
    kinds = {change.became for change in changes}
    since = min(change.since for change in changes)
    run, run_started = started[since]
    changed = [change.changed for change in changes if change.since == since]
    return CauseFacts(
        shows="no verdict"
        if "lost" in kinds
        else "fixed"
        if kinds == {"fixed"}
        else "flaky"
        if kinds == {"flaky"}
        else "fails",
        devices=tuple(
            DeviceResult(
                device=device,
                soc=socs.get(device),
                result="affected"
                if device in affected
                else "fails otherwise"
                if device in failed_otherwise
                else "passes",
            )
            for device in sorted(affected | {device for device, _, _ in tested})
        ),
        only_with=tuple(sorted(bad)) if len(bad) <= _VERSIONS and good - bad else (),
        since=run_started,
        since_run=run,
        versions_changed=max((words for words in changed if words is not None), default=None),
    )


def _places(facts: CauseFacts, result: str, link: LinkTo) -> Iterator[str | Span]:
    """Yield the devices with a result by SoC, and how many were tested."""
    by_soc: dict[str | None, list[DeviceResult]] = {}
    for device in facts.devices:
        by_soc.setdefault(device.soc, []).append(device)
    parts = list[list[str | Span]]()
    judged = "" if facts.shows == "no verdict" else "tested "
    for soc, of_soc in sorted(by_soc.items(), key=lambda item: item[0] or ""):
        names = [device.device for device in of_soc if device.result == result]
        if not names:
            continue
        # one more name takes no more room than "and 1 more"
        shown = names if len(names) == _DEVICES + 1 else names[:_DEVICES]
        listed = _separated([[link("device", name, style="code")] for name in shown], ", ")
        listed += [f" and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
        kind = Span(soc, style="code") if soc else "devices"
        parts.append([f"{len(names)} of {len(of_soc)} {judged}", kind, " (", *listed, ")"])
    yield from _separated(parts[:_SOCS], ", ")
    if len(parts) > _SOCS:
        yield f" and on {len(parts) - _SOCS} more SoCs"


def _separated(parts: Sequence[Sequence[str | Span]], separator: str) -> list[str | Span]:
    return [piece for part in parts for piece in (separator, *part)][1:]


class KindRow(Part):
    """A kind of failure: when it was seen, how often, where, with which versions.

    `facts` are those of its most frequent cause in the last runs, if a case still fails so.
    """

    kind: str
    first: str
    last: str
    failures: int
    runs: int
    cases: int
    devices: tuple[str, ...]
    versions: tuple[str, ...]
    facts: CauseFacts | None = None


class CaseRow(Bisectable):
    """A case through all runs; with other options for its file (`asked`) it is another case.

    `recent` has a character for each of its last runs: `.` passed, `F` failed, `x` failed as
    expected, `~` flaky, `?` lost to the lab, the harness or wrong input, `-` not tested. `since` is
    when it began to end as it does, `lost` why it has no verdict in its last run. Runs are counted
    by their last attempt, `attempts` counts all. `last_good` and `first_bad` are the last pass and
    the first failure after it; if it never passed with its own versions, the last pass with other
    ones. `state` is judged by its last runs; of a flaky case, `flaky_failed` of the
    `flaky_attempts` with the same versions failed. `limits` are those of simulated devices, if
    only these show that it fails.
    """

    case: str
    asked: str = ""
    fails: bool
    lost: Fault | None
    since: str
    runs: int
    passed: int
    failed: int
    expected: int
    no_verdict: int
    flaky_runs: int
    attempts: int = 0
    failed_attempts: int = 0
    pass_rate: float | None
    state: StateKind | None = None
    flaky_failed: int | None = None
    flaky_attempts: int | None = None
    recent: str
    kinds: tuple[str, ...]
    last_good: CaseSide | None
    last_good_at: str | None
    first_bad: CaseSide | None
    first_bad_at: str | None
    limits: str | None = None


class LackingRun(Part):
    """A run in which `not_run` cases left no record; null if the number is unknown."""

    run: str
    started: str
    not_run: int | None


class HistoryReport(Part):
    """The history of the cases that were asked for. `lost` is the number of cases without a verdict
    in the last run that has them. `lacking` are runs in which cases left no record, whatever their
    names.
    """

    schema_number: Schema1 = 1
    kind: Literal["history"] = "history"
    runs: int
    first: str
    last: str
    lost: int
    lacking: tuple[LackingRun, ...]
    kinds: tuple[KindRow, ...]
    cases: tuple[CaseRow, ...]


def case_row(line: CaseLine, bisectable: Callable[[Pair, CaseState | None], Bisectable]) -> CaseRow:
    """Return the row of a line; `bisectable` returns the bisection between pass and failure."""
    edge = line.edge
    good, bad = (edge.before, edge.after) if edge is not None else (None, None)
    state = line.case_state
    flaky = state if state and state.is_flaky else None
    runs, verdicts = len(line.runs), len(line.judged_runs)
    failures = [attempts.last for attempts in line.judged_runs if attempts.last.is_bad]
    passed = verdicts - len(failures)
    return CaseRow(
        case=line.last.case,
        asked=line.last.file_options,
        fails=line.fails,
        lost=line.last.fault,
        since=line.since,
        runs=runs,
        passed=passed,
        failed=len(failures),
        expected=sum(attempt.known_issue is not None for attempt in failures),
        no_verdict=runs - verdicts,
        flaky_runs=sum(run.is_flaky for run in line.runs),
        attempts=sum(run.verdicts for run in line.judged_runs),
        failed_attempts=sum(run.failed for run in line.judged_runs),
        pass_rate=passed / verdicts if verdicts else None,
        state=state.kind if state else None,
        flaky_failed=flaky.failed if flaky else None,
        flaky_attempts=flaky.verdicts if flaky else None,
        recent="".join(map(mark_of, line.runs[-MARKS:])),
        kinds=tuple(kind for kind, _ in Counter(map(kind_of, failures)).most_common()),
        last_good=CaseSide.of(good),
        last_good_at=good.started if good else None,
        first_bad=CaseSide.of(bad),
        first_bad_at=line.since if bad else None,
        limits=limits_of(filter(None, (good, line.bad))) if line.fails else None,
        **dict(bisectable(edge, state) if edge is not None else Bisectable()),
    )


_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE cases (passes, judged, rate, name, troubled, failing, row);
    CREATE TABLE failures (kind, case_group, run, started, device, versions, cause);
"""
_KINDS: Final = """
    SELECT kind, min(started) AS first, max(started) AS last, count(*) AS failures,
        count(DISTINCT run) AS runs, count(DISTINCT case_group) AS cases,
        json_group_array(DISTINCT device) AS devices,
        json_group_array(DISTINCT versions) AS versions
    FROM failures WHERE :diagnosis IN ('', kind)
    GROUP BY kind ORDER BY failures DESC, kind LIMIT :most
"""
# no row if no case still fails so
_CAUSE: Final = """
    SELECT cause FROM failures
    WHERE kind = :kind AND EXISTS (SELECT 1 FROM cases WHERE failing = :kind)
    GROUP BY cause ORDER BY count(*) DESC, max(started) DESC LIMIT 1
"""


class History:
    """The history of the cases that were asked for, whose rows are read one at a time.

    `rows` is their number. `troubled` of them failed or were flaky at some time, `unjudged` never
    had a verdict, `lost` have none in their last run; `lost_alone` of these are neither of the
    other two.
    """

    def __init__(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        runs: Sequence[StoredRun],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
        criteria: Filter,
        facts: Callable[[str], CauseFacts | None],
    ) -> None:
        """Read attempts, each with the key of its group and its run, sorted by these.

        `runs` are all stored runs, the newest last; `facts` returns those of a cause by its id,
        when kinds are read. If a diagnosis is asked for, other cases are left out. Raises
        InfraError if the disk is full.
        """
        self.lacking = [run for run in runs if run.not_run != 0 and criteria.spans(run.started)]
        self.runs, self.first, self.last = 0, "", ""
        self.rows = self.troubled = self.unjudged = self.kind_rows = 0
        self.lost = self.lost_alone = 0
        self._diagnosis, self._facts = criteria.diagnosis, facts
        # a temporary file, deleted when it is closed
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(_TABLES)
        try:
            self._add(attempts, {run.run: index for index, run in enumerate(runs)}, bisectable)
        except sqlite3.Error as error:
            self._rows.close()
            raise InfraError(f"cannot put history together: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def kinds(self, most: int = -1) -> Iterator[KindRow]:
        """Yield the first kinds of failures, the most frequent first."""
        for row in self._rows.execute(_KINDS, {"diagnosis": self._diagnosis, "most": most}):
            kind = dict(row)
            listed = {name: sorted(parse_json(kind[name])) for name in ("devices", "versions")}
            cause = self._rows.execute(_CAUSE, {"kind": row["kind"]}).fetchone()
            yield KindRow(**kind | listed, facts=self._facts(cause["cause"]) if cause else None)

    def cases(self, most: int = -1, *, troubled: bool = False) -> Iterator[CaseRow]:
        """Return the first cases, failing ones first; with `troubled`, only these."""
        only = "WHERE troubled" if troubled else ""
        order = "passes, judged DESC, rate, name, rowid"
        rows = self._rows.execute(f"SELECT row FROM cases {only} ORDER BY {order} LIMIT ?", [most])
        return (parse_model(CaseRow, row["row"]) for row in rows)

    def _add(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        order: Mapping[str, int],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
    ) -> None:
        runs = set[str]()
        for group, of_group in groupby(attempts, key=lambda entry: entry[0]):
            cases = by_run(of_group, order)
            runs.update(run for run, _ in cases)
            for run, of_run in cases:
                for attempts_at_case in of_run.values():
                    self._note(group, run, attempts_at_case)
            for line in lines_of(of_run for _, of_run in cases):
                row = case_row(line, bisectable)
                if self._diagnosis and self._diagnosis not in row.kinds:
                    continue
                troubled = bool(row.failed or row.flaky_runs)
                self.rows += 1
                self.troubled += troubled
                self.unjudged += not row.since
                self.lost += row.lost is not None
                self.lost_alone += row.lost is not None and bool(row.since) and not troubled
                failing = kind_of(line.judged) if line.judged and line.fails else None
                # cases that were never judged come last, since a page has limited room
                key = not row.fails, bool(row.since), row.pass_rate or 0.0, row.case
                self._insert("cases", *key, troubled, failing, row.model_dump_json())
        self.runs = len(runs)
        for name in ("failures (kind, cause, started)", "cases (failing)"):
            self._rows.execute(f"CREATE INDEX by_{name.partition(' ')[0]} ON {name}")
        kinds = "SELECT count(DISTINCT kind) FROM failures WHERE ? IN ('', kind)"
        (self.kind_rows,) = self._rows.execute(kinds, [self._diagnosis]).fetchone()

    def _note(self, group: str, run: str, attempts: CaseAttempts) -> None:
        last = attempts.last
        self.first = min(self.first or last.started, last.started)
        self.last = max(self.last, last.started)
        if last.is_bad and last.has_verdict:
            ran_with = last.device or "?", format_versions(versions_of(last))
            self._insert(
                "failures", kind_of(last), group, run, attempts.started, *ran_with, cause_id(last)
            )

    def _insert(self, table: str, *row: Any) -> None:
        marks = ", ".join("?" * len(row))
        self._rows.execute(f"INSERT INTO {table} VALUES ({marks})", row)


def by_run(
    attempts: Iterable[tuple[str, str, Attempt]], order: Mapping[str, int]
) -> list[tuple[str, dict[str, CaseAttempts]]]:
    """Group the attempts of a case group by run, oldest first; `order` has the indexes of runs."""
    runs = [
        (run, attempts_by_name((attempt for _, _, attempt in of_run), order.get(run, -1)))
        for run, of_run in groupby(attempts, key=lambda entry: entry[1])
    ]
    return sorted(runs, key=lambda entry: order.get(entry[0], -1))


_SHOWN: Final = 40
_WIDTH: Final = 200


def lines(report: History) -> Iterator[str]:
    """Yield lines for a terminal: kinds of failures, then cases that fail or do not always pass."""
    if not report.rows:
        yield f"the history has no such case{_lacks(report)}"
        return
    yield headline(report)
    for kind in report.kinds(_SHOWN):
        yield (
            f"{kind.failures:5} x {shortened(signature_text(kind.kind), _WIDTH)}: {_days(kind)}, "
            f"{counted(kind.cases, 'case')}"
        )
        yield f"        on {_some(kind.devices)}; {_some(kind.versions)}"
        if kind.facts is not None:
            yield f"        {as_text(facts_line(kind.facts))}"
    if report.kind_rows > _SHOWN:
        yield f"... and {counted(report.kind_rows - _SHOWN, 'more kind')}"
    limits = dict[str, None]()
    for case in report.cases(_SHOWN, troubled=True):
        limits |= dict.fromkeys([case.limits] if case.limits else [])
        yield f"{case.recent}  {case.case}"
        yield f"        {ends(case)}; {rates(case)}"
        if len(case.kinds) > 1:
            kinds = tuple(map(signature_text, case.kinds))
            yield f"        failed for {counted(len(kinds), 'cause')}: {_some(kinds)}"
        if case.first_bad_at and case.last_good_at:
            good, bad = case.last_good_at[:19], case.first_bad_at[:19]
            if case.changed:
                good, bad = good + _with(case.last_good), bad + _with(case.first_bad)
            same_run = case.last_good_at >= case.first_bad_at  # cases of one run have no order
            words = ("passed", "failed") if same_run else ("last good", "first bad")
            yield f"        {words[0]} {good}, {words[1]} {bad}"
            command = case.hindrance if case.bisect is None else shlex.join(case.bisect)
            yield f"        {command}"
    if report.troubled > _SHOWN:
        yield f"... and {counted(report.troubled - _SHOWN, 'more case')}"
    yield from limits
    lost = report.lost_alone
    rest = report.rows - report.troubled - report.unjudged - lost
    parts = [f"{counted(rest, 'case')} never failed"] if rest else []
    parts += [f"{counted(lost, 'case')} never failed before the verdict was lost"] if lost else []
    parts += [f"{counted(report.unjudged, 'case')} never had a verdict"] if report.unjudged else []
    yield ", ".join(parts) or "each case failed at some time"


def _with(side: CaseSide | None) -> str:
    return f" ({shortened(side.versions, _WIDTH)})" if side is not None and side.versions else ""


def headline(report: History) -> str:
    """Return the number of runs, their days, and how many cases lack a verdict or a record."""
    if not report.rows:
        return f"The history has no such case{_lacks(report)}"
    lost = f"; {counted(report.lost, 'case')} without a verdict in the last run"
    summary = f"{counted(report.runs, 'run')}, {_days(report)}{lost if report.lost else ''}"
    return f"{summary}{_lacks(report)}"


def _lacks(report: History) -> str:
    """Return the runs in which cases left no record, in words; empty if there are none."""
    known = [run for run in report.lacking if run.not_run]
    unknown = [run for run in report.lacking if run.not_run is None]
    text = ""
    if known:
        count = counted(sum(run.not_run or 0 for run in known), "case")
        text += f"; {count} not run in {_runs(known)}"
    if unknown:
        text += f"; whether all was run is unknown of {_runs(unknown)}"
    return text


def _runs(runs: Sequence[StoredRun]) -> str:
    newest = runs[-1].run
    return newest if len(runs) == 1 else f"{counted(len(runs), 'run')}, the last of them {newest}"


def ends(case: CaseRow) -> str:
    """Return how a case ends and since when, in words; without a verdict now, how it ended before.

    A case that was never judged neither passes nor fails.
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
    """Return how often a case passes, in words."""
    if not case.passed + case.failed:
        return f"{counted(case.no_verdict, 'run')}, none with a verdict"
    runs = case.passed + case.failed
    parts = [f"{case.passed} of {counted(runs, 'run')} passed"]
    if case.attempts > runs:
        parts.append(format_attempts(case.failed_attempts, case.attempts))
    if case.flaky_attempts is not None:
        failed = format_attempts(case.flaky_failed or 0, case.flaky_attempts)
        parts.append(f"{failed} on the same versions")
    if case.flaky_runs:
        parts.append(f"flaky within {counted(case.flaky_runs, 'run')}")
    if case.no_verdict:
        parts.append(f"{case.no_verdict} without a verdict")
    if case.asked:
        parts.append(f"asked: {shortened(case.asked, _WIDTH)}")
    return ", ".join(parts)


def _days(period: KindRow | History) -> str:
    first, last = period.first[:10], period.last[:10]
    return first if first == last else f"{first} to {last}"


def _some(names: tuple[str, ...], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(shortened(name, _WIDTH) for name in names[:most]) + more
