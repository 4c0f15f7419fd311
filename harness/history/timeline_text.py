"""What history answers, put together on the disk: as text for a terminal, and as JSON."""

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
    EarlierAttempts,
    attempts_by_name,
    cause_id,
    limits_of,
)
from harness.history.comparison import Bisectable, Pair
from harness.history.comparison_json import CaseSide
from harness.history.states import (
    CaseState,
    StateKind,
    attempts_said,
    said_versions,
    versions_of,
)
from harness.history.surroundings import named_files
from harness.history.timeline import (
    MARKS,
    CaseLine,
    Filter,
    NightChange,
    RunHeld,
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
    """A device that ran the tests of a cause: `affected` by it, `passes` them, or fails otherwise.

    What fails as a known issue expects is affected, too.
    """

    device: str
    soc: str | None
    result: Literal["affected", "passes", "fails otherwise"]


class CauseFacts(Part):
    """Where a cause shows in the last run that had it, and where the same tests pass.

    `since` is the start of `since_run`, the run that it came with. `versions_changed` are those
    that changed then, in words; null if no run before that has its cases. `files_changed` are files
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
"""Makes the words for a device or a night, with a link where there are pages: of its `kind`, its
`name` (of a night, the id of its run), perhaps another `text`, and a `style`."""


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
        return [*line, ", its first run that is held"]
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
    """Return the facts of a cause by what a run changed of its cases, of which there is one.

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
    run, begun = started[since]
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
        since=begun,
        since_run=run,
        versions_changed=max((words for words in changed if words is not None), default=None),
    )


