"""A search: ask it what to run, tell it what came of it; and the one on one axis (pure)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from harness.bisect import noisy, steady
from harness.bisect.answers import Answer, Evidence, Place, Question, Stopped
from harness.bisect.bounds import Bound
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.line import Ask, Cost, Line
from harness.bisect.specs import AxisSpec, GridSpec

Spec = TypeVar("Spec", AxisSpec, GridSpec)
Found = TypeVar("Found", Finding, GridFinding)


def free(_: Place) -> float:
    """The cost of a run if all cost the same."""
    return 1.0


class Asking(ABC, Generic[Spec, Found]):
    """What every search does, whatever it thinks: asks, is told, and is resumed.

    What it asks follows from the spec, the answers and the costs alone, whatever the order of the
    answers: so a search is resumed by telling it again what is known, and an answer that somebody
    corrected needs no care.
    """

    def __init__(self, spec: Spec, *, cost: Cost = free, evidence: Evidence | None = None) -> None:
        """`cost` says how many seconds a run takes, with fetching, pushing and compiling."""
        self.spec: Spec = spec
        self.evidence = evidence or Evidence()
        self._cost = cost

    @property
    def bound(self) -> Bound:
        """How many runs it may take; say it before the first."""
        return self.spec.bound()

    def next(self) -> Question | Stopped | Found:
        """What to run next; or what was found; or that the lab must be seen to first."""
        step = self._step(self.evidence)
        if isinstance(step, Question) and self.evidence.troubles >= self.spec.patience:
            return Stopped(self.evidence.troubles, step)
        return step

    def answer(self, question: Question, answer: Answer) -> None:
        """What came of a run. `unknown` means that the lab failed: the same is asked again."""
        self.evidence = self.evidence.plus(question.at, answer)

    def resume(self) -> None:
        """The lab was seen to: go on."""
        self.evidence = self.evidence.resumed()

    def ahead(self) -> tuple[Place, ...]:
        """Where the next but one run will be, for each answer of the next: worth fetching now."""
        first = self._step(self.evidence)
        if not isinstance(first, Question):
            return ()
        answers: tuple[Answer, ...] = ("good", "bad", "untestable")
        steps = [self._step(self.evidence.plus(first.at, answer)) for answer in answers]
        places = [step.at for step in steps if isinstance(step, Question)]
        return tuple(dict.fromkeys(at for at in places if at != first.at))

    @abstractmethod
    def _step(self, evidence: Evidence) -> Question | Found:
        """What to run next, or what was found, as far as `evidence` goes."""


class Search(Asking[AxisSpec, Finding]):
    """Finds where one axis changes."""

    def _step(self, evidence: Evidence) -> Question | Finding:
        line = Line.of(self.spec, evidence, self._cost)
        repeat = self.spec.repeat
        step = noisy.decide(line) if repeat == "auto" else steady.decide(line, repeat)
        if isinstance(step, Ask):
            return Question((line.names[step.index],), evidence.runs + 1, step.why)
        return step
