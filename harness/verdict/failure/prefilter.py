"""Which lines of a log a rule can take at all: found in one pass, by words made of the rules.

Of each regular expression the words are taken of which every text that it matches has one. Of each
word a few bytes are looked for, in all of a log's bytes at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

# no public module tells what a regular expression is made of; without this one no word is found,
# and a test says so
from re import _constants as _op, _parser  # type: ignore[attr-defined]
from typing import Any, Final

import numpy as np

_MOST_WORDS: Final = 64
_WIDEST: Final = 4
_NONE: Final[frozenset[str]] = frozenset()
_REPEATS: Final = (_op.MAX_REPEAT, _op.MIN_REPEAT, _op.POSSESSIVE_REPEAT)
# The commoner a letter is in logs, the farther in front it stands.
_RARITY: Final = {letter: rank for rank, letter in enumerate(" etaoinsrldcumphfg.0:yb1vw_k-2/x")}
_PIECES: Final = (8, 4, 3)
_BITS: Final = 18
_SPREAD: Final = 0x9E3779B1
_AT_ONCE: Final = 1 << 17


def words_of(pattern: str) -> frozenset[str]:
    """Words in lower case, one of which is in every text that a regular expression matches.

    Empty where there are no such words.
    """
    return _required(_parser.parse(pattern))


def _required(parts: Iterable[tuple[Any, Any]]) -> frozenset[str]:
    """The best words of a sequence: the longest, and of such the fewest."""
    found: list[frozenset[str]] = []
    whole = frozenset({""})
    for part in parts:
        exact = _exact(*part)
        if (longer := _joined(whole, exact)) is not None:
            whole = longer
            continue
        found += [whole, _inside(*part)]
        whole = exact or frozenset({""})
    return max((*found, whole), key=_worth)


def _worth(words: frozenset[str]) -> tuple[int, int]:
    """How rare the commonest of the words is, and how few they are."""
    return min((_rarity(_piece(word)) for word in words), default=0), -len(words)


def _rarity(text: str) -> int:
    return sum(_RARITY.get(letter, len(_RARITY)) for letter in text)


def _piece(word: str) -> str:
    """The rarest part of a word that is looked for; nothing of one that is too short."""
    length = next((one for one in _PIECES if one <= len(word)), 0)
    parts = (word[at : at + length] for at in range(len(word) - length + 1))
    return max(parts, key=_rarity) if length else ""


def _exact(kind: Any, value: Any) -> frozenset[str] | None:
    """All texts that a part matches, in lower case; None if they are many."""
    if kind is _op.LITERAL:
        return frozenset({chr(value).lower()})
    if kind in (_op.AT, _op.ASSERT, _op.ASSERT_NOT):
        return frozenset({""})
    if kind is _op.IN and len(value) <= _WIDEST and all(one[0] is _op.LITERAL for one in value):
        return frozenset(chr(one[1]).lower() for one in value)
    if kind is _op.SUBPATTERN:
        return _all_exact(value[-1])
    if kind is _op.BRANCH:
        texts = [_all_exact(branch) for branch in value[1]]
        if any(one is None for one in texts):
            return None
        return frozenset(text for one in texts if one for text in one)
    if kind in _REPEATS and value[:2] == (0, 1):
        once = _all_exact(value[2])
        return None if once is None else once | {""}
    return None


def _all_exact(parts: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    whole = frozenset({""})
    for part in parts:
        if (longer := _joined(whole, _exact(*part))) is None:
            return None
        whole = longer
    return whole


def _joined(whole: frozenset[str], exact: frozenset[str] | None) -> frozenset[str] | None:
    """Each text with each that may follow it; None if they are many."""
    if exact is None or len(whole) * len(exact) > _MOST_WORDS:
        return None
    return frozenset(map("".join, product(whole, exact)))


def _inside(kind: Any, value: Any) -> frozenset[str]:
    """The words of what is nested in a part, as far as it must be there."""
    if kind is _op.SUBPATTERN:
        return _required(value[-1])
    if kind is _op.BRANCH:
        branches = [_required(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else _NONE
    return _required(value[2]) if kind in _REPEATS and value[0] else _NONE


class Prefilter:
    """Finds the lines that may match any of some regular expressions, case aside.

    Each line that matches one is found; others may be, too. Raises ValueError for an expression
    without a word of three letters that is in all it matches.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        pieces: set[bytes] = set()
        for pattern in dict.fromkeys(filter(None, patterns)):
            found = {_piece(word) for word in words_of(pattern)}
            if not found or "" in found:
                raise ValueError(f"no word is in all that this matches: {pattern!r}")
            pieces |= {piece.encode() for piece in found}
        self._begins = np.zeros(1 << _BITS, np.bool_)
        self._begins[
            [_number(piece[:3]) * _SPREAD % (1 << 32) >> 32 - _BITS for piece in pieces]
        ] = True
        self._pieces = {
            length: np.array(
                sorted(_number(one) for one in pieces if len(one) == length), np.uint64
            )
            for length in _PIECES
        }

    def found(self, lowered: bytes) -> list[int]:
        """Where in a text in lower case such words stand: positions in it, in no order."""
        found: list[int] = []
        for begin in range(0, len(lowered), _AT_ONCE):
            part = lowered[begin : begin + _AT_ONCE + max(_PIECES)]
            data = np.frombuffer(part + bytes(max(_PIECES)), np.uint8)
            wide = data.astype(np.uint32)
            three = wide[:-2] + (wide[1:-1] << np.uint32(8)) + (wide[2:] << np.uint32(16))
            places = np.flatnonzero(
                self._begins[three * np.uint32(_SPREAD) >> np.uint32(32 - _BITS)]
            )
            places = places[places < min(len(part), _AT_ONCE)]
            value, read = np.zeros(len(places), np.uint64), 0
            for length in sorted(_PIECES):
                for at in range(read, length):
                    value += data[places + at].astype(np.uint64) << np.uint64(8 * at)
                read = length
                known = self._pieces[length]
                if len(known):
                    nearest = np.minimum(np.searchsorted(known, value), len(known) - 1)
                    found += (begin + places[known[nearest] == value]).tolist()
        return found


def _number(piece: bytes) -> int:
    return int.from_bytes(piece, "little")
