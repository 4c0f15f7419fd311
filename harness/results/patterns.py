"""Regular expressions from a file, restricted so that none of them can run for ever (pure)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Final

MAX_PATTERN_CHARS: Final = 200
MAX_LINES: Final = 50
MAX_LINE_CHARS: Final = 500
_MAX_UNBOUNDED = 2
_MAX_CHOICES = 6


class UnsafePatternError(ValueError):
    """The pattern is no regular expression, or one that could take unreasonably long."""


def safe_pattern(text: str) -> re.Pattern[str]:
    """Compiles a pattern whose time on a line of 500 characters is bounded.

    Allowed are literals, classes, plain groups, up to two of `*` and `+`, up to six of `?` and `|`,
    and exact counts `{n}` up to 100 of one character or class. Repeated groups, other counts,
    look-around, back references and flags are refused, since backtracking over them can take
    exponential time. Raises UnsafePatternError.
    """
    if not text or len(text) > MAX_PATTERN_CHARS:
        raise UnsafePatternError(f"must be 1 to {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(text)
    except (re.error, Warning) as error:
        raise UnsafePatternError(f"is not a regular expression: {error}") from error
    counts = {"unbounded": 0, "choices": 0}
    before = ""
    for token in _tokens(text):
        if token[0] in "*+?{" and not _modifies(token, before):
            if before == ")":
                raise UnsafePatternError("a repeated group is not allowed")
            _count(token, counts)
        elif token == "|":
            _count(token, counts)
        elif token.startswith("(?") and token != "(?:":
            raise UnsafePatternError(f"{token} is not allowed; only plain groups and (?: are")
        elif re.fullmatch(r"\\[1-9]", token):
            raise UnsafePatternError("a back reference is not allowed")
        before = token
    return pattern


def found_in(pattern: re.Pattern[str], message: str) -> bool:
    """Whether the pattern is found in one of the message's first 50 lines (500 characters each)."""
    lines = message[: MAX_LINES * MAX_LINE_CHARS * 4].splitlines()[:MAX_LINES] or [""]
    return any(pattern.search(line[:MAX_LINE_CHARS]) for line in lines)


def _modifies(token: str, before: str) -> bool:
    """Whether it makes the quantifier before it lazy or possessive."""
    return token in "?+" and before != "" and before[0] in "*+?{"


def _count(token: str, counts: dict[str, int]) -> None:
    if token in "*+":
        counts["unbounded"] += 1
        if counts["unbounded"] > _MAX_UNBOUNDED:
            raise UnsafePatternError(f"more than {_MAX_UNBOUNDED} of * and + are not allowed")
    elif token in "?|":
        counts["choices"] += 1
        if counts["choices"] > _MAX_CHOICES:
            raise UnsafePatternError(f"more than {_MAX_CHOICES} of ? and | are not allowed")
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
