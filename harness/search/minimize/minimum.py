"""The search for the smallest way of a case that fails: what to run next, what is known (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from harness.search.bisect.answers import Evidence, Point, Question, Tally
from harness.search.bisect.search import Search
from harness.search.minimize.search import Way, WayAnswer, shrunk
from harness.search.minimize.subject import Minimizing

_FIRST_RUNS: Final = 3
_TRIES: Final = 10
_MOST_REPEATS: Final = 20
_OVERLOOKED: Final = 0.02
"""How likely a failure may be overlooked, if it comes as often as at first."""


@dataclass(frozen=True)
class Minimum:
    """The smallest `way` that is known to fail. If `fails` is False, none was seen to fail.

    `minimal`: it passes without any one of its contexts. `order_matters`: it passes in the other
    order; None where that was not tried.
    """

    way: Way
    fails: bool = True
    minimal: bool = False
    order_matters: bool | None = None

    def __str__(self) -> str:
        what = "is minimal" if self.minimal else "is the smallest known"
        return f"{' '.join(self.way.point)} {what}" if self.fails else "it did not fail"


class _UnknownError(Exception):
    """A way was not run often enough to be judged."""


class MinimizeSearch(Search[Minimizing, Minimum]):
    """Finds the smallest way that fails."""

    def __init__(self, spec: Minimizing, evidence: Evidence) -> None:
        super().__init__(spec, evidence)
        self.contexts: dict[Point, int | None] = {}
        """The places in their order at which ways failed, as far as they are known."""
        self.allowed = _made(evidence) + spec.max_runs
        """How many runs there may be in all, with those that the lab spoilt."""

    def known(self) -> Minimum:
        """What is known by now."""
        return self._known(self.evidence)[0]

    def _known(self, evidence: Evidence) -> tuple[Minimum, Way | None, str]:
        """What is known, and which way is to be run next, and why; None if none is."""
        whole = self.spec.subject.way
        sure = self.spec.repeat or _FIRST_RUNS
        seen = evidence.of(whole.point)
        fails, runs = seen.bad > 0, _runs(seen)
        if runs < sure or (not fails and runs < _TRIES):
            return Minimum(whole, fails=fails), whole, "whether it fails"
        if not fails:
            return Minimum(whole, fails=False), None, ""
        repeat = self.spec.repeat or _repeats(seen.bad / runs)
        best = asked = whole
        minimal = False

        def ask(way: Way) -> WayAnswer:
            """Whether one of so many runs of a way fails: nothing fails so by chance."""
            nonlocal asked
            asked, tally = way, evidence.of(way.point)
            if not tally.bad and _runs(tally) < repeat:
                raise _UnknownError
            return WayAnswer(tally.bad > 0, self.contexts.get(way.point))

        try:
            for smaller in shrunk(whole, ask):
                best = smaller
            if _runs(evidence.of(best.point)) < sure:
                return Minimum(best), best, "whether it fails again"
            minimal, other = True, best.reversed
            matters = None if other == best else not ask(other).fails
        except _UnknownError:
            why = f"whether {len(asked.order)} of {len(whole.order)} do"
            return Minimum(best, minimal=minimal), asked, why
        return Minimum(best, minimal=True, order_matters=matters), None, ""

    def _step(self, evidence: Evidence) -> Question | Minimum:
        found, way, why = self._known(evidence)
        if way is None or _made(evidence) >= self.allowed:
            return found
        return Question(at=way.point, number=evidence.runs + 1, why=why)


def _made(evidence: Evidence) -> int:
    return evidence.runs + evidence.unknown


def _runs(tally: Tally) -> int:
    return tally.told + tally.untestable


def _repeats(often: float) -> int:
    if often == 1:
        return 1
    return min(_MOST_REPEATS, math.ceil(math.log(_OVERLOOKED) / math.log(1 - often)))
