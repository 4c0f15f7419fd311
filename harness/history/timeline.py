"""Cases, kinds of failures and causes over many runs: since when, where, and what changed."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Final, Literal, NamedTuple

from harness.core.json_record import Part, Schema1
from harness.core.outgoing_text import counted, first_names, shortened
from harness.diagnosis.error_record import signature_text
from harness.history.attempts import (
    Attempt,
    CaseAttempts,
    attempts_by_name,
    cause_id,
    limits_of,
    same_failure,
)
from harness.history.case_states import (
    CaseState,
    StateKind,
    format_attempts,
    format_versions,
    state_of,
    versions_of,
)
from harness.history.comparison import Bisectable, Pair
from harness.history.comparison_text import CaseSide
from harness.history.environment_differences import named_files
from harness.report.document import Span, Style, as_text
from harness.results.coverage import LOST_TO, Fault
from harness.runtimes.runtime import version_key
from harness.transport.transport_errors import NO_SERVER

MARKS: Final = 30
"""The number of a case's last runs that are shown, one character each."""


class StoredRun(NamedTuple):
    """A run of the history. `not_run` of its cases have no record; None if the number is unknown.
    `digest` changes with its journal and with the number of its attempts that count."""

    run: str
    started: str
    not_run: int | None
    digest: str


@dataclass(frozen=True)
class Filter:
    """The criteria of a query; without any, all attempts match."""

    case: str = ""
    case_group: str = ""
    diagnosis: str = ""
    device: str = ""
    since: str = ""
    failing: bool = False
    """True for all attempts of tests that failed or lost a verdict in one of these runs."""


@dataclass
class CaseLine:
    """A case through all runs, from version to version."""

    last: Attempt
    since: str = ""
    turned: int = -1
    """The index of the run since which it ends as it does; -1 if it always did."""
    good: Attempt | None = None
    bad: Attempt | None = None
    good_with_others: Attempt | None = None
    """The last pass of its group with other versions, if it never passed with its own."""
    runs: list[CaseAttempts] = field(default_factory=list)
    judged_runs: list[CaseAttempts] = field(default_factory=list)
    """Those of `runs` that ended with a verdict."""
    judged: Attempt | None = None

    @classmethod
    def of(cls, runs: Sequence[CaseAttempts]) -> CaseLine:
        """Make the line of a case through these runs, of which there is at least one."""
        line = cls(runs[0].last)
        for attempts in runs:
            line.add(attempts)
        return line

    def add(self, attempts: CaseAttempts) -> None:
        now = self.last = attempts.last
        self.runs.append(attempts)
        if not now.has_verdict:
            return
        self.judged_runs.append(attempts)
        before, self.judged = self.judged, now
        if before is None or before.is_bad != now.is_bad:
            self.since, self.turned = attempts.started, attempts.run_index
        if not now.is_bad:
            self.good, self.bad = now, None
        elif self.bad is None:
            self.bad = now

    @property
    def fails(self) -> bool:
        return self.judged is not None and self.judged.is_bad

    @cached_property
    def case_state(self) -> CaseState | None:
        """The state by its last runs, once all are added; None without any verdict."""
        return state_of(self.judged_runs[-MARKS:])

    @property
    def edge(self) -> Pair | None:
        """The last pass and the first failure after it; None if it does not fail, or never passed
        with any versions."""
        good = self.good or self.good_with_others
        return Pair(good, self.bad) if good and self.bad else None


def lines_of(runs: Iterable[Mapping[str, CaseAttempts]]) -> list[CaseLine]:
    """Return a line for each case of a group; the oldest run comes first.

    A case continues under the name that newer versions give it, if it is alone in both runs and its
    old name never comes back. Versions that run side by side are separate cases.
    """
    runs = list(runs)
    last = {name: i for i, cases in enumerate(runs) for name in cases}
    lines: dict[str, CaseLine] = {}
    listed: list[CaseLine] = []
    for i, cases in enumerate(runs):
        for name, attempts in cases.items():
            line, now = lines.get(name), attempts.last
            if line is None and len(listed) == len(cases) == 1 and last[listed[0].last.case] < i:
                before = dict(versions_of(listed[0].last))
                pairs = ((before.get(axis), new) for axis, new in versions_of(now))
                newer = all(
                    version_key(new) >= version_key(old) for old, new in pairs if old and new
                )
                line = listed[0] if newer else None
            if line is None or not line.last.may_be(now):
                line = CaseLine(now)
                listed.append(line)
            lines[name] = line
            line.add(attempts)
    for line in listed:
        if line.bad is not None and line.good is None:
            passes = (other.good for other in listed if other.good and not other.fails)
            near = [attempt for attempt in passes if attempt.may_be(line.bad)]
            line.good_with_others = max(near, key=lambda attempt: attempt.started, default=None)
    return listed


