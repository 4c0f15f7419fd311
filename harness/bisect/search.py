"""A search: its task, its candidates, and the bound on its runs (pure)."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import Field, StrictInt, StringConstraints, model_validator

from harness.bisect.bad_condition import Evidence, Point, Question, RunAnswer, Stopped, parse_match
from harness.core.json_record import Part
from harness.core.matrix_axes import AXES, AxisName
from harness.plugin.user_files import is_of_a_file, isolated_arguments
from harness.results.case_names import split_node_id


def halvings(gaps: int) -> int:
    """Return the number of runs that halve a number of gaps down to one."""
    return math.ceil(math.log2(gaps)) if gaps > 1 else 0


Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Candidates = Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
Pair = tuple[Name, Name]


class _Spec(Part):
    """The fields of both kinds of search: `repeat` is the number of runs of each point."""

    repeat: Annotated[StrictInt, Field(ge=1, le=1000)] = 1


class AxisSpec(_Spec):
    """A search on one axis, oldest candidate first.

    `good` and `bad` are the user's claims; either may be missing. With both, only the candidates
    between them are searched.
    """

    kind: Literal["axis"] = "axis"
    axis: AxisName
    candidates: Candidates
    good: Name | None = None
    bad: Name | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        _check_distinct(self.axis, self.candidates)
        for field, name in (("good", self.good), ("bad", self.bad)):
            if name is not None and name not in self.candidates:
                raise ValueError(f"{field}: {name!r} is not one of the candidates")
        if self.good is not None and self.good == self.bad:
            raise ValueError(f"{self.good!r} cannot be both good and bad")
        return self

    @property
    def versions(self) -> dict[AxisName, tuple[str, ...]]:
        return {self.axis: self.candidates}

    @property
    def reference(self) -> Point | None:
        return (self.good,) if self.good is not None else None

    def points(self) -> Iterator[Point]:
        return ((name,) for name in self.candidates)

    def searched(self) -> tuple[str, ...]:
        """Return the candidates between the two claims, inclusive; all if one is missing."""
        if self.good is None or self.bad is None:
            return self.candidates
        return between(self.candidates, self.good, self.bad)

    @property
    def most_runs(self) -> int:
        """The most runs of the search if everything can be tested.

        These are both ends, a single claim between them, and halving the gap.
        """
        searched = self.searched()
        inner = {self.good, self.bad} - {None, searched[0], searched[-1]}
        ends = 2 + len(inner)
        return self.repeat * min(ends + halvings(len(searched) - 1), len(searched))


class CornerSpec(_Spec):
    """A search for the axis that makes the difference between a good and a bad pair of versions.

    `candidates` are those of each axis, oldest first; only those between the two pairs count.
    """

    kind: Literal["corners"] = "corners"
    axes: tuple[AxisName, AxisName]
    candidates: tuple[Candidates, Candidates]
    good: Pair
    bad: Pair

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.axes[0] == self.axes[1]:
            raise ValueError(f"both axes are {self.axes[0]!r}")
        for axis, other, names, good, bad in zip(
            self.axes, self.axes[::-1], self.candidates, self.good, self.bad, strict=True
        ):
            _check_distinct(axis, names)
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
        """Yield the pairs that may be run: every version of one axis with an end of the other."""
        first, second = self.candidates
        ends, others = zip(self.good, self.bad, strict=True)
        yield from itertools.product(first, others)
        yield from itertools.product(ends, second)

    @property
    def most_runs(self) -> int:
        """The most runs of the search: four corners, and halving on each axis."""
        lengths = [len(names) for names in self.versions.values()]
        return self.repeat * min(4 + sum(halvings(n - 1) for n in lengths), 2 * sum(lengths))


Spec = Annotated[AxisSpec | CornerSpec, Field(discriminator="kind")]


def between(candidates: tuple[str, ...], start: str, end: str) -> tuple[str, ...]:
    """Return the candidates from `start` to `end`, both included."""
    first, last = sorted((candidates.index(start), candidates.index(end)))
    return candidates[first : last + 1]


def _check_distinct(axis: str, names: tuple[str, ...]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{axis}: {', '.join(repeated)} listed twice")


PATIENCE: Final = 3
"""Failures of the lab in a row that stop a search."""
SpecType = TypeVar("SpecType")
Finding_co = TypeVar("Finding_co", covariant=True)


class Search(ABC, Generic[SpecType, Finding_co]):
    """The base of all searches: choose the next run, take its answer, resume.

    The next run follows from the spec and the answers alone, in any order. So a search is resumed
    by giving it the known answers, and an answer may be corrected.
    """

    def __init__(self, spec: SpecType, evidence: Evidence | None = None) -> None:
        self.spec: SpecType = spec
        self.evidence = evidence or Evidence()

    def next(self) -> Question | Stopped | Finding_co:
        """Return the next run, the finding, or `Stopped` if the lab needs attention first."""
        step = self._step(self.evidence)
        if isinstance(step, Question) and self.evidence.troubles >= PATIENCE:
            return Stopped(self.evidence.troubles, step)
        return step

    def answer(self, question: Question, answer: RunAnswer) -> None:
        self.evidence = self.evidence.plus(question.at, answer)

    def resume(self) -> None:
        self.evidence = self.evidence.resumed()

    @abstractmethod
    def _step(self, evidence: Evidence) -> Question | Finding_co:
        """Return the next run or the finding, given `evidence`."""


_LEASE_WAIT: Final = "10m"


class Task(Part):
    """One case, to be run with versions that a search chooses.

    `case` is a node id whose versions do not count. `devices` are the device that it runs on and
    those that may stand in for it. `held` has the versions of axes that are not searched and not at
    their usual version, `paths` the path of each version that is named by a path. `match` is the
    condition for bad (None: any failure). pytest runs in `folder`, with `pytest_arguments` added.
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
    pytest_arguments: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[AxisName, ...]:
        return tuple(self.search.versions)

    def points(self) -> frozenset[Point]:
        """Return all points that the search may run."""
        return frozenset(self.search.points())

    def versions(self, point: Point) -> dict[AxisName, str]:
        return {**self.held, **dict(zip(self.axes, point, strict=True))}

    def arguments(self, point: Point, reports: Path, devices: Sequence[str]) -> list[str]:
        """Return pytest's arguments for a run at a point, on the first usable one of `devices`."""
        arguments = case_arguments(self.case, self.lab, reports, devices, self.backend)
        for axis, version in self.versions(point).items():
            path = self.paths.get(axis, {}).get(version, version)
            arguments.append(f"{AXES[axis].option}={path}")
        profiles = self.match is not None and parse_match(self.match).profiles
        arguments += ["--qnn-profile=ops"] if profiles else []
        # other settings only make sense for a test in Python
        arguments += isolated_arguments(self.folder) if is_of_a_file(self.case) else []
        return [*arguments, *self.pytest_arguments, split_node_id(self.case)[0]]


def case_arguments(
    case: str, lab: Path, reports: Path, devices: Sequence[str], backend: str
) -> list[str]:
    """Return pytest's arguments for one case alone, on the first usable one of `devices`."""
    # paths are given with "=": pytest takes a separate word for the path of a test
    arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", "-o", f"qnn_only_case={case}"]
    arguments += [f"--qnn-lab={lab}", f"--qnn-reports={reports}", f"--qnn-backend={backend}"]
    # so that the case is named after what the devices share, not after one of them
    arguments += ["--qnn-spread=soc"] if len(devices) > 1 else []
    # others may use the device in between; it is better to wait than to stop
    arguments += ["-o", f"qnn_lease_timeout={_LEASE_WAIT}"]
    return [*arguments, f"--qnn-device={','.join(devices)}"]
