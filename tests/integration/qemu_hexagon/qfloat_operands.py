"""Operands for vector floating point, of which many meet a special case."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WIDTHS = {"qf32": 32, "sf": 32, "w": 32, "qf16": 16, "hf": 16, "h": 16}
_EXPONENTS = {"qf32": (0, 8), "sf": (23, 8), "qf16": (0, 5), "hf": (10, 5)}


def operands(
    rng: np.random.Generator, count: int, kinds: Sequence[str]
) -> tuple[list[int], list[int]]:
    """As many pairs, for operands of these kinds (one, or two): any bits, near each other, ends."""
    first = _words(rng, count, kinds[0])
    second = _words(rng, count, kinds[-1])
    if len(kinds) == 2 and WIDTHS[kinds[0]] == WIDTHS[kinds[1]]:
        near = rng.random(count) < 0.4
        where, bits = _EXPONENTS[kinds[1]]
        mask = (1 << bits) - 1
        field = _field(first, kinds[0]) + rng.integers(-26, 27, count)
        moved = second & ~(mask << where) | (np.clip(field, 0, mask) << where)
        second = np.where(near, moved, second)
        if kinds[0] == kinds[1]:
            same = rng.random(count) < 0.1
            second = np.where(same, first ^ (1 << rng.integers(0, WIDTHS[kinds[0]], count)), second)
    return first.tolist(), second.tolist()


def _field(words: np.ndarray, kind: str) -> np.ndarray:
    where, bits = _EXPONENTS[kind]
    return words >> where & ((1 << bits) - 1)


def _words(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    """Words of a kind: any; with few bits set or none; with an exponent at an end or in between."""
    width = WIDTHS[kind]
    words = rng.integers(0, 1 << width, count)
    sparse = words & rng.integers(0, 1 << width, count) & rng.integers(0, 1 << width, count)
    if kind not in _EXPONENTS:
        # integers of every length
        return words >> rng.integers(0, width, count)
    where, bits = _EXPONENTS[kind]
    mask, middle = (1 << bits) - 1, 1 << (bits - 1)
    exponents = np.stack(
        [
            rng.integers(0, mask + 1, count),
            rng.integers(0, 3, count),
            mask - rng.integers(0, 3, count),
            np.clip(middle + rng.integers(-24, 25, count), 0, mask),
            middle - rng.integers(0, 4, count),
        ]
    )
    chosen = exponents[rng.integers(0, len(exponents), count), np.arange(count)]
    bare = np.where(rng.random(count) < 0.3, sparse, words) & ~(mask << where)
    made = bare | chosen << where
    zeros = np.where(rng.random(count) < 0.5, 0, 1 << (width - 1))
    return np.where(rng.random(count) < 0.03, zeros, made)