def kind_of(attempt: Attempt) -> str:
    """Return the key by which failures are counted: the adb server that cost the verdict, the
    diagnosis, or else the signature."""
    if attempt.server:
        return f"{NO_SERVER}{attempt.server}"
    return attempt.diagnosis or attempt.signature


def mark_of(attempts: CaseAttempts) -> str:
    """Return the result of a case in a run as one character."""
    attempt = attempts.last
    if attempts.is_flaky:
        return "~"
    if not attempt.has_verdict:
        return "?" if attempt.fault is not None else "-"
    if not attempt.is_bad:
        return "."
    return "x" if attempt.known_issue else "F"


Became = Literal["new", "still", "flaky", "lost", "known", "fixed"]
TITLES: Final[dict[Became, str]] = {
    "new": "New",
    "still": "Still failing",
    "flaky": "Flaky",
    "lost": "Without a verdict",
    "known": "Expected failures",
    "fixed": "Fixed",
}
"""The sections of a night's page, in this order."""


class NightChange(NamedTuple):
    """The change of a case in the run with index `run_index`.

    `cause` is the id of what went wrong (before, if it is fixed), `kind` its diagnosis or
    signature. `since` is the index of the run that it began with, `changed` are the versions that
    changed then, None if no earlier run has the case. `known_issue` is the id of the known issue
    that expects it.
    """

    run_index: int
    became: Became
    cause: str
    kind: str
    outcome: str
    test: str
    case: str
    device: str
    since: int
    changed: str | None
    versions: str
    known_issue: str | None


def changes_of(
    line: CaseLine, first: int, earlier: Sequence[CaseAttempts] = ()
) -> Iterator[NightChange]:
    """Yield the changes of a case in the runs from index `first` on; none while it just passes.

    `earlier` are runs before the line; the last change among them is enough.
    """
    if set(map(mark_of, line.runs)) == {"."}:
        return
    judged: Attempt | None = None
    since, changed, lost, verdicts = -1, None, -1, -sum(run.last.has_verdict for run in earlier)
    for run in (*earlier, *line.runs):
        last = run.last
        if last.fault is not None:
            lost = run.run_index if lost < 0 else lost
            if run.run_index >= first:
                yield _change(run.run_index, "lost", last, last, lost, "")
        if not last.has_verdict:
            continue
        lost, verdicts = -1, verdicts + 1
        turned = judged is not None and judged.is_bad != last.is_bad
        if judged is None:
            since = run.run_index
        elif turned or (last.is_bad and not same_failure(judged, last)):
            since, changed = run.run_index, versions_changed(judged, last)
        if run.run_index >= first and (turned or run.failed):
            recent = line.judged_runs[max(0, verdicts - MARKS) : verdicts]
            became = _became(recent, run, new=turned or judged is None)
            before = judged if judged is not None and judged.is_bad else last
            failure = run.bad or (last if last.is_bad else before)
            yield _change(run.run_index, became, last, failure, since, changed)
        judged = last


def _became(recent: Sequence[CaseAttempts], now: CaseAttempts, *, new: bool) -> Became:
    state = state_of(recent)
    if state is not None and state.is_flaky:
        return "flaky"
    if not now.last.is_bad:
        return "fixed"
    return "known" if now.last.known_issue else "new" if new else "still"


def _change(
    run_index: int, became: Became, now: Attempt, failure: Attempt, since: int, changed: str | None
) -> NightChange:
    device = now.device or ""
    names = (cause_id(failure), kind_of(failure), failure.outcome, now.test, now.case, device)
    versions = format_versions(versions_of(now))
    return NightChange(run_index, became, *names, since, changed, versions, now.known_issue)


def versions_changed(before: Attempt, after: Attempt) -> str:
    """Return the versions that changed, in words; empty if none did."""
    was = dict(versions_of(before))
    changes = ((name, was.get(name), version) for name, version in versions_of(after))
    return ", ".join(
        f"{name} {old or 'none'} to {new or 'none'}" for name, old, new in changes if old != new
    )


_DEVICES: Final = 5
_SOCS: Final = 4
_VERSIONS: Final = 2


DeviceEnd = Literal["affected", "passes", "fails differently"]


class DeviceResult(Part):
    """A device that ran the tests of a cause: affected by it, or passes them, or fails differently.

    A device that fails as a known issue expects is affected, too.
    """

    device: str
    soc: str | None
    result: DeviceEnd


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


