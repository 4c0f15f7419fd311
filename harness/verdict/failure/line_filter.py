"""A quick look at a line of a log, before the rules are put to it: RE2 looks for their words.

RE2 takes from each pattern the words that must stand in what it matches, and looks for all of them
at once. It has no lookarounds, so these are left out; without them a pattern matches more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import re2
import regex

from harness.verdict.failure.log_words import API, CALLS, CLIENT, FORESEEN, OURS
from harness.verdict.failure.rules import RULES

_LOOKAROUND: Final = regex.compile(
    r"\(\?<?[=!](?<part>[^()\\\[]|\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|\((?&part)*\))*\)"
)
_ALSO_I: Final = tuple(letter.encode() for letter in "\u0130\u0131")
"""Letters that Python, unlike RE2, takes for an i where case does not matter."""
_NUMBERED: Final = (
    r"(?i)err(?:or)?[ _]?(?:code|no)?\W{0,3}(?:is |was |of )?\W{0,2}(?:0x[0-9a-f]|\d)"
)
"""A number that is named as an error: a code of QNN's may be one."""
_NUMBER: Final = re.compile(_NUMBERED.encode())


class LineFilter:
    """Finds the lines that may match any of some regular expressions; others may be found, too."""

    def __init__(self, patterns: Iterable[str]) -> None:
        options = re2.Options()
        options.case_sensitive = False
        self._filter = re2.Filter()
        for pattern in (_NUMBERED, *patterns):
            self._filter.Add(_LOOKAROUND.sub("", pattern), options)
        self._filter.Compile()

    def passes(self, line: bytes) -> bool:
        """Tell whether a line of UTF-8 may match, or names a number as an error."""
        found = self._filter.Match(line, potential=True)
        if found is None:
            return not line.isascii() and any(letter in line for letter in _ALSO_I)
        return found != [0] or _NUMBER.search(line) is not None


def patterns_of_rules() -> list[str]:
    """Return what any sign can take or must not find, and what tells of QNN at all."""
    signs = [sign for rule in RULES for sign in rule.all_signs]
    texts = [text for sign in signs for text in (sign.text, sign.evidence, sign.absent)]
    words = [pattern.pattern for pattern in (API, CLIENT, FORESEEN, OURS)]
    return list(dict.fromkeys(filter(None, [*texts, *words, *(call.pattern for call, _ in CALLS)])))


@cache
def rule_filter() -> LineFilter:
    """Return the filter of all rules."""
    return LineFilter(patterns_of_rules())
