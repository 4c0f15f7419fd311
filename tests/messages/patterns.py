"""What a message looks like, whoever formats it: its words, with places for what varies (pure)."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARS: Final = 72
"""So much of a message is kept: it tells one from the others, and is no sentence of theirs."""

_COMPLAINS: Final = re.compile(
    r"(?i)\b(?:fail(?:s|ed|ure|ing)?|err|errors?|can ?not|can't|couldn't|could not|unable|denied"
    r"|refused|rejected|invalid|illegal|incorrect|corrupt(?:ed)?|malformed|mismatch(?:e[sd])?|missing"
    r"|no such|not (?:found|supported|available|set|initialized|valid|allowed|loaded|registered"
    r"|enough|match|exist|open|accessible|been|a valid|yet|implemented|support)|unsupported|doesn't"
    r"|un(?:known|expected|available|initialized|recognized)|insufficient|exceed(?:s|ed)?|exhausted"
    r"|overflow(?:ed)?|out of|too (?:large|big|small|many|few|long|old)|crash(?:ed)?|fatal"
    r"|abort(?:ed)?|timed out|timeout|lost|expired|warning|died|required|conflicts?|stale"
    r"|fall(?:ing)? ?back|restart(?:ed)?|busy|no longer|undefined|null)\b"
)
_PRINTF: Final = re.compile(
    r"%(?:\d+\$)?[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L|I64)?"
    r"([diouxXeEfFgGcspPn])"
)
_BRACED: Final = re.compile(r"\{\d*(?::[^{}]{0,12})?\}|(?<!\w)\$\d\b")
_KINDS: Final = {**dict.fromkeys("diou", "%d"), **dict.fromkeys("xXpP", "%x")}
_FLOATS: Final = dict.fromkeys("eEfFgG", "%d")
_VALUES: Final = {"%d": "7", "%x": "2f0", "%s": "some"}


def complains(text: str) -> bool:
    """Whether a text has a word of those that errors and warnings are made of."""
    return _COMPLAINS.search(text) is not None


def pattern_of(text: str) -> str:
    """A message's pattern: %d, %x and %s where something is put in, its first words otherwise."""
    plain = _BRACED.sub("%s", text)
    plain = _PRINTF.sub(lambda found: (_KINDS | _FLOATS).get(found[1], "%s"), plain)
    return " ".join(plain.replace("%%", "%").split())[:MAX_CHARS].rstrip()


def sample_of(pattern: str) -> str:
    """A line that a pattern could have made."""
    return re.sub(r"%[dxs]", lambda found: _VALUES[found[0]], pattern)
