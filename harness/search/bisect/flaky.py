"""The model of flaky tests on two axes: what a run's answer says about the pair (pure).

A pair is good or bad; a run only shows it. Two rates, the same for all pairs of one search and not
known beforehand, say how badly, each from 0 to 40 %:

- `hides`: a bad pair's run looks good (a race that is not always lost);
- `alarms`: a good pair's run looks bad (a test that fails for other reasons now and then).

So a pair that fails in a tenth of its runs counts as good, and the answer says so. On one axis
`rates.py` has no such limit. Runs are independent of each other given the pair and the rates. There
is a table of all pairs of rates, in steps of 5 %.

The table's weights say what is expected before any run: no flakiness at all with 30 %, then the
Heisenbug that good pairs never show. They do not enter into what is promised: at every single pair
of rates, the worst included, an answer is wrong with at most the allowed probability. Let E be how
likely the answers so far were, averaged over the whole table. Let W be how likely they were at one
pair of rates, for what contradicts the answer. An answer is given only when W <= allowed * E,
whenever that comes. Summed over all courses that a search can take, the probability of being wrong
is the sum of W, and the sum of E is at most 1. So a wrong answer has at most the allowed
probability.

What the model does not hold: pairs with rates of their own, runs that influence each other
(a device that stays sick), rates above 40 %. At 50 % a run says nothing and no number helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.search.bisect.answers import Tally

Floats = NDArray[np.float64]

WORST: Final = 0.40
_EXACT: Final = 0.30
# Of what is flaky at all: only bad pairs, only good pairs, both.
_FLAKY: Final = (0.25, 0.10, 0.65)
_RATES: Final = tuple(step / 20 for step in range(1, 9))
# A rate of 0 that is contradicted by a run: as good as impossible, and still a number.
_NEVER: Final = 1e-30


def _table() -> tuple[Floats, Floats, Floats]:
    number = len(_RATES)
    only_bad, only_good, both = ((1 - _EXACT) * share for share in _FLAKY)
    rows = [(0.0, 0.0, _EXACT)]
    rows += [(rate, 0.0, only_bad / number) for rate in _RATES]
    rows += [(0.0, rate, only_good / number) for rate in _RATES]
    rows += [(hides, alarms, both / number**2) for hides in _RATES for alarms in _RATES]
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2]


HIDES, ALARMS, WEIGHTS = _table()
LOG_WEIGHTS: Final = np.log(WEIGHTS)
_LOG = {
    "bad_bad": np.log(1 - HIDES),
    "bad_good": np.log(np.maximum(HIDES, _NEVER)),
    "good_bad": np.log(np.maximum(ALARMS, _NEVER)),
    "good_good": np.log(1 - ALARMS),
}


def log_likelihoods(tallies: Sequence[Tally]) -> tuple[Floats, Floats]:
    """For each tally (row) and pair of rates (column): the answers' log-likelihood.

    First if the version is good, then if it is bad.
    """
    bad = np.array([[tally.bad] for tally in tallies], dtype=np.float64)
    good = np.array([[tally.good] for tally in tallies], dtype=np.float64)
    if_good = bad * _LOG["good_bad"] + good * _LOG["good_good"]
    if_bad = bad * _LOG["bad_bad"] + good * _LOG["bad_good"]
    return if_good, if_bad


def log_sum(values: Floats) -> float:
    """log(sum(exp(values))), without overflow."""
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))


def chances_bad(tallies: Sequence[Tally]) -> list[float]:
    """How likely each of these points is bad, if nothing connects them but the rates."""
    if not tallies:
        return []
    if_good, if_bad = log_likelihoods(tallies)
    each = np.logaddexp(if_good, if_bad)
    rates = LOG_WEIGHTS + each.sum(axis=0)
    rates = np.exp(rates - rates.max())
    rates /= rates.sum()
    return [float(chance) for chance in (np.exp(if_bad - each) * rates).sum(axis=1)]


def errors_at_worst(tallies: Sequence[Tally]) -> list[float]:
    """How likely each point is not what it looks like, at the rates where that is likeliest.

    Nothing connects the points but the rates. See above for what this number promises.
    """
    if not tallies:
        return []
    if_good, if_bad = log_likelihoods(tallies)
    each = np.logaddexp(if_good, if_bad) - math.log(2)
    all_of_them = each.sum(axis=0)
    total = log_sum(LOG_WEIGHTS + all_of_them)
    others = all_of_them - each - total
    good, bad = (np.exp((others + one).max(axis=1)) for one in (if_good, if_bad))
    return [float(error) for error in np.minimum(1.0, np.minimum(good, bad))]


def entropy(chance: Floats) -> Floats:
    """Of an answer with two values, in bits."""
    p = np.clip(chance, 1e-15, 1 - 1e-15)
    return np.asarray(-(p * np.log2(p) + (1 - p) * np.log2(1 - p)))
