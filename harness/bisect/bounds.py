"""How many runs a search may take: known and said before the first one (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.bisect.answers import Repeat
from harness.bisect.noise import WORST


@dataclass(frozen=True)
class Bound:
    """`runs` holds if everything can be tested; each run spent on an untestable place adds one.

    `alike` holds instead if both ends answer alike: then there is either no change, or two, and
    some runs go into looking for a place that differs. Runs that the lab spoils are not counted.
    `all_places` is how many runs there are at all if no answer is asked for more than `repeat`
    times, None if there is no such number.
    """

    runs: int
    alike: int
    all_places: int | None = None

    def limit(self, *, wasted: int = 0, alike: bool = False) -> int:
        """The number of runs that is not exceeded when `wasted` of them met untestable places."""
        limit = (self.alike if alike else self.runs) + wasted
        return limit if self.all_places is None else min(limit, self.all_places)

    def __str__(self) -> str:
        text = f"at most {self.runs} runs, and one more for each that finds it cannot be tested"
        if self.alike > self.runs:
            text += f"; at most {self.alike} if both ends answer alike"
        return text


def halvings(gaps: int) -> int:
    """How many runs halve a number of gaps down to one."""
    return math.ceil(math.log2(gaps)) if gaps > 1 else 0


def axis_bound(
    candidates: int, *, repeat: Repeat = 1, confidence: float = 0.99, max_runs: int | None = None
) -> Bound:
    """The bound of a search on one axis.

    Without noise: both ends, and halving the gaps between them. With `repeat` runs each: so many
    times more. With "auto": 2.5 times what an ideal search needs on average if 40 % of all answers
    are wrong; a steady test ends long before. `max_runs` lowers whatever comes out.
    """
    if candidates < 1:
        raise ValueError(f"no candidates: {candidates}")
    if repeat == "auto":
        runs = max(
            2, math.ceil(2.5 * ideal_noisy_runs(2 * candidates, WORST, 1 - (1 - confidence) / 2))
        )
        return _capped(Bound(runs, runs), max_runs)
    ends, halves = min(candidates, 2), halvings(candidates - 1)
    return _capped(
        Bound(repeat * (ends + halves), repeat * (ends + 2 * halves), repeat * candidates), max_runs
    )


# A run of a place decides it if 40 % of all answers are wrong, after about so many repetitions.
_UNTIL_SURE = 200


def grid_bound(
    rows: int, columns: int, *, repeat: Repeat = 1, max_runs: int | None = None, every: bool = False
) -> Bound:
    """The bound of a search on a grid: rows + columns + 4 places, or every place."""
    if rows < 1 or columns < 1:
        raise ValueError(f"no grid: {rows} x {columns}")
    places = rows * columns
    each = _UNTIL_SURE if repeat == "auto" else repeat
    asked = places if every else min(places, rows + columns + 4)
    return _capped(Bound(each * asked, each * asked, each * places), max_runs)


def ideal_noisy_runs(candidates: int, flake: float, confidence: float) -> float:
    """What no search can do better on average if a share `flake` of all answers is wrong.

    log2(n) bits must pass through a channel of 1 - H(flake) bits a run, and the answer must be
    confirmed: log(c / (1 - c)) against the drift of its odds at each run.
    """
    if flake <= 0:
        return math.log2(candidates)
    capacity = 1 + flake * math.log2(flake) + (1 - flake) * math.log2(1 - flake)
    drift = (1 - 2 * flake) * math.log((1 - flake) / flake)
    return math.log2(candidates) / capacity + math.log(confidence / (1 - confidence)) / drift


def _capped(bound: Bound, most: int | None) -> Bound:
    if most is None:
        return bound
    return Bound(min(bound.runs, most), min(bound.alike, most), min(bound.all_places or most, most))
