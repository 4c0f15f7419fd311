"""What a search is asked to find: candidates, claims and how sure the answer must be (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints, model_validator

from harness.bisect.answers import Place, Repeat
from harness.bisect.bounds import Bound, axis_bound, grid_bound

Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Candidates = Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
Times = Annotated[StrictInt, Field(ge=1, le=100)]
Runs = Annotated[StrictInt, Field(ge=1, le=100_000)]


class _Spec(BaseModel):
    """What both kinds of search have in common.

    `repeat` is how often a place is asked before it counts as good ("auto": until the answer is
    sure enough), `patience` how many troubles of the lab in a row stop the search, `held` what the
    other axes were held at, `match` what counts as bad (None: any failure).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repeat: Times | Literal["auto"] = 1
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.99
    patience: Times = 3
    max_runs: Runs | None = None
    held: Mapping[Name, str] = {}
    match: str | None = None


class AxisSpec(_Spec):
    """A search on one axis, oldest candidate first.

    `good` and `bad` are what the user says of two of them; either may be missing. With both, only
    what lies between them is searched. `prior` is how likely the change came with a candidate,
    relative to the others (1 if not named). `untestable` are known to be so beforehand.
    """

    kind: Literal["axis"] = "axis"
    axis: Name
    candidates: Candidates
    good: Name | None = None
    bad: Name | None = None
    prior: Mapping[Name, Annotated[float, Field(gt=0, le=1e6)]] = {}
    untestable: frozenset[Name] = frozenset()

    @model_validator(mode="after")
    def _names_are_candidates(self) -> Self:
        _distinct(self.axis, self.candidates)
        for field, given in (
            ("good", [self.good]),
            ("bad", [self.bad]),
            ("prior", self.prior),
            ("untestable", sorted(self.untestable)),
        ):
            for name in given:
                if name is not None and name not in self.candidates:
                    raise ValueError(f"{field}: {name!r} is not one of the candidates")
        if self.good is not None and self.good == self.bad:
            raise ValueError(f"{self.good!r} cannot be good and bad")
        return self

    def searched(self) -> tuple[str, ...]:
        """The candidates between the two claims, claims included; all if one is missing."""
        if self.good is None or self.bad is None:
            return self.candidates
        ends = sorted((self.candidates.index(self.good), self.candidates.index(self.bad)))
        return self.candidates[ends[0] : ends[1] + 1]

    def bound(self) -> Bound:
        """How many runs the search may take."""
        known = sum(name not in self.untestable for name in self.searched())
        return axis_bound(
            max(1, known),
            repeat=self.repeat,
            confidence=self.confidence,
            max_runs=self.max_runs,
        )


class GridSpec(_Spec):
    """A search on two axes, oldest candidates first.

    It holds for grids on which going up on an axis always cures, or always breaks. Which it is, is
    found out for each axis, unless `newer` says for each whether newer candidates are the better
    ones or the worse: then whether they are alike on both axes is taken for granted, and the
    answer says so. `checks` is how many runs are spent at most on places whose
    answer is already concluded, to see whether that holds. `every` asks every place instead, and
    concludes nothing. `untestable` are pairs known to be so beforehand.
    """

    kind: Literal["grid"] = "grid"
    axes: tuple[Name, Name]
    rows: Candidates
    columns: Candidates
    untestable: frozenset[tuple[Name, Name]] = frozenset()
    newer: tuple[bool, bool] | None = None
    checks: Annotated[StrictInt, Field(ge=0, le=3)] = 2
    every: bool = False

    @model_validator(mode="after")
    def _names_are_candidates(self) -> Self:
        _distinct(self.axes[0], self.rows)
        _distinct(self.axes[1], self.columns)
        if self.axes[0] == self.axes[1]:
            raise ValueError(f"both axes are {self.axes[0]!r}")
        if len(self.rows) * len(self.columns) > 10_000:
            raise ValueError("more than 10000 pairs")
        for row, column in sorted(self.untestable):
            if row not in self.rows or column not in self.columns:
                raise ValueError(f"untestable: {row!r} with {column!r} is not on the grid")
        return self

    def places(self) -> Iterator[Place]:
        """All pairs, row by row."""
        return ((row, column) for row in self.rows for column in self.columns)

    def bound(self) -> Bound:
        """How many runs the search may take."""
        return grid_bound(
            len(self.rows),
            len(self.columns),
            repeat=self.repeat,
            max_runs=self.max_runs,
            every=self.every,
        )


Spec = Annotated[AxisSpec | GridSpec, Field(discriminator="kind")]


def _distinct(axis: str, names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{axis}: {', '.join(twice)} listed twice")


def times(repeat: Repeat) -> str:
    """`repeat` in words."""
    return "until sure" if repeat == "auto" else f"{repeat} time{'s' if repeat > 1 else ''} each"
