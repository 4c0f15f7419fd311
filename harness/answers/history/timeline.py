"""What many runs say of cases and of failures: since when, where, how often (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from harness.answers.history.attempts import Attempt, EarlierAttempts
from harness.answers.history.comparison import Pair
from harness.answers.history.states import (
    CaseState,
    RanWith,
    Verdicts,
    state_of,
    versions_of,
)
from harness.device.transport.faults import NO_SERVER
from harness.libraries.runtimes.runtime import version_key
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Fault

MARKS: Final = 30
"""So many of a case's last runs are shown, one character each."""


class LackingRun(Part):
    """A run in which `not_run` cases left no record; null where it does not say how many it had."""

    run: str
    started: str
    not_run: int | None


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
    runs: int = 0
    passed: int = 0
    failed: int = 0
    expected: int = 0
    no_verdict: int = 0
    flaky_runs: int = 0
    since: str = ""
    turned: int = -1
    """The place of the run in which it came to end as it does; -1 if it always did."""
    good: Attempt | None = None
    bad: Attempt | None = None
    beside: Attempt | None = None
    """The last pass of the same with other versions, where it never passed with its own."""
    seen: list[EarlierAttempts] = field(default_factory=list)
    under: list[RanWith] = field(default_factory=list)
    """The versions of each of them."""
    diagnoses: Counter[str] = field(default_factory=Counter)
    verdicts_seen: list[Verdicts] = field(default_factory=list)
    judged: Attempt | None = None
    """The last of them that had a verdict."""

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
        self.runs += 1
        self.flaky_runs += attempts.is_flaky
        self.seen.append(attempts)
        self.under.append(versions_of(now))
        if not now.has_verdict:
            self.no_verdict += 1
            return
        self.verdicts_seen.append(Verdicts.of(attempts, attempts.begun, self.under[-1]))
        before, self.judged = self.judged, now
        if before is None or before.is_bad != now.is_bad:
            self.since, self.turned = attempts.begun, attempts.at
        if now.is_bad:
            self.failed += 1
            self.expected += now.known_issue is not None
            self.diagnoses[kind_of(now)] += 1
            if self.bad is None:
                self.bad = now
        else:
            self.passed += 1
            self.good, self.bad = now, None

    @property
    def marks(self) -> list[str]:
        """A character for each of its last runs."""
        return [*map(mark_of, self.seen[-MARKS:])]

    @property
    def fails(self) -> bool:
        """Whether its last verdict is a bad one."""
        return self.judged is not None and self.judged.is_bad

    @property
    def lost(self) -> Fault | None:
        """Why the last run that has it gave no verdict, if it was to give one."""
        return self.last.fault

    @property
    def verdicts(self) -> int:
        """In how many runs it passed or failed."""
        return self.passed + self.failed

    @property
    def attempts(self) -> int:
        """How often it passed or failed, each time that a run has it."""
        return sum(one.number for one in self.verdicts_seen)

    @property
    def failed_attempts(self) -> int:
        """How many of its attempts failed."""
        return sum(one.failed for one in self.verdicts_seen)

    @property
    def pass_rate(self) -> float | None:
        """How many of its verdicts were passes; None without any."""
        return self.passed / self.verdicts if self.verdicts else None

    @cached_property
    def case_state(self) -> CaseState | None:
        """What its last runs say that it is at, once all are added; None without any verdict."""
        return state_of(self.verdicts_seen[-MARKS:])

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
