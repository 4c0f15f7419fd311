"""How likely each history of one axis is, given answers that may be wrong (pure).

A history has at most one change: all good, all bad, good and then bad (a regression), or bad and
then good (a fix). Candidates stand in their order, and only those that can be tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from harness.bisect.answers import Tally, Verdict
from harness.bisect.noise import (
    ALARMS,
    HIDES,
    LOG_WEIGHTS,
    Floats,
    entropy,
    log_evidence_unconnected,
    log_likelihoods,
    log_sum,
)

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
    the change as likely at one place as at another, so what follows from it holds for each kind,
    whatever was claimed or expected.
    """

    chances: Floats
    shows: Floats
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
    one_change = log_evidence_unconnected(if_good, if_bad) - total < _NO_ACCIDENT
    against = np.exp(fits + _reference(number)[:, :, None] - total)
    return Histories(chances, shows, entropy(shows) - left, one_change, against)


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
