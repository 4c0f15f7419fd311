"""The model of flaky tests: what a run's answer says about the version (pure).

A version is good or bad; a run only shows it. Two rates, the same for all versions of one search
and not known beforehand, say how badly, each from 0 to 40 %:

- `hides`: a bad version's run looks good (a race that is not always lost);
- `alarms`: a good version's run looks bad (a test that fails for other reasons now and then).

Runs are independent of each other given the version and the rates. There is a table of all pairs
of rates, in steps of 5 %.

The table's weights say what is expected before any run: no flakiness at all with 30 %, then the
Heisenbug that good versions never show. They steer what is run, and they do not enter into what is
promised. An answer is given when it would be wrong with at most the allowed probability at every
single pair of rates, the worst one included: let E be how likely the answers so far were, averaged
over the whole table, and W the same for the histories that contradict the answer, at one pair of
rates. Answering only when W <= allowed * E, whenever that comes, is wrong at these rates with at
most the allowed probability: summed over all courses a search can take, that of being wrong is
W's sum, and the sum of E is at most 1.

What the model does not hold: versions with rates of their own, runs that influence each other
(a device that stays sick), rates above 40 %. At 50 % a run says nothing and no number helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.bisect.answers import Tally, Verdict

Floats = NDArray[np.float64]

WORST: Final = 0.40
_EXACT: Final = 0.30
# Of what is flaky at all: only bad versions, only good versions, both.
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
    """How likely each of some points is bad, if nothing connects them but the rates."""
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


REGRESSION: Final = 0
FIX: Final = 1

# Before any answer: a search is mostly begun because something broke. What the user said of a
# version counts as much as nine to one, which two answers outweigh.
_BEFORE: Final = (0.45, 0.25)
_NO_CHANGE: Final = 0.05
_SAID_WRONGLY: Final = 0.1
# Odds at which answers that fit no single change are no accident.
_NO_ACCIDENT: Final = math.log(10_000)


@dataclass(frozen=True)
class Histories:
    """The chances of all histories: `chances[way, k]` says how likely the change is before k.

    With way REGRESSION, the first k candidates are good and the others bad (k = 0: all are bad,
    k = number: all are good); with FIX the other way round, and only with a change.

    `chances` lean on what is expected beforehand, `against` does not: for each history and pair of
    rates, how well it explains the answers, compared with everything together. Each of the four
    kinds (all good, all bad, a regression, a fix) counts as if it were the only one possible, with
    the change as likely at one point as at another, so what follows from it holds for each kind,
    whatever was claimed or expected.
    """

    chances: Floats
    gains: Floats
    one_change: bool
    against: Floats

    def best(self) -> tuple[int, int, float]:
        """The likeliest history and its chance."""
        way, k = np.unravel_index(int(np.argmax(self.chances)), self.chances.shape)
        return int(way), int(k), float(self.chances[way, k])

    def error(self, way: int, k: int) -> float:
        """How likely it is wrong to answer this, at the rates where that is likeliest."""
        others = self.against.copy()
        others[way, k] = 0
        return min(1.0, float(_by_kind(others).max()))

    def most(self, confidence: float) -> tuple[list[tuple[int, int]], float]:
        """The histories that cannot be excluded with this confidence, and how sure that is."""
        order = np.argsort(self.against.max(axis=2), axis=None, kind="stable")
        excluded = np.zeros_like(self.against)
        left = [divmod(int(flat), excluded.shape[1]) for flat in order]
        error = 0.0
        while left:
            excluded[left[0]] = self.against[left[0]]
            worst = float(_by_kind(excluded).max())
            if worst > 1 - confidence:
                break
            error = worst
            left.pop(0)
        return [history for history in left if self.chances[history] > 0], 1 - error


def histories(
    tallies: Sequence[Tally], gaps: Sequence[float], said: Sequence[Verdict | None]
) -> Histories:
    """Weighs all histories of some candidates.

    `gaps` says how likely the change is between each two neighbours (any scale), `said` what the
    user claimed of each.
    """
    number = len(tallies)
    prior = _log_prior(tuple(gaps), tuple(said))
    if_good, if_bad = log_likelihoods(tallies)
    first_good, first_bad = _sums(if_good), _sums(if_bad)
    fits = np.stack(
        [
            first_good + first_bad[-1] - first_bad,
            first_bad + first_good[-1] - first_good,
        ]
    )
    logs = fits + prior[:, :, None] + LOG_WEIGHTS
    total = log_sum(logs)
    joint = np.exp(logs - total)
    chances = joint.sum(axis=2)
    each = np.maximum(chances, 1e-300)
    # how a bad or a good version would answer next, if this history is the true one
    bad_shows = 1 - (joint * HIDES).sum(axis=2) / each
    good_shows = (joint * ALARMS).sum(axis=2) / each
    bad = _is_bad(number)
    answers = np.where(bad, bad_shows[:, :, None], good_shows[:, :, None])
    shows = (chances[:, :, None] * answers).sum(axis=(0, 1))
    left = (chances[:, :, None] * entropy(answers)).sum(axis=(0, 1))
    # how well the answers fit if every candidate is good or bad for itself, in no order
    unconnected = np.logaddexp(if_good, if_bad) - math.log(2)
    one_change = log_sum(LOG_WEIGHTS + unconnected.sum(axis=0)) - total < _NO_ACCIDENT
    against = np.exp(fits + _reference(number)[:, :, None] - total)
    return Histories(chances, entropy(shows) - left, one_change, against)


@lru_cache(maxsize=64)
def _reference(number: int) -> Floats:
    """The logarithm of each history's share of its kind; FIX without a change is none."""
    share = np.zeros((2, number + 1))
    share[:, 1:number] = -math.log(max(1, number - 1))
    share[FIX, [0, number]] = -np.inf
    return share


def _by_kind(against: Floats) -> Floats:
    """[kind, rates]: what histories of one kind explain together."""
    inner = against[:, 1:-1].sum(axis=1)
    return np.concatenate([inner, against[REGRESSION, [0, -1]]])


def _sums(rows: Floats) -> Floats:
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])


@lru_cache(maxsize=64)
def _is_bad(number: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.bool_]]:
    """[way, k, i]: whether candidate i is bad in that history."""
    later = np.arange(number)[None, :] >= np.arange(number + 1)[:, None]
    return np.stack([later, ~later])


@lru_cache(maxsize=64)
def _log_prior(gaps: tuple[float, ...], said: tuple[Verdict | None, ...]) -> Floats:
    number = len(said)
    prior = np.zeros((2, number + 1))
    share = np.array(gaps) / sum(gaps) if gaps else np.zeros(0)
    prior[REGRESSION, 1:number] = _BEFORE[REGRESSION] * share
    prior[FIX, 1:number] = _BEFORE[FIX] * share
    prior[REGRESSION, [0, number]] = _NO_CHANGE
    bad = _is_bad(number)
    for i, verdict in enumerate(said):
        if verdict is not None:
            contradicted = bad[:, :, i] != (verdict == "bad")
            prior[contradicted] *= _SAID_WRONGLY
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(prior / prior.sum()))
