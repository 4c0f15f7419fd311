"""The model of tests that fail now and then: where the rate of failures changes (pure).

Every version up to some point fails in one share of its runs, every later one in another. Neither
rate is known: each may be anything from 0 to 1, so a test that fails in 2 of 20 runs is no noise
around a good version. A history is a point and whether the rate rises there (a regression) or
falls (a fix); and there is the one without a change.

At every single pair of rates an answer is wrong with at most the allowed probability. Let E be how
likely the answers so far were, averaged over all histories and rates with weights that are fixed
beforehand. Let W be how likely they were by the histories that contradict the answer, each at the
rates that fit it best. An answer is given only when W <= allowed * E, whenever that comes and
however long one looks on. If one of these histories is true, E / W is no better than the stake of a
fair game, which grows a hundredfold in at most one of a hundred games (Ville's inequality). This
holds of each history by itself, wherever the change is, and whatever is run next. E is a sum over a
table of rates; W is the greatest likelihood there is, at whatever rates, also between those of the
table.

It cannot be shown that nothing changed at all, only that nothing changed by much. `least` is the
smallest change of the rate that would matter; all histories with a change as large contradict.

What the model does not hold: two changes, versions with rates of their own (both are noticed where
they are plain: `one_change`), runs that influence each other (a device that stays sick).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from harness.search.bisect.answers import GoodOrBad, Tally
from harness.search.bisect.flaky import Floats, entropy, log_sum

REGRESSION: Final = 0
FIX: Final = 1
ChangePlace = tuple[int, int]
"""The direction of the change, and how many versions there are before it."""

# Even steps of the angle whose squared sine the rate is: runs tell neighbours apart as well near 0
# as near one half. The best rate of the table is less likely than the very best one by 2 % after
# 500 runs: that makes E smaller, and the search a little longer, but nothing that it says wrong.
_RATES: Final[Floats] = np.sin(np.linspace(0, math.pi / 2, 161)) ** 2
_NEVER: Final = 1e-300
# Halvings after which an interval of rates is smaller than any number of runs can tell.
_HALVINGS: Final = 50
_LOG_BAD: Final[Floats] = np.log(np.maximum(_RATES, _NEVER))
_LOG_GOOD: Final[Floats] = _LOG_BAD[::-1]
# Before any answer: a search is mostly begun because something broke. What the user said of a
# version counts as much as nine to one, which two answers outweigh.
_BEFORE: Final = (0.45, 0.25)
_NO_CHANGE: Final = 0.30
_SAID_WRONGLY: Final = 0.1
# Of a rate that rises: from never to always; from never; to always; between any two.
_RISES: Final = (0.30, 0.175, 0.07, 0.455)
# Of a rate that stays: never, always, any.
_STAYS: Final = (0.3, 0.1, 0.6)
# Odds at which answers that fit no single change are no accident.
_NO_ACCIDENT: Final = math.log(10_000)
_MOST_TIMES: Final = 1e4
# More runs of a version than any change and any confidence need where none fails.
_MOST_EACH: Final = 100_000


def _weights() -> tuple[Floats, Floats]:
    """How likely beforehand each pair of rates is that rises, and each rate that stays."""
    number = len(_RATES)
    never, always = np.eye(number)[[0, -1]]
    some, below = np.full((2, number), 1 / (number - 1))
    some[0] = below[-1] = 0.0
    any_two = np.triu(np.ones((number, number)), 1)
    parts = (
        np.outer(never, always),
        np.outer(never, some),
        np.outer(below, always),
        any_two / any_two.sum(),
    )
    rises = sum((w * part for w, part in zip(_RISES, parts, strict=True)), np.zeros_like(any_two))
    stays = _STAYS[0] * never + _STAYS[1] * always + _STAYS[2] / number
    return rises, stays


_RISING, _STAYING = _weights()


@dataclass(frozen=True)
class Side:
    """The runs on one side of a change, and the bounds of their rate of failures."""

    failed: int
    runs: int
    low: float
    high: float


@dataclass(frozen=True)
class Rates:
    """The chances of all histories of some versions, oldest first.

    `counts` has how many runs of each failed and how many did not, `before` the logarithm of how
    likely each history was beforehand ([way, point]) and of how likely none was.
    """

    counts: Floats
    before: tuple[Floats, float]

    @classmethod
    def of(
        cls, tallies: Sequence[Tally], gaps: Sequence[float], said: Sequence[GoodOrBad | None]
    ) -> Rates:
        """Of two versions or more.

        `gaps` says how likely the change is between each two neighbours (any scale), `said` what
        the user claimed of each.
        """
        counts = np.array([[one.bad, one.good] for one in tallies], dtype=np.float64)
        return cls(counts, _prior(tuple(gaps), tuple(said)))

    @cached_property
    def _around(self) -> tuple[Floats, Floats]:
        """How many runs failed, and how many did not: before each point, and behind it."""
        sums = np.cumsum(self.counts, axis=0)
        return sums[:-1], sums[-1] - sums[:-1]

    @cached_property
    def _all(self) -> Floats:
        """How many of all runs failed, and how many did not."""
        return np.asarray(self.counts.sum(axis=0))

    @cached_property
    def _by_history(self) -> tuple[Floats, Floats, Floats]:
        """How likely the answers were by each history, and the rates before and behind it."""
        older, newer = (_at_rates(side) for side in self._around)
        tops = older.max(axis=1, keepdims=True), newer.max(axis=1, keepdims=True)
        of_older, of_newer = np.exp(older - tops[0]), np.exp(newer - tops[1])
        likely, before, behind = [], [], []
        for way in (_RISING, _RISING.T):
            reached = of_older @ way
            total = np.maximum((reached * of_newer).sum(axis=1), _NEVER)
            likely.append(np.log(total) + (tops[0] + tops[1])[:, 0])
            before.append((((of_older * _RATES) @ way) * of_newer).sum(axis=1) / total)
            behind.append((reached * of_newer * _RATES).sum(axis=1) / total)
        return np.array(likely), np.array(before), np.array(behind)

    @cached_property
    def _without_change(self) -> tuple[float, float]:
        """How likely the answers were if nothing changed, and the rate."""
        likely = _at_rates(self._all[None]).ravel()
        top = float(likely.max())
        weighed = _STAYING * np.exp(likely - top)
        total = float(weighed.sum())
        return top + math.log(total), float((weighed * _RATES).sum()) / total

    @cached_property
    def _evidence(self) -> float:
        """The logarithm of E."""
        changes, none = self.before
        likely = np.append(self._by_history[0] + changes, self._without_change[0] + none)
        return log_sum(likely)

    @cached_property
    def chances(self) -> Floats:
        """How likely each history is: [way, point]."""
        return np.asarray(np.exp(self._by_history[0] + self.before[0] - self._evidence))

    @cached_property
    def no_change(self) -> float:
        """How likely it is that nothing changed."""
        return math.exp(self._without_change[0] + self.before[1] - self._evidence)

    @cached_property
    def one_change(self) -> bool:
        """Whether the answers fit a single change, or none.

        Beside them, every version may have a rate of its own, or one of them alone.
        """
        if self.odds_alone.max() > _NO_ACCIDENT + math.log(len(self.counts)):
            return False
        alone = _at_rates(self.counts)
        tops = alone.max(axis=1)
        each = np.log((np.exp(alone - tops[:, None]) * _STAYING).sum(axis=1)) + tops
        return float(each.sum()) - self._evidence < _NO_ACCIDENT

    @cached_property
    def odds_alone(self) -> Floats:
        """How much better it fits that a version is alone with its rate than any single change.

        In logarithms, each at its best rates. 0 for both ends: those alone are single changes.
        """
        sides = np.stack([self.counts, self._all - self.counts])
        fits = _log_likelihood(sides, _share(sides)).sum(axis=0)
        best = math.log(max(self._against_none, float(self._against_change.max())))
        odds = np.asarray(fits - self._evidence - best)
        odds[[0, -1]] = 0.0
        return odds

    @cached_property
    def gains(self) -> Floats:
        """How many bits a run of each version is expected to tell about the history."""
        _, before, behind = self._by_history
        _, throughout = self._without_change
        number = len(self.counts)
        is_older = np.arange(number)[None, :] < np.arange(1, number)[:, None]
        fails = np.where(is_older, before[:, :, None], behind[:, :, None])
        chances = self.chances[:, :, None]
        expected = (chances * fails).sum(axis=(0, 1)) + self.no_change * throughout
        left = (chances * entropy(fails)).sum(axis=(0, 1))
        left += self.no_change * float(entropy(np.array(throughout)))
        return np.asarray(entropy(expected) - left)

    def likeliest(self) -> ChangePlace:
        """The likeliest change."""
        way, at = np.unravel_index(int(np.argmax(self.chances)), self.chances.shape)
        return int(way), int(at) + 1

    def _against(self, least: float) -> Floats:
        """W of each history by E, of changes of the rate by this or more: [way, point]."""
        sides = np.stack(self._around)
        low, high = sides, sides[::-1]
        at_low, at_high = _best_rise(low, high, least)
        best = _log_likelihood(low, at_low) + _log_likelihood(high, at_high)
        return np.asarray(np.exp(np.minimum(best - self._evidence, 50.0)))

    @cached_property
    def _against_change(self) -> Floats:
        """W of each history by E, however small the change: [way, point]."""
        return self._against(0.0)

    @cached_property
    def _against_none(self) -> float:
        """W of no change by E."""
        best = float(_log_likelihood(self._all, _share(self._all)))
        return math.exp(min(50.0, best - self._evidence))

    def error(self, history: ChangePlace) -> float:
        """How likely it is wrong to answer this change, at the rates where that is likeliest."""
        others = self._against_change.copy()
        others[history[0], history[1] - 1] = 0
        return min(1.0, max(float(others.max()), self._against_none))

    def error_of_none(self, least: float) -> float:
        """As `error`, for the answer that there is no change of the rate by `least` or more."""
        return min(1.0, float(self._against(least).max()))

    def most(self, confidence: float) -> tuple[list[ChangePlace], float]:
        """The changes that cannot be excluded with this confidence, and how sure that is.

        Nothing is excluded sooner than that nothing changed: a change may be as small as can be.
        """
        against = self._against_change
        possible = against > 1 - confidence
        left = [(int(way), int(at) + 1) for way, at in np.argwhere(possible)]
        return left, 1 - float(against[~possible].max(initial=0.0))

    def excluded(self, confidence: float) -> float | None:
        """The smallest change of the rate, in hundredths, that is excluded; None if none is."""
        for percent in range(1, 101):
            if self.error_of_none(percent / 100) <= 1 - confidence:
                return percent / 100
        return None

    def sides(self, at: int, confidence: float) -> tuple[Side, Side]:
        """The runs before a change and behind it, and where their rates lie."""
        sides = [side[at - 1] for side in self._around]
        best = [float(_log_likelihood(one, _share(one))) for one in sides]
        floor = math.log(1 - confidence) + self._evidence
        return _side(sides[0], floor - best[1]), _side(sides[1], floor - best[0])

    def throughout(self, confidence: float) -> Side:
        """All runs, and where their rate lies if nothing changed."""
        return _side(self._all, math.log(1 - confidence) + self._evidence)

    def more_runs(self, least: float | None, confidence: float) -> int | None:
        """How many more runs, like those so far, should answer; None if too many would be needed.

        The answer is that there is no change as large as `least`, or, without it, that there is one
        at all, wherever. 0 where these tell it.
        """

        def answers(times: float) -> bool:
            grown = replace(self, counts=self.counts * times)
            error = grown._against_none if least is None else grown.error_of_none(least)
            return error <= 1 - confidence

        if answers(1.0):
            return 0
        low, high = 1.0, 2.0
        while not answers(high):
            low, high = high, 2 * high
            if high > _MOST_TIMES:
                return None
        while (high - low) > 0.02 * low:
            middle = (low + high) / 2
            low, high = (low, middle) if answers(middle) else (middle, high)
        return math.ceil((high - 1) * float(self.counts.sum()))


@lru_cache(maxsize=64)
def runs_if_none_fails(versions: int, least: float, confidence: float) -> int:
    """How many runs of both ends together exclude a change by `least` if none of them fails."""

    def suffice(each: int) -> bool:
        ends = [Tally(good=each), *[Tally()] * (versions - 2), Tally(good=each)]
        alike = Rates.of(ends, [1.0] * (versions - 1), [None] * versions)
        return alike.error_of_none(least) <= 1 - confidence

    return 2 * bisect_left(range(_MOST_EACH), True, lo=2, key=suffice)


def _at_rates(counts: Floats) -> Floats:
    """The log-likelihood of each row of failures and passes at each rate."""
    return np.asarray(counts[:, :1] * _LOG_BAD + counts[:, 1:] * _LOG_GOOD)


def _log_likelihood(counts: Floats, rate: Floats) -> Floats:
    """Of each row of failures and passes, at a rate of its own."""
    bad, good = np.log(np.maximum(rate, _NEVER)), np.log(np.maximum(1 - rate, _NEVER))
    return np.asarray(counts[..., 0] * bad + counts[..., 1] * good)


def _share(counts: Floats) -> Floats:
    """The share of each row that failed: the rate that fits it best; 0 if none ran."""
    return np.asarray(counts[..., 0] / np.maximum(counts.sum(axis=-1), 1))


def _best_rise(lower: Floats, upper: Floats, least: float) -> tuple[Floats, Floats]:
    """The two rates that fit best in each row, the second greater by `least` or more.

    If the shares do not differ by so much, the best two differ by just that, as the likelihood has
    a single hill. The slope along these says on which side of the top a pair is.
    """
    low, high = _share(lower), _share(upper)
    if least == 0:  # one rate for all of these runs: no need to look for it
        falls, both = low > high, _share(lower + upper)
        return np.where(falls, both, low), np.where(falls, both, high)
    (low_bad, low_good), (high_bad, high_good) = np.moveaxis(np.stack([lower, upper]), -1, 1)
    below, above = np.zeros_like(low), np.full_like(low, 1 - least)
    with np.errstate(divide="ignore", invalid="ignore"):  # at 0 and 1, where nothing is left
        for _ in range(_HALVINGS):
            rate = (below + above) / 2
            other = rate + least
            slope = low_bad / rate - low_good / (1 - rate)
            slope += high_bad / other - high_good / (1 - other)
            rises = slope > 0
            below, above = np.where(rises, rate, below), np.where(rises, above, rate)
    enough = high - low >= least
    return np.where(enough, low, below), np.where(enough, high, below + least)


def _side(counts: Floats, floor: float) -> Side:
    """These runs, and the rates at which they are no less likely than `floor`."""
    best = float(_share(counts))
    ends = []
    for end in (0.0, 1.0):
        inside, outside = best, end
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            fits = float(_log_likelihood(counts, np.array(middle))) >= floor
            inside, outside = (middle, outside) if fits else (inside, middle)
        ends.append(outside)  # not the last that fits, but the first that does not
    failed, passed = counts
    return Side(int(failed), int(failed + passed), ends[0], ends[1])


@lru_cache(maxsize=64)
def _prior(gaps: tuple[float, ...], said: tuple[GoodOrBad | None, ...]) -> tuple[Floats, float]:
    share = np.array(gaps) / sum(gaps)
    before = np.outer(_BEFORE, share)
    points = np.arange(1, len(said))
    for at, verdict in enumerate(said):
        if verdict is not None:
            # of a rate that rises, the older versions are the good ones
            bad = np.stack([at >= points, at < points])
            before[bad != (verdict == "bad")] *= _SAID_WRONGLY
    none = _NO_CHANGE * (_SAID_WRONGLY if {"good", "bad"} <= {*said} else 1.0)
    total = before.sum() + none
    return np.log(before / total), math.log(none / total)
