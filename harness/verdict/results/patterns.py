"""Regular expressions from a file: few constructs, a time limit, and each text only once (pure)."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Final

LIMIT_S: Final = 1.0
"""Processor time (seconds) that a pattern may take for one message."""

MAX_PATTERN_CHARS: Final = 200
MAX_LINES: Final = 50
MAX_LINE_CHARS: Final = 500
_MOST: Final = {"*+": 2, "?|": 6}


class UnsafePatternError(ValueError):
    """The pattern is no regular expression, or one that could take unreasonably long."""


class SlowPatternError(Exception):
    """The pattern takes too long, so that nobody knows whether it would be found."""


class SafePattern:
    """A pattern that is looked for once in each text, and never for longer than the limit."""

    def __init__(self, text: str, limit_s: float = LIMIT_S) -> None:
        import regex  # few runs have patterns

        self.text = text
        self._pattern = regex.compile(text)
        self._limit_s = limit_s
        self._known: dict[str, bool] = {}
        self._is_slow = False

    def found_in(self, message: str) -> bool:
        """Whether it is found in one of the message's first 50 lines (500 characters each).

        Raises SlowPatternError if that takes longer than the limit, and from then on for every
        message that was not looked at before.
        """
        lines = message[: MAX_LINES * MAX_LINE_CHARS * 4].splitlines()[:MAX_LINES]
        looked_at = "\n".join(line[:MAX_LINE_CHARS] for line in lines)
        if looked_at not in self._known:
            self._known[looked_at] = self._search(looked_at.split("\n"))
        return self._known[looked_at]

    def _search(self, lines: list[str]) -> bool:
        if self._is_slow:
            raise SlowPatternError(self.text)
        left_s = self._limit_s
        try:
            for line in lines:
                began = time.process_time()
                if self._pattern.search(line, timeout=left_s):
                    return True
                left_s = max(left_s - (time.process_time() - began), 0.001)
        except TimeoutError as error:
            self._is_slow = True
            raise SlowPatternError(self.text) from error
        return False


@cache
def safe_pattern(text: str) -> SafePattern:
    """A pattern of those that are allowed, which mean the same to `re` and to `regex`.

    Allowed are literals, classes, plain groups, up to two of `*` and `+`, up to six of `?` and `|`,
    and exact counts `{n}` up to 100 of one character or class. Repeated groups, other counts,
    look-around, back references and flags are refused: they are what mostly takes long. Raises
    UnsafePatternError.
    """
    if not text or len(text) > MAX_PATTERN_CHARS:
        raise UnsafePatternError(f"must be 1 to {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)  # `regex` would take more, such as \p{L} and sets of sets
    except (re.error, OverflowError, Warning) as error:  # \UFFFFFFFF is no character
        raise UnsafePatternError(f"is not a regular expression: {error}") from error
    counts = dict.fromkeys(_MOST, 0)
    before = ""
    for token in _tokens(text):
        # one behind a quantifier makes it lazy or possessive
        if token[0] in "*+?{" and not (token in "?+" and before[0] in "*+?{"):
            if before == ")":
                raise UnsafePatternError("a repeated group is not allowed")
            _count(token, counts)
        elif token == "|":
            _count(token, counts)
        elif token.startswith("(?") and token != "(?:":
            raise UnsafePatternError(f"{token} is not allowed; only plain groups and (?: are")
        elif re.fullmatch(r"\\[1-9]", token):
            raise UnsafePatternError("a back reference is not allowed")
        elif "[:" in re.sub(r"\\.", "..", token):
            raise UnsafePatternError("[: is not allowed in a class; put a backslash before [")
        before = token
    return SafePattern(text)


def _count(token: str, counts: dict[str, int]) -> None:
    kind = next((kind for kind in counts if token in kind), None)
    if kind is not None:
        counts[kind] += 1
        if counts[kind] > _MOST[kind]:
            both = " and ".join(kind)
            raise UnsafePatternError(f"more than {_MOST[kind]} of {both} are not allowed")
    elif not re.fullmatch(r"\{(?:100|[1-9]?\d)\}", token):
        raise UnsafePatternError(
            f"{token} is not allowed; an exact count up to 100 is, as in {{8}}"
        )


def _tokens(text: str) -> Iterator[str]:
    """The pattern in pieces: escapes, classes, group openings, counts and single characters."""
    scanner = re.compile(
        r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:P?<[=!]?|P=|[^)\w]|[a-zA-Z-]+)|\{\d*,?\d*\}|.",
        re.DOTALL,
    )
    return (found[0] for found in scanner.finditer(text))
