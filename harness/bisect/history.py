"""How likely each history of one axis is, given answers that may be wrong (pure).

A history has at most one change: all good, all bad, good and then bad (a regression), or bad and
then good (a fix). Candidates stand in their order, and only those that can be tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.bisect.answers import Tally, Verdict
from harness.bisect.noise import (
    ALARMS,
    HIDES,
    WEIGHTS,
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
    """

    chances: Floats
    shows: Floats
    gains: Floats
    one_change: bool

    def best(self) -> tuple[int, int, float]:
        """The likeliest history and its chance."""
        way, k = np.unravel_index(int(np.argmax(self.chances)), self.chances.shape)
        return int(way), int(k), float(self.chances[way, k])

    def most(self, confidence: float) -> list[tuple[int, int]]:
        """The fewest histories, likeliest first, that hold the truth with this confidence."""
        order = np.argsort(-self.chances, axis=None, kind="stable")
        taken, total = [], 0.0
        for flat in order:
            way, k = np.unravel_index(int(flat), self.chances.shape)
            taken.append((int(way), int(k)))
            total += float(self.chances[way, k])
            if total >= confidence:
                break
        return taken


def histories(
    tallies: Sequence[Tally], gaps: Sequence[float], said: Sequence[Verdict | None]
) -> Histories:
    """Weighs all histories of some candidates.

    `gaps` says how likely the change is between each two neighbours (any scale), `said` what the
    user claimed of each.
    """
    number = len(tallies)
    prior = _prior(number, np.array(gaps, dtype=np.float64), said)
    if_good, if_bad = log_likelihoods(tallies)
    first_good, first_bad = _sums(if_good), _sums(if_bad)
    fits = np.stack(
        [
            first_good + first_bad[-1] - first_bad,
            first_bad + first_good[-1] - first_good,
        ]
    )
    with np.errstate(divide="ignore"):
        logs = fits + np.log(prior)[:, :, None] + np.log(WEIGHTS)
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
    one_change = log_evidence_unconnected(tallies) - total < _NO_ACCIDENT
    return Histories(chances, shows, entropy(shows) - left, one_change)


def _sums(rows: Floats) -> Floats:
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])


def _is_bad(number: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.bool_]]:
    """[way, k, i]: whether candidate i is bad in that history."""
    later = np.arange(number)[None, :] >= np.arange(number + 1)[:, None]
    return np.stack([later, ~later])


def _prior(number: int, gaps: Floats, said: Sequence[Verdict | None]) -> Floats:
    prior = np.zeros((2, number + 1))
    share = gaps / gaps.sum() if number > 1 else gaps
    prior[REGRESSION, 1:number] = _BEFORE[REGRESSION] * share
    prior[FIX, 1:number] = _BEFORE[FIX] * share
    prior[REGRESSION, [0, number]] = _NO_CHANGE
    bad = _is_bad(number)
    for i, verdict in enumerate(said):
        if verdict is not None:
            contradicted = bad[:, :, i] != (verdict == "bad")
            prior[contradicted] *= _SAID_WRONGLY
    return np.asarray(prior / prior.sum())
