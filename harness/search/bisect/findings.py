"""The answers of searches, as they are found and as result.json has them (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from harness.search.bisect.answers import (
    Evidence,
    GoodOrBad,
    Point,
    Repeat,
    repeats_needed,
)
from harness.verdict.failure.error import Part

FindingKind = Literal["change", "range", "no-change", "undecided"]
Direction = Literal["regression", "fix"]


class Change(Part):
    """A change on one axis; `between` are the candidates of which it is not known.

    A regression has a last good and a first bad version, a fix a last bad and a first good one.
    """

    direction: Direction | None = None
    last_good: str | None = None
    first_bad: str | None = None
    last_bad: str | None = None
    first_good: str | None = None
    between: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, direction: Direction, before: str, after: str, between: Iterable[str] = ()
    ) -> Change:
        """The change between two versions, the older one first."""
        kept = tuple(between)
        if direction == "regression":
            return Change(direction=direction, last_good=before, first_bad=after, between=kept)
        return Change(direction=direction, last_bad=before, first_good=after, between=kept)

    @property
    def before(self) -> str:
        return self.last_good or self.last_bad or ""

    @property
    def after(self) -> str:
        return self.first_bad or self.first_good or ""

    @property
    def where(self) -> str:
        return f"one of {', '.join((*self.between, self.after))}" if self.between else self.after

    @property
    def said(self) -> str:
        """The change in words."""
        words = ("last good", "first bad")
        if self.direction == "fix":
            words = ("last bad", "first good")
        text = f"{words[0]} {self.before}, {words[1]} {self.after}"
        if self.between:
            text += f" or one of the undecided before it: {', '.join(self.between)}"
        return text


class FlakyVersion(Part):
    """A point whose runs disagree. With `repeats` runs of each, such a failure is overlooked in
    less than 1 %.
    """

    at: tuple[str, ...]
    failed: int
    runs: int
    repeats: int

    @property
    def said(self) -> str:
        """The disagreement in words, and the number of runs that would settle it."""
        return (
            f"flaky: {self.failed} of {self.runs} failed at {' with '.join(self.at)}; with "
            f"--repeat {self.repeats} a miss is less likely than 1 % at that rate"
        )


def flaky_versions(evidence: Evidence, repeat: Repeat) -> tuple[FlakyVersion, ...]:
    """Return the points whose runs disagree; none where figures are judged beside noise."""
    if not isinstance(repeat, int):
        return ()
    mixed = ((at, one) for at, one in sorted(evidence.tallies.items()) if one.good and one.bad)
    return tuple(
        FlakyVersion(
            at=at,
            failed=tally.bad,
            runs=tally.good + tally.bad,
            repeats=repeats_needed(tally.bad, tally.good + tally.bad),
        )
        for at, tally in mixed
    )


class _Finding(Part):
    """The fields of both answers. `text` is the answer in words, `notes` are what to know besides.

    `runs` are those that answered, `unknown` those that the lab spoilt. `flaky` are the versions
    whose runs disagree. `verdict` is that of all, where nothing changes.
    """

    text: str
    kind: FindingKind
    verdict: GoodOrBad | None = None
    runs: int = 0
    unknown: int = 0
    notes: tuple[str, ...] = ()
    flaky: tuple[FlakyVersion, ...] = ()

    def __str__(self) -> str:
        return self.text


class AxisFinding(_Finding, Change):
    """The answer of a search on one axis, or what is known when it had to end.

    - `change`: the two versions are neighbours among the candidates.
    - `range`: the change lies between them; `between` are the candidates of which it is not known,
      since they cannot be tested, or since the runs did not suffice.
    - `no-change`: all that could be tested are `verdict`; `between` are those that could not.
    - `undecided`: not enough could be learnt; `notes` say why.

    `changes` are all known changes, oldest first; the other fields are about the one that was asked
    for.
    """

    changes: tuple[Change, ...] = ()

    @property
    def asked_first(self) -> list[Change]:
        return sorted(self.changes, key=lambda change: change.after != self.after)


class Corner(Part):
    """A corner that was run: a pair of versions; `verdict` is null if it cannot be tested."""

    at: tuple[str, str]
    verdict: GoodOrBad | None


class HeldSearch(Part):
    """The search on one axis with the other held."""

    axis: str
    held: dict[str, str]
    answer: AxisFinding


class CornersFinding(_Finding):
    """The answer for a good and a bad pair of versions.

    `fails_with` is the axis whose bad version is enough to fail, `both` if only both together
    fail, `either` if each is enough; null if that is not decided. `corners` are the pairs that were
    named and the two mixed ones, `searches` what came of the axes that matter.
    """

    axes: tuple[str, str]
    fails_with: str | None = None
    corners: tuple[Corner, ...] = ()
    searches: tuple[HeldSearch, ...] = ()

    def point(self, search: HeldSearch, version: str) -> Point:
        """The pair with a version of the axis that was searched."""
        versions = {**search.held, search.axis: version}
        return tuple(versions[axis] for axis in self.axes)


Finding = AxisFinding | CornersFinding