def _places(facts: CauseFacts, result: str, link: LinkTo) -> Iterator[str | Span]:
    """The devices with a result by their SoCs, and of how many that were tested."""
    by_soc: dict[str | None, list[DeviceResult]] = {}
    for device in facts.devices:
        by_soc.setdefault(device.soc, []).append(device)
    parts = list[list[str | Span]]()
    judged = "" if facts.shows == "no verdict" else "tested "
    for soc, of_soc in sorted(by_soc.items(), key=lambda item: item[0] or ""):
        names = [device.device for device in of_soc if device.result == result]
        if not names:
            continue
        # one more name takes no more room than the words that there is one more
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

    `facts` are those of its most frequent cause by the last runs, if some case still fails so.
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
    """A case through all runs; with what else is `asked` of its file it is another case.

    `recent` has a character for each of its last runs: `.` passed, `F` failed, `x` failed as
    expected, `~` flaky, `?` lost to the lab, the harness or wrong input, `-` not tested. `since` is
    when it began to end as it does, `lost` why it has no verdict in its last run. Runs are counted
    by their last attempt, `attempts` are all of them. `last_good` and `first_bad` are the last pass
    and the first failure after it; of what never passed with its own versions, the last pass with
    other ones. `state` is what its last runs make of it; of what is flaky, `flaky_failed` of the
    `flaky_attempts` with the same versions failed. `limits` are those of simulated devices, if they
    alone tell that it fails.
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
    """A run in which `not_run` cases left no record; null where it does not say how many it had."""

    run: str
    started: str
    not_run: int | None


class HistoryReport(Part):
    """What the runs that are held say of what was asked for. `lost` is how many cases lack a
    verdict in the last run that has them. `lacking` are runs in which cases left no record,
    whatever their names.
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
    """A line as it is told; `bisectable` says how to find what changed from pass to failure."""
    edge = line.edge
    good, bad = (edge.before, edge.after) if edge is not None else (None, None)
    state = line.case_state
    flaky = state if state and state.is_flaky else None
    runs, verdicts = len(line.seen), len(line.seen_judged)
    failures = [one.last for one in line.seen_judged if one.last.is_bad]
    passed = verdicts - len(failures)
    return CaseRow(
        case=line.last.case,
        asked=line.last.asked,
        fails=line.fails,
        lost=line.last.fault,
        since=line.since,
        runs=runs,
        passed=passed,
        failed=len(failures),
        expected=sum(one.known_issue is not None for one in failures),
        no_verdict=runs - verdicts,
        flaky_runs=sum(one.is_flaky for one in line.seen),
        attempts=sum(one.verdicts for one in line.seen_judged),
        failed_attempts=sum(one.failed for one in line.seen_judged),
        pass_rate=passed / verdicts if verdicts else None,
        state=state.kind if state else None,
        flaky_failed=flaky.failed if flaky else None,
        flaky_attempts=flaky.verdicts if flaky else None,
        recent="".join(map(mark_of, line.seen[-MARKS:])),
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
    CREATE TABLE failures (kind, kin, run, started, device, versions, cause);
"""
_KINDS: Final = """
    SELECT kind, min(started) AS first, max(started) AS last, count(*) AS failures,
        count(DISTINCT run) AS runs, count(DISTINCT kin) AS cases,
        json_group_array(DISTINCT device) AS devices,
        json_group_array(DISTINCT versions) AS versions
    FROM failures WHERE :diagnosis IN ('', kind)
    GROUP BY kind ORDER BY failures DESC, kind LIMIT :most
"""
# none, if no case ends so any more
_CAUSE: Final = """
    SELECT cause FROM failures
    WHERE kind = :kind AND EXISTS (SELECT 1 FROM cases WHERE failing = :kind)
    GROUP BY cause ORDER BY count(*) DESC, max(started) DESC LIMIT 1
"""


class History:
    """What the runs that are held say of what was asked for: rows are read one at a time.

    The counts say how many `rows` are troubled (failed or flaky at some time), unjudged, or lost in
    their last run, and how many of the lost are neither of the other two.
    """

    def __init__(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        held: Sequence[RunHeld],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
        asked: Filter,
        facts: Callable[[str], CauseFacts | None],
    ) -> None:
        """Put attempts together, each with its kin and its run: those of one kin and run behind
        each other. `held` are all runs, the newest last; `facts` gives those of a cause by its id,
        when kinds are read.

        If a diagnosis is asked for, only what concerns that. Raises InfraError if the disk is full.
        """
        self.lacking = [run for run in held if run.not_run != 0 and asked.spans(run.started)]
        self.runs, self.first, self.last = 0, "", ""
        self.rows = self.troubled = self.unjudged = self.kind_rows = 0
        self.lost = self.lost_alone = 0
        self._diagnosis, self._facts = asked.diagnosis, facts
        # a file of its own that nobody sees, and that goes when it is closed
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(_TABLES)
        try:
            self._take(attempts, {run.run: at for at, run in enumerate(held)}, bisectable)
        except sqlite3.Error as error:
            self._rows.close()
            raise InfraError(f"cannot put history together: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def kinds(self, most: int = -1) -> Iterator[KindRow]:
        """The first kinds of failures, the most frequent before others."""
        for row in self._rows.execute(_KINDS, {"diagnosis": self._diagnosis, "most": most}):
            kind = dict(row)
            listed = {name: sorted(parse_json(kind[name])) for name in ("devices", "versions")}
            cause = self._rows.execute(_CAUSE, {"kind": row["kind"]}).fetchone()
            yield KindRow(**kind | listed, facts=self._facts(cause["cause"]) if cause else None)

    def cases(self, most: int = -1, *, troubled: bool = False) -> Iterator[CaseRow]:
        """The first cases, those that fail before others; also of the `troubled` cases alone."""
        only = "WHERE troubled" if troubled else ""
        order = "passes, judged DESC, rate, name, rowid"
        rows = self._rows.execute(f"SELECT row FROM cases {only} ORDER BY {order} LIMIT ?", [most])
        return (parse_model(CaseRow, row["row"]) for row in rows)

    def _take(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        order: Mapping[str, int],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
    ) -> None:
        runs = set[str]()
        for kin, of_kin in groupby(attempts, key=lambda one: one[0]):
            cases = by_run(of_kin, order)
            runs.update(run for run, _ in cases)
            for run, of_run in cases:
                for one in of_run.values():
                    self._note(kin, run, one)
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
                # what was never judged comes last: a page has room for so many only
                key = not row.fails, bool(row.since), row.pass_rate or 0.0, row.case
                self._insert("cases", *key, troubled, failing, row.model_dump_json())
        self.runs = len(runs)
        for name in ("failures (kind, cause, started)", "cases (failing)"):
            self._rows.execute(f"CREATE INDEX by_{name.partition(' ')[0]} ON {name}")
        kinds = "SELECT count(DISTINCT kind) FROM failures WHERE ? IN ('', kind)"
        (self.kind_rows,) = self._rows.execute(kinds, [self._diagnosis]).fetchone()

    def _note(self, kin: str, run: str, seen: EarlierAttempts) -> None:
        last = seen.last
        self.first = min(self.first or last.started, last.started)
        self.last = max(self.last, last.started)
        if last.is_bad and last.has_verdict:
            ran_with = last.device or "?", said_versions(versions_of(last))
            self._insert("failures", kind_of(last), kin, run, seen.begun, *ran_with, cause_id(last))

    def _insert(self, table: str, *row: Any) -> None:
        marks = ", ".join("?" * len(row))
        self._rows.execute(f"INSERT INTO {table} VALUES ({marks})", row)


def by_run(
    attempts: Iterable[tuple[str, str, Attempt]], order: Mapping[str, int]
) -> list[tuple[str, dict[str, EarlierAttempts]]]:
    """The attempts of one kin by run, the oldest first; `order` has the places of runs."""
    found = [
        (run, attempts_by_name((attempt for _, _, attempt in of_run), order.get(run, -1)))
        for run, of_run in groupby(attempts, key=lambda one: one[1])
    ]
    return sorted(found, key=lambda one: order.get(one[0], -1))


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
            beside = case.last_good_at >= case.first_bad_at  # what one run has ran in any order
            words = ("passed", "failed") if beside else ("last good", "first bad")
            yield f"        {words[0]} {good}, {words[1]} {bad}"
            command = case.hindrance if case.bisect is None else shlex.join(case.bisect)
            yield f"        {command}"
    if report.troubled > _SHOWN:
        yield f"... and {counted(report.troubled - _SHOWN, 'more case')}"
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
    return newest if len(found) == 1 else f"{counted(len(found), 'run')}, the last of them {newest}"


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
