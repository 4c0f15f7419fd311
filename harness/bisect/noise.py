"""The model of flaky tests: what a run's answer says about the version (pure).

A version is good or bad; a run only shows it. Two rates, the same for all versions of one search
and not known beforehand, say how badly:

- `hides`: a bad version's run looks good (a race that is not always lost): 0 to 40 %;
- `alarms`: a good version's run looks bad (a test that fails for other reasons now and then):
  0 to 40 % too, but never more often than `hides`.

Runs are independent of each other given the version and the rates. The rates are estimated along
with the answer: a table of pairs, each with a weight, of which runs that contradict each other
pull down the steady ones. Before any run, (0, 0), no flakiness at all, has a weight of 30 %; each
rate of hiding has the same share of the rest, a quarter of it without alarms, the Heisenbug that
good versions never show, and three quarters over all rates of alarms up to it. With less for the
flaky pairs, a steady test would be repeated less, and the wrong answers at high rates would be
more than the confidence promises.

The confidence is an average over that table, and at the worst rates the error is about twice the
average: so a search goes on until the error is half of what is allowed (`wanted`).

What the model does not hold: versions with rates of their own, runs that influence each other
(a device that stays sick), rates above 40 %. At 50 % a run says nothing and no number helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.bisect.answers import Tally

Floats = NDArray[np.float64]

WORST: Final = 0.40
_STEADY: Final = 0.30
_NO_ALARMS: Final = 0.25
_RATES: Final = tuple(step / 20 for step in range(1, 9))
# A rate of 0 that is contradicted by a run: as good as impossible, and still a number.
_NEVER: Final = 1e-30


def _table() -> tuple[Floats, Floats, Floats]:
    rows = [(0.0, 0.0, _STEADY)]
    share = (1 - _STEADY) / len(_RATES)
    for hides in _RATES:
        rows.append((hides, 0.0, share * _NO_ALARMS))
        lower = [rate for rate in _RATES if rate <= hides]
        rows += [(hides, rate, share * (1 - _NO_ALARMS) / len(lower)) for rate in lower]
    columns = np.array(rows).T
    return columns[0], columns[1], columns[2]


HIDES, ALARMS, WEIGHTS = _table()
_LOG = {
    "bad_bad": np.log(1 - HIDES),
    "bad_good": np.log(np.maximum(HIDES, _NEVER)),
    "good_bad": np.log(np.maximum(ALARMS, _NEVER)),
    "good_good": np.log(1 - ALARMS),
}


def wanted(confidence: float) -> float:
    """How likely an answer must be under the model to be given with this confidence."""
    return 1 - (1 - confidence) / 2


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
    """How likely each of some places is bad, if nothing connects them but the rates."""
    if not tallies:
        return []
    if_good, if_bad = log_likelihoods(tallies)
    each = np.logaddexp(if_good, if_bad)
    rates = np.log(WEIGHTS) + each.sum(axis=0)
    rates = np.exp(rates - rates.max())
    rates /= rates.sum()
    return [float(chance) for chance in (np.exp(if_bad - each) * rates).sum(axis=1)]


def log_evidence_unconnected(tallies: Sequence[Tally]) -> float:
    """How well the answers fit if every place is good or bad for itself, in no order."""
    if_good, if_bad = log_likelihoods(tallies)
    each = np.logaddexp(if_good, if_bad) - math.log(2)
    return log_sum(np.log(WEIGHTS) + each.sum(axis=0))


def entropy(chance: Floats) -> Floats:
    """Of an answer with two values, in bits."""
    p = np.clip(chance, 1e-15, 1 - 1e-15)
    return np.asarray(-(p * np.log2(p) + (1 - p) * np.log2(1 - p)))
