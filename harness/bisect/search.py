"""A search: its task, what it is asked, in how many runs it answers, and how it asks (pure)."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import Field, StrictInt, StringConstraints, model_validator

from harness.bisect.match import Evidence, Point, Question, RunAnswer, Stopped, parse_match
from harness.core.axes import AXES, AxisName
from harness.core.outgoing_text import counted
from harness.diagnosis.error import Part
from harness.history.performance import MOST_RUNS
from harness.plugin.own_contexts import is_of_a_file, nothing_beside
from harness.results.case_names import split_node_id


@dataclass(frozen=True)
class Bound:
    """`runs` holds if everything can be tested; each run spent on an untestable point adds one.

    `alike` holds instead if both ends answer alike: then there is either no change, or two, and
    some runs go into looking for a point that differs. Runs that the lab spoils are not counted.
    `all_points` is how many runs there can be if no point is asked more than `repeat` times, None
    if that has no limit.
    """

    runs: int
    alike: int
    all_points: int | None = None

    def limit(self, *, wasted: int = 0, alike: bool = False) -> int:
        """The number of runs that is not exceeded when `wasted` of them met untestable points."""
        limit = (self.alike if alike else self.runs) + wasted
        return limit if self.all_points is None else min(limit, self.all_points)

    def capped(self, most: int | None) -> Bound:
        """This bound with not more runs than these."""
        if most is None:
            return self
        runs, alike = min(self.runs, most), min(self.alike, most)
        return Bound(runs, alike, min(self.all_points or most, most))

    def __str__(self) -> str:
        text = f"at most {counted(self.runs, 'run')}"
        text += ", plus one for each that cannot be tested"
        if self.alike > self.runs:
            text += f"; at most {self.alike} if both ends answer alike"
        return text


def halvings(gaps: int) -> int:
    """How many runs halve a number of gaps down to one."""
    return math.ceil(math.log2(gaps)) if gaps > 1 else 0


Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Candidates = Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
Pair = tuple[Name, Name]


class _Spec(Part):
    """The fields of both kinds of search.

    `repeat` is how often a point is run before it counts as good.
    """

    repeat: Annotated[StrictInt, Field(ge=1, le=1000)] | Literal["judged"] = 1
    max_runs: Annotated[StrictInt, Field(ge=1, le=100_000)] | None = None

    @property
    def most_each(self) -> int:
        return self.repeat if isinstance(self.repeat, int) else MOST_RUNS


class AxisSpec(_Spec):
    """A search on one axis, oldest candidate first.

    `good` and `bad` are what the user says of two of them; either may be missing. With both, only
    what lies between them is searched.
    """

    kind: Literal["axis"] = "axis"
    axis: AxisName
    candidates: Candidates
    good: Name | None = None
    bad: Name | None = None

    @model_validator(mode="after")
    def _names_are_candidates(self) -> Self:
        _distinct(self.axis, self.candidates)
        for field, name in (("good", self.good), ("bad", self.bad)):
            if name is not None and name not in self.candidates:
                raise ValueError(f"{field}: {name!r} is not one of the candidates")
        if self.good is not None and self.good == self.bad:
            raise ValueError(f"{self.good!r} cannot be good and bad")
        return self

    @property
    def versions(self) -> dict[AxisName, tuple[str, ...]]:
        return {self.axis: self.candidates}

    @property
    def reference(self) -> Point | None:
        return (self.good,) if self.good is not None else None

    def points(self) -> Iterator[Point]:
        """All candidates."""
        return ((name,) for name in self.candidates)

    def searched(self) -> tuple[str, ...]:
        """The candidates between the two claims, claims included; all if one is missing."""
        if self.good is None or self.bad is None:
            return self.candidates
        return between(self.candidates, self.good, self.bad)

    def bound(self) -> Bound:
        """How many runs the search may take.

        Both ends (and a single claim between them), and halving the gaps. If the ends are alike:
        looking for a point that differs, and halving on both sides of it. With several runs each:
        so many times more.
        """
        searched, each = self.searched(), self.most_each
        candidates = len(searched)
        inner = {self.good, self.bad} - {None, searched[0], searched[-1]}
        ends, halves = min(candidates, 2) + len(inner), halvings(candidates - 1)
        most = each * candidates
        runs, alike = (min(each * (ends + times * halves), most) for times in (1, 3))
        return Bound(runs, alike, most).capped(self.max_runs)


class CornerSpec(_Spec):
    """Which of two axes makes the difference between a good and a bad pair of versions.

    `candidates` are those of each axis, oldest first; only what lies between the two pairs counts.
    """

    kind: Literal["corners"] = "corners"
    axes: tuple[AxisName, AxisName]
    candidates: tuple[Candidates, Candidates]
    good: Pair
    bad: Pair

    @model_validator(mode="after")
    def _pairs_are_candidates(self) -> Self:
        if self.axes[0] == self.axes[1]:
            raise ValueError(f"both axes are {self.axes[0]!r}")
        for axis, other, names, good, bad in zip(
            self.axes, self.axes[::-1], self.candidates, self.good, self.bad, strict=True
        ):
            _distinct(axis, names)
            for field, name in (("good", good), ("bad", bad)):
                if name not in names:
                    raise ValueError(f"{field}: {name!r} is not one of the candidates of {axis}")
            if good == bad:
                raise ValueError(
                    f"{axis} is {good!r} in the good and in the bad pair: search {other} alone, "
                    f"with --axis {other} --{axis} {good}"
                )
        return self

    @property
    def versions(self) -> dict[AxisName, tuple[str, ...]]:
        ends = zip(self.axes, self.candidates, self.good, self.bad, strict=True)
        return {axis: between(names, good, bad) for axis, names, good, bad in ends}

    @property
    def reference(self) -> Point:
        return self.good

    def points(self) -> Iterator[Point]:
        """The pairs that may be run: of one axis, all with an end of the other."""
        first, second = self.candidates
        ends, others = zip(self.good, self.bad, strict=True)
        yield from itertools.product(first, others)
        yield from itertools.product(ends, second)

    def bound(self) -> Bound:
        """How many runs the search may take: four corners, and halving the gaps of each axis."""
        lengths = [len(names) for names in self.versions.values()]
        runs = self.most_each * (4 + sum(halvings(length - 1) for length in lengths))
        return Bound(runs, runs, self.most_each * sum(lengths)).capped(self.max_runs)


Spec = Annotated[AxisSpec | CornerSpec, Field(discriminator="kind")]


def between(candidates: tuple[str, ...], one: str, other: str) -> tuple[str, ...]:
    """The candidates from one to the other, both included."""
    first, last = sorted((candidates.index(one), candidates.index(other)))
    return candidates[first : last + 1]


def _distinct(axis: str, names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{axis}: {', '.join(twice)} listed twice")


PATIENCE: Final = 3
"""So many troubles of the lab in a row stop a search."""
_Asked = TypeVar("_Asked")
_Found_co = TypeVar("_Found_co", covariant=True)


class Search(ABC, Generic[_Asked, _Found_co]):
    """What every search does: it asks, is told, and is resumed.

    What it asks follows from the spec and the answers alone, whatever the order of the answers. So
    a search is resumed by telling it again what is known, and an answer may be corrected.
    """

    def __init__(self, spec: _Asked, evidence: Evidence | None = None) -> None:
        self.spec: _Asked = spec
        self.evidence = evidence or Evidence()

    def next(self) -> Question | Stopped | _Found_co:
        """What to run next; or what was found; or that the lab must be seen to first."""
        step = self._step(self.evidence)
        if isinstance(step, Question) and self.evidence.troubles >= PATIENCE:
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


_LEASE_WAIT_S: Final = 600


class Task(Part):
    """One case, to be run with versions that a search chooses.

    `case` is a node id whose versions do not count. `devices` are the device that it runs on and
    those that may stand in for it. `held` has the versions of axes that are not searched and not at
    their usual version, `paths` the path of each version that is named by a path. `match` is what
    counts as bad (None: any failure). `folder` is where pytest is started, `pytest_arguments` goes
    to it as it is.
    """

    search: Spec
    case: str
    held: Mapping[AxisName, str] = {}
    paths: Mapping[AxisName, Mapping[str, str]] = {}
    devices: Annotated[tuple[str, ...], Field(min_length=1)]
    target: str
    backend: str
    lab: Path
    folder: Path
    match: str | None = None
    run_timeout_s: Annotated[StrictInt, Field(ge=1)] = 1800
    pytest_arguments: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[AxisName, ...]:
        return tuple(self.search.versions)

    def versions(self, at: Point) -> dict[AxisName, str]:
        """Every version that is fixed in a run at a point."""
        return {**self.held, **dict(zip(self.axes, at, strict=True))}

    def given(self, at: Point) -> dict[AxisName, str]:
        """The versions of a run as pytest must be told them."""
        return {
            axis: self.paths.get(axis, {}).get(version, version)
            for axis, version in self.versions(at).items()
        }

    def arguments(self, at: Point, reports: Path, devices: Sequence[str]) -> list[str]:
        """pytest's arguments for a run at a point, on the first of `devices` that can be used."""
        arguments = case_arguments(self.case, self.lab, reports, devices, self.backend)
        arguments += [f"{AXES[axis].option}={version}" for axis, version in self.given(at).items()]
        profiles = self.match is not None and parse_match(self.match).profiles
        arguments += ["--qnn-profile=ops"] if profiles else []
        # those of a test in Python belong to it
        arguments += nothing_beside(self.folder) if is_of_a_file(self.case) else []
        return [*arguments, *self.pytest_arguments, split_node_id(self.case)[0]]


def case_arguments(
    case: str, lab: Path, reports: Path, devices: Sequence[str], backend: str
) -> list[str]:
    """pytest's arguments for one case alone, on the first of `devices` that can be used."""
    # Paths are given with "=": pytest takes a word of its own for the path of a test.
    arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", f"--qnn-only-case={case}"]
    arguments += [f"--qnn-lab={lab}", f"--qnn-reports={reports}", f"--qnn-backend={backend}"]
    # so that the case is called after what they all are, and not after one of them
    arguments += ["--qnn-each-soc"] if len(devices) > 1 else []
    # other people's runs may come between; a search that waits is better than one that stops
    return [*arguments, f"--qnn-device={','.join(devices)}", f"--qnn-lease-timeout={_LEASE_WAIT_S}"]
