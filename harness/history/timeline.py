"""What many runs say of cases and failures: since when, where, how often, what changed (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

from harness.history.attempts import Attempt, EarlierAttempts, cause_id, same_failure
from harness.history.comparison import Pair
from harness.history.states import (
    CaseState,
    said_versions,
    state_of,
    versions_of,
)
from harness.runtimes.runtime import version_key
from harness.transport.faults import NO_SERVER

MARKS: Final = 30
"""So many of a case's last runs are shown, one character each."""


class RunHeld(NamedTuple):
    """A run of the history, which lacks the records of `not_run` cases; None if nobody knows of how
    many. `digest` is that of its journal and of how much of it counts here."""

    run: str
    started: str
    not_run: int | None
    digest: str


@dataclass(frozen=True)
class Filter:
    """Which of what is held is asked for; an empty one asks for all."""

    case: str = ""
    kin: str = ""
    diagnosis: str = ""
    device: str = ""
    axes: tuple[tuple[str, str], ...] = ()
    since: str = ""
    until: str = ""
    failing: bool = False
    """All of the tests that failed, or lost a verdict, in one of these runs."""

    def spans(self, started: str) -> bool:
        """Whether a run that was begun then is asked for."""
        return started >= self.since and (not self.until or started < self.until)

    def takes(self, attempt: Attempt) -> bool:
        """Whether an attempt has the axes asked for; the rest is looked for by the database."""
        return all(str(attempt.axis(name)) == value for name, value in self.axes)


@dataclass
class CaseLine:
    """A case through all runs, from version to version."""

    last: Attempt
    since: str = ""
    turned: int = -1
    """The place of the run in which it came to end as it does; -1 if it always did."""
    good: Attempt | None = None
    bad: Attempt | None = None
    beside: Attempt | None = None
    """The last pass of the same with other versions, where it never passed with its own."""
    seen: list[EarlierAttempts] = field(default_factory=list)
    seen_judged: list[EarlierAttempts] = field(default_factory=list)
    """Those of `seen` that ended with a verdict."""
    judged: Attempt | None = None

    @classmethod
    def of(cls, runs: Sequence[EarlierAttempts]) -> CaseLine:
        """The line of a case through these runs, of which there is one."""
        line = cls(runs[0].last)
        for attempts in runs:
            line.add(attempts)
        return line

    def add(self, attempts: EarlierAttempts) -> None:
        """What the next run says of it."""
        now = self.last = attempts.last
        self.seen.append(attempts)
        if not now.has_verdict:
            return
        self.seen_judged.append(attempts)
        before, self.judged = self.judged, now
        if before is None or before.is_bad != now.is_bad:
            self.since, self.turned = attempts.begun, attempts.at
        if not now.is_bad:
            self.good, self.bad = now, None
        elif self.bad is None:
            self.bad = now

    @property
    def fails(self) -> bool:
        """Whether its last verdict is a bad one."""
        return self.judged is not None and self.judged.is_bad

    @cached_property
    def case_state(self) -> CaseState | None:
        """What its last runs say that it is at, once all are added; None without any verdict."""
        return state_of(self.seen_judged[-MARKS:])

    @property
    def edge(self) -> Pair | None:
        """The last pass and the first failure after it; None if it does not fail, or always did,
        and with other versions, too."""
        good = self.good or self.beside
        return Pair(good, self.bad) if good and self.bad else None


def lines_of(runs: Iterable[Mapping[str, EarlierAttempts]]) -> list[CaseLine]:
    """A line for each case of one kin; the oldest run comes first.

    A case goes on under the name that newer versions give it, if it is alone in both runs and its
    old name never comes again. Versions that run beside each other are cases beside each other.
    """
    runs = list(runs)
    last = {name: at for at, cases in enumerate(runs) for name in cases}
    lines: dict[str, CaseLine] = {}
    found: list[CaseLine] = []
    for at, cases in enumerate(runs):
        for name, attempts in cases.items():
            line, now = lines.get(name), attempts.last
            if line is None and len(found) == len(cases) == 1 and last[found[0].last.case] < at:
                line = found[0] if _is_newer(now, found[0].last) else None
            if line is None or not line.last.may_be(now):
                line = CaseLine(now)
                found.append(line)
            lines[name] = line
            line.add(attempts)
    for line in found:
        if line.bad is not None and line.good is None:
            kin = (one.good for one in found if one.good and not one.fails)
            near = [one for one in kin if one.may_be(line.bad)]
            line.beside = max(near, key=lambda one: one.started, default=None)
    return found


