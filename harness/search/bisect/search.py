"""A search: what it is asked, in how many runs it answers, and how it asks (pure)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Generic, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints, model_validator

from harness.answers.history.performance import MOST_RUNS
from harness.ground.errors.outgoing_text import counted
from harness.search.bisect.answers import (
    Evidence,
    Point,
    Question,
    Rate,
    RunAnswer,
    Stopped,
    least_change,
)
from harness.search.bisect.flaky import WORST
from harness.search.bisect.rates import runs_if_none_fails

_CHEAPEST_S: Final = 0.001
Cost = Callable[[Point], float]
"""How many seconds a run takes, with fetching, pushing and compiling."""


@dataclass(frozen=True)
class Bound:
    """`runs` holds if everything can be tested; each run spent on an untestable point adds one.

    `alike` holds instead if both ends answer alike: then there is either no change, or two, and
    some runs go into looking for a point that differs. Runs that the lab spoils are not counted.
    `all_points` is how many runs there can be if no point is asked more than `repeat` times, None
    if that has no limit. `if_none_fails` is how many runs tell that nothing changed if none fails,
    None where answers are believed.
    """

    runs: int
    alike: int
    all_points: int | None = None
    if_none_fails: int | None = None

    def limit(self, *, wasted: int = 0, alike: bool = False) -> int:
        """The number of runs that is not exceeded when `wasted` of them met untestable points."""
        limit = (self.alike if alike else self.runs) + wasted
        return limit if self.all_points is None else min(limit, self.all_points)

    def capped(self, most: int | None) -> Bound:
        """This bound with not more runs than these."""
        if most is None:
            return self
        runs, alike = min(self.runs, most), min(self.alike, most)
        return replace(self, runs=runs, alike=alike, all_points=min(self.all_points or most, most))

    def __str__(self) -> str:
        text = f"at most {counted(self.runs, 'run')}"
        text += ", plus one for each that cannot be tested"
        if self.alike > self.runs:
            text += f"; at most {self.alike} if both ends answer alike"
        if self.if_none_fails is not None:
            text += f"; some {self.if_none_fails} where none fails"
        return text


def halvings(gaps: int) -> int:
    """How many runs halve a number of gaps down to one."""
    return math.ceil(math.log2(gaps)) if gaps > 1 else 0


# A run of a point decides it if 40 % of all answers are wrong, after about so many repetitions.
_UNTIL_SURE = 200


def ideal_flaky_runs(candidates: int, flake: float, confidence: float) -> float:
    """The fewest runs that any search needs on average if a share `flake` of all answers is wrong.

    log2(n) bits must pass through a channel of 1 - H(flake) bits a run, and the answer must be
    confirmed: log(c / (1 - c)) against the drift of its odds at each run.
    """
    if flake <= 0:
        return math.log2(candidates)
    capacity = 1 + flake * math.log2(flake) + (1 - flake) * math.log2(1 - flake)
    drift = (1 - 2 * flake) * math.log((1 - flake) / flake)
    return math.log2(candidates) / capacity + math.log(confidence / (1 - confidence)) / drift


Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Candidates = Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
Times = Annotated[StrictInt, Field(ge=1, le=100)]
RunCount = Annotated[StrictInt, Field(ge=1, le=100_000)]


class _Spec(BaseModel):
    """What both kinds of search have in common.

    `repeat` is how often a point is asked before it counts as good ("auto", "rate:10%": until the
    answer is sure enough; "judged": until its figures are told from noise). `patience` troubles of
    the lab in a row stop the search. `held` is what the other axes were held at, `match` what
    counts as bad (None: any failure). `untestable` stands in every log and is empty: what cannot be
    tested is found out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repeat: Times | Literal["auto", "judged"] | Rate = 1
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.99
    patience: Times = 3
    max_runs: RunCount | None = None
    held: Mapping[Name, str] = {}
    match: str | None = None

    @property
    def least(self) -> float | None:
        """The smallest change of the rate of failures looked for; None if answers are believed."""
        return least_change(self.repeat)

    @property
    def most_each(self) -> int:
        """How many runs a point may take."""
        if self.repeat == "judged":
            return MOST_RUNS
        return self.repeat if isinstance(self.repeat, int) else _UNTIL_SURE


