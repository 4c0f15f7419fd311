"""The answers of runs, and what they come to for each point (pure).

A point is a tuple of versions: one on one axis, a pair on two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from pydantic import Field

from harness.verdict.failure.error import Part

RunAnswer = Literal["good", "bad", "unsure", "untestable", "unknown"]
GoodOrBad = Literal["good", "bad"]
Repeat = int | Literal["judged"]
"""How often a point is run; `judged`: until its figures are told from noise."""
Point = tuple[str, ...]

_MISSES: Final = 100
"""Of so many versions that fail now and then, fewer than one may be taken for good."""


@dataclass(frozen=True)
class Tally:
    """How often a point gave each answer.

    `unsure` are runs after which a figure could not yet be told from noise.
    One untestable answer is enough to leave a point alone: what cannot be installed now and then
    cannot be trusted to tell anything.
    """

    good: int = 0
    bad: int = 0
    unsure: int = 0
    untestable: int = 0

    @property
    def told(self) -> int:
        return self.good + self.bad + self.unsure

    def plus(self, answer: RunAnswer) -> Tally:
        """Return the tally with one more answer; `unknown` counts for none."""
        return self if answer == "unknown" else replace(self, **{answer: getattr(self, answer) + 1})

    def settled(self, repeat: Repeat) -> GoodOrBad | None:
        """The verdict: bad if any of `repeat` runs is bad, else good; None while runs are due.

        Where noise is judged, one answer is enough.
        """
        if self.good + self.bad < (repeat if isinstance(repeat, int) else 1):
            return None
        return "bad" if self.bad else "good"


NOTHING: Final = Tally()


def repeats_needed(failed: int, runs: int) -> int:
    """Return how many runs overlook a failure that comes in `failed` of `runs` with less than 1 %.

    At least one of these runs passed, and one failed.
    """
    passed = runs - failed
    repeats = max(1, math.floor(-math.log(_MISSES) / math.log(passed / runs)) - 1)
    while _MISSES * passed**repeats >= runs**repeats:
        repeats += 1
    return repeats


@dataclass(frozen=True)
class Evidence:
    """Everything that was answered; the order counts for `troubles` only.

    `runs` counts the answers, `unknown` the runs that the lab spoilt, and `troubles` those of them
    since the last answer, or since somebody went on.
    """

    tallies: Mapping[Point, Tally] = field(default_factory=dict)
    runs: int = 0
    unknown: int = 0
    troubles: int = 0

    def plus(self, at: Point, answer: RunAnswer) -> Evidence:
        """Return the evidence with one more run."""
        if answer == "unknown":
            return replace(self, unknown=self.unknown + 1, troubles=self.troubles + 1)
        tallies = {**self.tallies, at: self.of(at).plus(answer)}
        return replace(self, tallies=tallies, runs=self.runs + 1, troubles=0)

    def resumed(self) -> Evidence:
        """After somebody saw to the lab: its troubles are counted anew."""
        return replace(self, troubles=0)

    def of(self, at: Point) -> Tally:
        """What a point answered."""
        return self.tallies.get(at, NOTHING)

    def untestable(self) -> frozenset[Point]:
        """The points that turned out to be untestable."""
        return frozenset(at for at, tally in self.tallies.items() if tally.untestable)

    def wasted(self) -> int:
        """How many runs went into points that turned out to be untestable.

        Runs whose figures noise hid are not counted: the bound has room for them.
        """
        lost = [tally for tally in self.tallies.values() if tally.untestable]
        return sum(tally.good + tally.bad + tally.untestable for tally in lost)


class Question(Part):
    """A run to be made; `number` counts the runs that answer, from 1; `why` is for a person."""

    kind: Literal["asked"] = "asked"
    at: Annotated[Point, Field(min_length=1, max_length=2)]
    number: int
    why: str = ""


@dataclass(frozen=True)
class Stopped:
    """The lab failed too often in a row. Nothing is lost: see to it, say so, and go on."""

    troubles: int
    question: Question
