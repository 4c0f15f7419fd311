"""Cases and failures over many runs: since when, where, how often, what changed (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

from harness.history.attempts import Attempt, CaseAttempts, cause_id, same_failure
from harness.history.comparison import Pair
from harness.history.states import CaseState, format_versions, state_of, versions_of
from harness.runtimes.runtime import version_key
from harness.transport.faults import NO_SERVER

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
    axes: tuple[tuple[str, str], ...] = ()
    since: str = ""
    until: str = ""
    failing: bool = False
    """True for all attempts of tests that failed or lost a verdict in one of these runs."""

    def spans(self, started: str) -> bool:
        return started >= self.since and (not self.until or started < self.until)

    def matches(self, attempt: Attempt) -> bool:
        """Return whether an attempt has these axes; the database checks the other criteria."""
        return all(str(attempt.axis(name)) == value for name, value in self.axes)


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
                line = listed[0] if _is_newer(now, listed[0].last) else None
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


def _is_newer(now: Attempt, before: Attempt) -> bool:
    both = zip(dict(versions_of(before)).items(), dict(versions_of(now)).items(), strict=False)
    pairs = ((old, new) for (_, old), (_, new) in both if old and new)
    return all(version_key(new) >= version_key(old) for old, new in pairs)


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
    "known": "As a known issue says",
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