Tested = dict[tuple[str, str], bool]
"""For each device and versions whether all tests passed there."""
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
    tested: Tested,
    socs: Mapping[str, str | None],
    runs: Sequence[StoredRun],
) -> CauseFacts:
    """Return the facts of a cause by the changes of its cases in a run, of which there is one.

    `tested` is about the tests of these cases in that run.
    """
    affected = {change.device for change in changes if change.device}
    results: dict[str, DeviceEnd] = {device: "passes" for device, _ in tested}
    results |= {device: "fails differently" for (device, _), passed in tested.items() if not passed}
    results |= dict.fromkeys(affected, "affected")
    bad = {change.versions for change in changes}
    good = {versions for (device, versions), ok in tested.items() if ok and device in affected}
    kinds = [*{change.became for change in changes}]
    only = kinds[0] if len(kinds) == 1 else None
    since = min(change.since for change in changes)
    changed = (change.changed for change in changes if change.since == since)
    return CauseFacts(
        shows="no verdict" if "lost" in kinds else only if only in ("fixed", "flaky") else "fails",
        devices=tuple(
            DeviceResult(device=device, soc=socs.get(device), result=result)
            for device, result in sorted(results.items())
        ),
        only_with=tuple(sorted(bad)) if len(bad) <= _VERSIONS and good - bad else (),
        since=runs[since].started,
        since_run=runs[since].run,
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
        if not (names := [device.device for device in of_soc if device.result == result]):
            continue
        # one more name takes no more room than "and 1 more"
        shown = names if len(names) == _DEVICES + 1 else names[:_DEVICES]
        listed = _separated([[link("device", name, style="code")] for name in shown], ", ")
        listed += [f" and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
        kind = Span(soc, style="code") if soc else "devices" if len(of_soc) > 1 else "device"
        share = f"{len(names)} of {len(of_soc)}" if len(of_soc) > 1 else "the only"
        parts.append([f"{share} {judged}", kind, " (", *listed, ")"])
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


class _Failure(NamedTuple):
    case_group: str
    run: str
    started: str
    device: str
    versions: str
    cause: str


def history_of(
    attempts: Iterable[tuple[str, str, Attempt]],
    runs: Sequence[StoredRun],
    bisectable: Callable[[Pair, CaseState | None], Bisectable],
    criteria: Filter,
    facts: Callable[[str], CauseFacts | None],
) -> HistoryReport:
    """Return the history of attempts, each with the key of its group and its run, sorted by these.

    `runs` are all stored runs, the newest last; `facts` returns those of a cause by its id. If a
    diagnosis is asked for, other cases are left out.
    """
    order = {run.run: index for index, run in enumerate(runs)}
    run_ids, first, last = set[str](), "", ""
    failures: dict[str, list[_Failure]] = {}
    rows, failing = list[CaseRow](), set[str]()
    for group, of_group in groupby(attempts, key=lambda entry: entry[0]):
        cases = by_run(of_group, order)
        for run, case in ((run, case) for run, of_run in cases for case in of_run.values()):
            run_ids.add(run)
            attempt = case.last
            first = min(first or attempt.started, attempt.started)
            last = max(last, attempt.started)
            if attempt.is_bad and attempt.has_verdict:
                ran_with = attempt.device or "?", format_versions(versions_of(attempt))
                failure = _Failure(group, run, case.started, *ran_with, cause_id(attempt))
                failures.setdefault(kind_of(attempt), []).append(failure)
        for line in lines_of(of_run for _, of_run in cases):
            row = case_row(line, bisectable)
            if not criteria.diagnosis or criteria.diagnosis in row.kinds:
                rows.append(row)
                failing |= {kind_of(line.judged)} if line.judged and line.fails else set()
    kinds = [
        _kind_row(kind, of_kind, facts if kind in failing else None)
        for kind, of_kind in failures.items()
        if criteria.diagnosis in ("", kind)
    ]
    # failing ones first; cases that were never judged come last of theirs
    rows.sort(key=lambda row: (not row.fails, not row.since, row.pass_rate or 0.0, row.case))
    return HistoryReport(
        runs=len(run_ids),
        first=first,
        last=last,
        lost=sum(row.lost is not None for row in rows),
        lacking=tuple(
            LackingRun(run=run.run, started=run.started, not_run=run.not_run)
            for run in runs
            if run.not_run != 0 and run.started >= criteria.since
        ),
        kinds=tuple(sorted(kinds, key=lambda kind: (-kind.failures, kind.kind))),
        cases=tuple(rows),
    )


def _kind_row(
    kind: str, failures: Sequence[_Failure], facts: Callable[[str], CauseFacts | None] | None
) -> KindRow:
    causes = Counter(failure.cause for failure in failures)
    last = {failure.cause: failure.started for failure in sorted(failures, key=_started)}
    cause = max(causes, key=lambda cause: (causes[cause], last[cause]))
    return KindRow(
        kind=kind,
        first=min(map(_started, failures)),
        last=max(map(_started, failures)),
        failures=len(failures),
        runs=len({failure.run for failure in failures}),
        cases=len({failure.case_group for failure in failures}),
        devices=tuple(sorted({failure.device for failure in failures})),
        versions=tuple(sorted({failure.versions for failure in failures})),
        facts=facts(cause) if facts is not None else None,
    )


def _started(failure: _Failure) -> str:
    return failure.started


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


def lines(report: HistoryReport) -> Iterator[str]:
    """Yield lines for a terminal: kinds of failures, then cases that fail or do not always pass."""
    if not report.cases:
        yield f"the history has no such case{_lacks(report)}"
        return
    lost = f"; {counted(report.lost, 'case')} without a verdict in the last run" * bool(report.lost)
    yield f"{counted(report.runs, 'run')}, {_days(report)}{lost}{_lacks(report)}"
    for kind in report.kinds[:_SHOWN]:
        yield (
            f"{kind.failures:5} x {shortened(signature_text(kind.kind), _WIDTH)}: {_days(kind)}, "
            f"{counted(kind.cases, 'case')}"
        )
        yield f"        on {_some(kind.devices)}; {_some(kind.versions)}"
        if kind.facts is not None:
            yield f"        {as_text(facts_line(kind.facts))}"
    if len(report.kinds) > _SHOWN:
        yield f"... and {counted(len(report.kinds) - _SHOWN, 'more cause')}"
    troubled = [case for case in report.cases if case.failed or case.flaky_runs]
    limits = dict[str, None]()
    for case in troubled[:_SHOWN]:
        limits |= dict.fromkeys([case.limits] if case.limits else [])
        yield f"{case.recent}  {case.case}"
        yield f"        {ends(case)}; {rates(case)}"
        if len(case.kinds) > 1:
            kinds = _some(map(signature_text, case.kinds))
            yield f"        failed with {counted(len(case.kinds), 'cause')}: {kinds}"
        if case.first_bad_at and case.last_good_at:
            good, bad = f"{case.last_good_at[:19]}Z", f"{case.first_bad_at[:19]}Z"
            if case.changed:
                good, bad = good + _with(case.last_good), bad + _with(case.first_bad)
            same_run = case.last_good_at >= case.first_bad_at  # cases of one run have no order
            words = ("passed", "failed") if same_run else ("last good", "first bad")
            yield f"        {words[0]} {good}, {words[1]} {bad}"
            command = case.hindrance if case.bisect is None else shlex.join(case.bisect)
            yield f"        {command}"
    if len(troubled) > _SHOWN:
        yield f"... and {counted(len(troubled) - _SHOWN, 'more case')}"
    yield from limits
    rest = [case for case in report.cases if not (case.failed or case.flaky_runs)]
    unjudged = sum(not case.since for case in rest)
    lost_verdicts = sum(bool(case.since and case.lost) for case in rest)
    counts = {
        "never failed": len(rest) - unjudged - lost_verdicts,
        "never failed before the verdict was lost": lost_verdicts,
        "never had a verdict": unjudged,
    }
    parts = [f"{counted(number, 'case')} {words}" for words, number in counts.items() if number]
    yield ", ".join(parts) or "each case has failed at least once"


def _with(side: CaseSide | None) -> str:
    return f" ({shortened(side.versions, _WIDTH)})" if side is not None and side.versions else ""


def _lacks(report: HistoryReport) -> str:
    """Return the runs in which cases left no record, in words; empty if there are none."""
    known = [run for run in report.lacking if run.not_run]
    unknown = [run for run in report.lacking if run.not_run is None]
    text = ""
    if known:
        count = counted(sum(run.not_run or 0 for run in known), "case")
        text += f"; {count} not run in {_runs(known)}"
    if unknown:
        text += f"; it is unknown whether {_runs(unknown)} ran all cases"
    return text


def _runs(runs: Sequence[LackingRun]) -> str:
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
        parts.append(f"options: {shortened(case.asked, _WIDTH)}")
    return ", ".join(parts)


def _days(period: KindRow | HistoryReport) -> str:
    first, last = period.first[:10], period.last[:10]
    return first if first == last else f"{first} to {last}"


def _some(names: Iterable[str]) -> str:
    return first_names((shortened(name, _WIDTH) for name in names), separator="; ")