def _is_newer(now: Attempt, before: Attempt) -> bool:
    """Whether none of its versions is older than it was before."""
    both = zip(dict(versions_of(before)).items(), dict(versions_of(now)).items(), strict=False)
    told = ((old, new) for (_, old), (_, new) in both if old and new)
    return all(version_key(new) >= version_key(old) for old, new in told)


def kind_of(attempt: Attempt) -> str:
    """The key by which failures are counted: the diagnosis, or else the signature; of what the lab
    lost to an adb server, that."""
    if attempt.server:
        return f"{NO_SERVER}{attempt.server}"
    return attempt.diagnosis or attempt.signature


def mark_of(attempts: EarlierAttempts) -> str:
    """What a run said of a case, as one character."""
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
"""What a page tells of a night, in this order."""


class NightChange(NamedTuple):
    """What a run, that at the place `at`, said of a case.

    `cause` is the id of what went wrong, of what is fixed that of before, and `kind` its diagnosis
    or signature. `since` is the place of the run with which it began; `changed` are the versions
    that changed then, None if no run before it has the case. `known_issue` is the id of the one
    that expects it.
    """

    at: int
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
    line: CaseLine, first: int, earlier: Sequence[EarlierAttempts] = ()
) -> Iterator[NightChange]:
    """What runs from the place `first` on said of a case; nothing of one that passes as before.

    Of what was before the line, the last turn is enough: the run before it, and that which was it.
    """
    if set(map(mark_of, line.seen)) == {"."}:
        return
    judged: Attempt | None = None
    since, changed, lost, verdicts = -1, None, -1, -sum(one.last.has_verdict for one in earlier)
    for one in (*earlier, *line.seen):
        last = one.last
        if last.fault is not None:
            lost = one.at if lost < 0 else lost
            if one.at >= first:
                yield _change(one.at, "lost", last, last, lost, "")
        if not last.has_verdict:
            continue
        lost, verdicts = -1, verdicts + 1
        turned = judged is not None and judged.is_bad != last.is_bad
        if judged is None:
            since = one.at
        elif turned or (last.is_bad and not same_failure(judged, last)):
            since, changed = one.at, versions_changed(judged, last)
        if one.at >= first and (turned or one.failed):
            recent = line.seen_judged[max(0, verdicts - MARKS) : verdicts]
            became = _became(recent, one, new=turned or judged is None)
            before = judged if judged is not None and judged.is_bad else last
            told = one.bad or (last if last.is_bad else before)
            yield _change(one.at, became, last, told, since, changed)
        judged = last


def _became(recent: Sequence[EarlierAttempts], now: EarlierAttempts, *, new: bool) -> Became:
    state = state_of(recent)
    if state is not None and state.is_flaky:
        return "flaky"
    if not now.last.is_bad:
        return "fixed"
    return "known" if now.last.known_issue else "new" if new else "still"


def _change(
    at: int, became: Became, now: Attempt, told: Attempt, since: int, changed: str | None
) -> NightChange:
    device = now.device or ""
    names = (cause_id(told), kind_of(told), told.outcome, now.test, now.case, device)
    versions = said_versions(versions_of(now))
    return NightChange(at, became, *names, since, changed, versions, now.known_issue)


def versions_changed(before: Attempt, after: Attempt) -> str:
    """Which versions are others than before, in words; empty if none is."""
    was = dict(versions_of(before))
    told = ((name, was.get(name), said) for name, said in versions_of(after))
    return ", ".join(
        f"{name} {old or 'none'} to {new or 'none'}" for name, old, new in told if old != new
    )
