"""A grid as a search sees it: what can be tested, what is settled, how it is turned (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.bisect.answers import Evidence, Place, Verdict
from harness.bisect.frontier import Bools, Known, Spot, Turned
from harness.bisect.noise import chances_bad, errors_at_worst
from harness.bisect.specs import GridSpec

_Value = TypeVar("_Value", bound=np.generic)

# A place that tells nothing after so many runs never will: its rate is near 50 %.
_HOPELESS: Final = 200
_WAYS: Final = ((True, True), (False, False), (True, False), (False, True))


@dataclass(frozen=True)
class Board:
    """The state of a grid search; spots are rows and columns of the grid, not turned."""

    spec: GridSpec
    evidence: Evidence

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.spec.rows), len(self.spec.columns)

    def place(self, spot: Spot) -> Place:
        """The candidates of a spot."""
        return self.spec.rows[spot[0]], self.spec.columns[spot[1]]

    @cached_property
    def holes(self) -> frozenset[Spot]:
        """Where testing turned out to be impossible."""
        return frozenset(
            spot
            for spot in self._all()
            if (tally := self.evidence.of(self.place(spot))).untestable
            or (tally.told >= _HOPELESS and spot not in self.chances_settled)
        )

    @cached_property
    def testable(self) -> Bools:
        """Where testing is possible, as far as known."""
        known = np.ones(self.shape, dtype=np.bool_)
        for spot in self._all():
            if self.place(spot) in self.spec.untestable or spot in self.holes:
                known[spot] = False
        return known

    @cached_property
    def verdicts(self) -> Mapping[Spot, Verdict]:
        """What was asked often enough."""
        if self.spec.repeat == "auto":
            return {
                spot: "bad" if chance > 0.5 else "good"
                for spot, chance in self.chances_settled.items()
            }
        settled = {}
        for spot in self._all():
            tally = self.evidence.of(self.place(spot))
            verdict = None if tally.untestable else tally.settled(self.spec.repeat)
            if verdict is not None:
                settled[spot] = verdict
        return settled

    @cached_property
    def chances_settled(self) -> Mapping[Spot, float]:
        """How likely a spot is bad, for those of which it is sure enough (repeat "auto" only)."""
        told = self._tallied
        chances = chances_bad([self.evidence.of(self.place(spot)) for spot in told])
        return {
            spot: chance
            for spot, chance in zip(told, chances, strict=True)
            if told[spot] <= self._allowed()
        }

    @cached_property
    def _tallied(self) -> Mapping[Spot, float]:
        """How likely each spot that told anything is not what it looks like, at the worst rates."""
        if self.spec.repeat != "auto":
            return {}
        told = [spot for spot in self._all() if self._told(spot)]
        errors = errors_at_worst([self.evidence.of(self.place(spot)) for spot in told])
        return dict(zip(told, errors, strict=True))

    def _allowed(self) -> float:
        """The wanted confidence is that of the whole answer: each spot has a share of the error."""
        return (1 - self.spec.confidence) / (sum(self.shape) + 4)

    @cached_property
    def begun(self) -> tuple[Spot, ...]:
        """What was asked, but not often enough."""
        return tuple(
            spot
            for spot in self._all()
            if self._told(spot) and spot not in self.verdicts and self.testable[spot]
        )

    def confidence(self) -> float | None:
        """How likely all settled verdicts are right together (repeat "auto" only)."""
        if self.spec.repeat != "auto":
            return None
        return max(0.0, 1 - sum(self._tallied[spot] for spot in self.chances_settled))

    def limit(self) -> int:
        """How many runs it may take, with what was spent on untestable places."""
        return self.spec.bound().limit(wasted=self.evidence.wasted())

    def corner(self, top: bool, left: bool) -> Spot | None:
        """The testable spot nearest to a corner; None if there is none."""
        row, column = 0 if top else self.shape[0] - 1, 0 if left else self.shape[1] - 1
        spots = [(int(i), int(j)) for i, j in np.argwhere(self.testable)]
        return min(spots, key=lambda s: abs(s[0] - row) + abs(s[1] - column), default=None)

    def ends(self) -> list[Spot]:
        """The corners that are confirmed first: all, or the two that count with `newer` told."""
        told = self.spec.newer
        both = [(True, True), (False, False), (True, False), (False, True)]
        if told is not None:
            both = both[:2] if told[0] == told[1] else both[2:]
        spots = [self.corner(top, left) for top, left in both]
        return list(dict.fromkeys(spot for spot in spots if spot is not None))

    def corners_testable(self) -> bool:
        """Whether all four corners can be tested."""
        return bool(self.testable[np.ix_([0, -1], [0, -1])].all())

    def ways(self) -> list[Turned]:
        """The ways to turn the grid that fit the verdicts, those alike on both axes first.

        Where `newer` was told, only these ways and their opposites are looked at.
        """
        told = self.spec.newer
        turned = [Turned(*self.shape, way) for way in _WAYS]
        if told is not None:
            alike = told[0] == told[1]
            turned = [one for one in turned if one.same_way() == alike]
        return [one for one in turned if not self.known(one).conflict()]

    def agreed(self, ways: Sequence[Turned]) -> tuple[Bools, Bools]:
        """Which spots are good and which are bad whichever of these ways is the true one."""
        good = np.full(self.shape, bool(ways))
        bad = good.copy()
        for way in ways:
            known = self.known(way)
            good &= self.turn(known.good, way)
            bad &= self.turn(known.bad, way)
        return good, bad

    def known(self, turned: Turned) -> Known:
        """What the verdicts imply, turned."""
        verdicts = {turned.spot(spot): verdict for spot, verdict in self.verdicts.items()}
        return Known.of(*self.shape, verdicts)

    def unknown(self, turned: Turned) -> Bools:
        """What can be tested and is not known yet, turned."""
        return np.asarray(self.known(turned).open() & self.turn(self.testable, turned))

    def turn(self, values: NDArray[_Value], turned: Turned) -> NDArray[_Value]:
        """An array of the grid, turned (twice gives it back)."""
        rows = slice(None) if turned.newer[0] else slice(None, None, -1)
        columns = slice(None) if turned.newer[1] else slice(None, None, -1)
        return values[rows, columns]

    def witnesses(self, turned: Turned) -> tuple[Spot, Spot] | None:
        """A good spot and a bad one above it, which must not be: the nearest to each other."""
        goods = [s for s, verdict in self.verdicts.items() if verdict == "good"]
        bads = [s for s, verdict in self.verdicts.items() if verdict == "bad"]
        pairs = []
        for good in goods:
            for bad in bads:
                low, high = turned.spot(good), turned.spot(bad)
                if low[0] <= high[0] and low[1] <= high[1]:
                    pairs.append((high[0] - low[0] + high[1] - low[1], good, bad))
        return min(pairs)[1:] if pairs else None

    def _told(self, spot: Spot) -> bool:
        tally = self.evidence.of(self.place(spot))
        return tally.told > 0 and not tally.untestable

    def _all(self) -> Iterable[Spot]:
        rows, columns = self.shape
        return ((row, column) for row in range(rows) for column in range(columns))
