"""Which op goes wrong first: errors along a graph, and where to look when not all fits (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from harness.run.experiments.accuracy import compare
from harness.search.diverge.divergence import Because, CurvePoint

if TYPE_CHECKING:
    import numpy as np

STANDS_OUT: Final = 10.0
"""Where most ops make an error, one has to be so many times as large as what is usual."""


def difference(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], zero: int = 0) -> float:
    """How far a tensor is from another; `zero` is the value of quantised ones that means 0.

    It is the SQNR of `accuracy.compare` as a ratio. What is not finite in both alike is no
    difference. Infinite where there is no figure, see `incomparable`.
    """
    if got.shape != expected.shape:
        return inf
    accuracy = compare("", got, expected, step=1.0, offset=-zero)
    if accuracy.sqnr_db is None:
        return 0.0 if accuracy.equals else inf
    return 10 ** (-accuracy.sqnr_db / 20)


def incomparable(
    got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], zero: int = 0
) -> str | None:
    """Return why there is no figure for how far a tensor is from another; None if there is."""
    if difference(got, expected, zero) != inf:
        return None
    if got.shape != expected.shape:
        return f"its shape is {list(got.shape)}, and should be {list(expected.shape)}"
    accuracy = compare("", got, expected)
    if bad := accuracy.not_finite:
        return f"{bad} of {accuracy.elements} elements are NaN or infinite on one side"
    return "it should be all zeros, and is not"


def limit_of(errors: Sequence[float | None], threshold: float) -> float:
    """From what on an error counts: the threshold, or more where most ops are above it.

    That is noise only where hardly an op is exact: what follows an overflow makes errors, too. Of
    ten times the threshold none is. Without a threshold what is usual tells what is much.
    """
    known = sorted(one for one in errors if one is not None)
    if sum(one > threshold for one in known) * 2 <= len(known) or len(known) < 4:
        return threshold
    if not threshold:
        return STANDS_OUT * median(known)
    return max(threshold, min(STANDS_OUT * known[(len(known) - 1) // 4], STANDS_OUT * threshold))


def first_wrong(
    curve: Sequence[CurvePoint], threshold: float, changed_threshold: float
) -> tuple[int, Because] | None:
    """The place of the first op that goes wrong, and because of what; None if none does.

    An op of a changed model comes before what arithmetic does. Else it is one that makes an error
    of right inputs, or whose error in the graph is not explained by what it inherits: that is how
    ops go wrong that are calculated together.
    """
    changed = [one.changed for one in curve]
    for limit in (limit_of(changed, changed_threshold), changed_threshold):
        for at, error in enumerate(changed):
            if error is not None and error > limit:
                return at, "the model"
    limit = limit_of([one.made for one in curve], threshold)
    for at, one in enumerate(curve):
        if one.made is not None and one.made > limit:
            return at, "arithmetic"
        if one.error is not None and one.error > limit:
            inherited = one.inherited
            if inherited is not None and inherited < one.error / 2:
                return at, "the graph"
    return None


def chunks(sizes: Sequence[int], most_bytes: int, most: int) -> list[list[int]]:
    """Places in order, divided so that none has more bytes or members than may be.

    One that is too large by itself is in none.
    """
    found: list[list[int]] = []
    room = 0
    for at, size in enumerate(sizes):
        if size > most_bytes:
            continue
        if not found or size > room or len(found[-1]) >= most:
            found.append([])
            room = most_bytes
        found[-1].append(at)
        room -= size
    return found


def spread(good: int, bad: int, sizes: Sequence[int], most_bytes: int, most: int) -> list[int]:
    """Where to look next between a cut that is well and a later one that is not (both known).

    Evenly spread places, as many as fit. With one it is bisection: log2 n looks.
    """
    between = [at for at in range(good + 1, bad) if sizes[at] <= most_bytes]
    for number in range(min(most, len(between)), 0, -1):
        step = len(between) / (number + 1)
        chosen = sorted({between[int(step * (one + 1))] for one in range(number)})
        if sum(sizes[at] for at in chosen) <= most_bytes:
            return chosen
    return []