class AxisSpec(_Spec):
    """A search on one axis, oldest candidate first.

    `good` and `bad` are what the user says of two of them; either may be missing. With both, only
    what lies between them is searched. `prior` is how likely the change came with a candidate,
    relative to the others (1 if not named).
    """

    kind: Literal["axis"] = "axis"
    axis: Name
    candidates: Candidates
    good: Name | None = None
    bad: Name | None = None
    prior: Mapping[Name, Annotated[float, Field(gt=0, le=1e6)]] = {}
    untestable: tuple[()] = ()

    @model_validator(mode="after")
    def _names_are_candidates(self) -> Self:
        _distinct(self.axis, self.candidates)
        for field, given in (("good", [self.good]), ("bad", [self.bad]), ("prior", self.prior)):
            for name in given:
                if name is not None and name not in self.candidates:
                    raise ValueError(f"{field}: {name!r} is not one of the candidates")
        if self.good is not None and self.good == self.bad:
            raise ValueError(f"{self.good!r} cannot be good and bad")
        return self

    def points(self) -> Iterator[Point]:
        """All candidates."""
        return ((name,) for name in self.candidates)

    def searched(self) -> tuple[str, ...]:
        """The candidates between the two claims, claims included; all if one is missing."""
        if self.good is None or self.bad is None:
            return self.candidates
        ends = sorted((self.candidates.index(self.good), self.candidates.index(self.bad)))
        return self.candidates[ends[0] : ends[1] + 1]

    def bound(self) -> Bound:
        """How many runs the search may take.

        If answers are believed: both ends (and a single claim between them), and halving the gaps.
        If the ends are alike: looking for a point that differs, and halving on both sides of it.
        With several runs each: so many times more. With "auto": 2.5 times what an ideal search
        needs on average if 40 % of all answers are wrong; an exact test ends long before. With
        "rate:10%" it is that for rates 6 points apart: to exclude a change takes longer than to
        find one.
        """
        searched = self.searched()
        candidates = len(searched)
        if self.least is not None:
            wrong = WORST if self.repeat == "auto" else 0.5 - 0.3 * self.least
            sure = 1 - (1 - self.confidence) / 2
            runs = math.ceil(2.5 * ideal_flaky_runs(2 * candidates, wrong, sure))
            never = (
                runs_if_none_fails(candidates, self.least, self.confidence) if candidates > 1 else 2
            )
            # one of four goes to what lies between the ends
            return Bound(runs, runs, if_none_fails=never * 4 // 3).capped(self.max_runs)
        inner = {self.good, self.bad} - {None, searched[0], searched[-1]}
        ends, halves, each = (
            min(candidates, 2) + len(inner),
            halvings(candidates - 1),
            self.most_each,
        )
        most = each * candidates
        bound = Bound(
            min(each * (ends + halves), most), min(each * (ends + 3 * halves), most), most
        )
        return bound.capped(self.max_runs)


class GridSpec(_Spec):
    """A search on two axes, oldest candidates first.

    It holds for grids on which going up on an axis always cures, or always breaks. The search finds
    out which for each axis, unless `newer` says for each whether newer candidates are better or
    worse. Then that is taken for granted, and the answer says so. `checks` is how many runs are
    spent at most on points whose answer is already concluded, to see whether that holds. `every`
    asks every point instead, and concludes nothing.
    """

    kind: Literal["grid"] = "grid"
    axes: tuple[Name, Name]
    rows: Candidates
    columns: Candidates
    untestable: tuple[()] = ()
    newer: tuple[bool, bool] | None = None
    checks: Annotated[StrictInt, Field(ge=0, le=3)] = 2
    every: bool = False

    @model_validator(mode="after")
    def _names_are_candidates(self) -> Self:
        _distinct(self.axes[0], self.rows)
        _distinct(self.axes[1], self.columns)
        if self.axes[0] == self.axes[1]:
            raise ValueError(f"both axes are {self.axes[0]!r}")
        if isinstance(self.repeat, str) and self.repeat.startswith("rate:"):
            raise ValueError("rates are searched on one axis: hold the other at a version")
        if len(self.rows) * len(self.columns) > 10_000:
            raise ValueError("more than 10000 pairs")
        return self

    def points(self) -> Iterator[Point]:
        """All pairs, row by row."""
        return ((row, column) for row in self.rows for column in self.columns)

    def bound(self) -> Bound:
        """How many runs the search may take: rows + columns + 4 points, or every point."""
        rows, columns = len(self.rows), len(self.columns)
        each, points = self.most_each, rows * columns
        asked = points if self.every else min(points, rows + columns + 4)
        return Bound(each * asked, each * asked, each * points).capped(self.max_runs)


Spec = Annotated[AxisSpec | GridSpec, Field(discriminator="kind")]


def _distinct(axis: str, names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{axis}: {', '.join(twice)} listed twice")


def seconds(cost: Cost, at: Point) -> float:
    """What a run costs; what is free still takes a moment."""
    return max(_CHEAPEST_S, cost(at))


def testable(distance: float | None) -> float:
    """How likely a point can be tested, at this distance from the next one that could not be.

    What breaks an installation mostly breaks those of its neighbours, too.
    """
    return 1.0 if distance is None else 1 - 0.5**distance


def free(_: Point) -> float:
    """The cost of a run if all cost the same."""
    return 1.0


class SearchSpec(Protocol):
    """What every search is told."""

    @property
    def patience(self) -> int:
        """How many troubles of the lab in a row stop it."""


_Asked = TypeVar("_Asked", bound=SearchSpec)
_Found_co = TypeVar("_Found_co", covariant=True)


class Search(ABC, Generic[_Asked, _Found_co]):
    """What every search does: it asks, is told, and is resumed.

    What it asks follows from the spec, the answers and the costs alone, whatever the order of the
    answers. So a search is resumed by telling it again what is known, and an answer may be
    corrected.
    """

    def __init__(
        self, spec: _Asked, *, cost: Cost = free, evidence: Evidence | None = None
    ) -> None:
        """`cost` says how many seconds a run takes, with fetching, pushing and compiling."""
        self.spec: _Asked = spec
        self.evidence = evidence or Evidence()
        self._cost = cost

    def next(self) -> Question | Stopped | _Found_co:
        """What to run next; or what was found; or that the lab must be seen to first."""
        step = self._step(self.evidence)
        if isinstance(step, Question) and self.evidence.troubles >= self.spec.patience:
            return Stopped(self.evidence.troubles, step)
        return step

    def answer(self, question: Question, answer: RunAnswer) -> None:
        """What came of a run. `unknown` means that the lab failed: the question is asked again."""
        self.evidence = self.evidence.plus(question.at, answer)

    def resume(self) -> None:
        """The lab was seen to: go on."""
        self.evidence = self.evidence.resumed()

    @abstractmethod
    def _step(self, evidence: Evidence) -> Question | _Found_co:
        """What to run next, or what was found, as far as `evidence` goes."""
