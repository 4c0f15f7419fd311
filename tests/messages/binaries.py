"""Takes messages of errors and warnings out of libraries: of their strings, those that complain."""

import re
from collections.abc import Iterator
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
_PLACE: Final = re.compile(
    r"%(?:\d+\$)?[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L|I64)?"
    r"([diouxXeEfFgGcspPn])"
)
_BRACED: Final = re.compile(r"\{\d*(?::[^{}]{0,12})?\}|(?<!\w)\$\d\b")
_KINDS: Final = {**dict.fromkeys("diou", "%d"), **dict.fromkeys("xXpP", "%x")}
_FLOATS: Final = dict.fromkeys("eEfFgG", "%d")
_PRINTED: Final = re.compile(rb"[\t\n\x20-\x7e]{10,600}(?=\x00)")
# Names of C++, paths and tables are no messages; a piece of a sentence begins with a mark.
_NO_SENTENCE: Final = re.compile(
    r"^_Z|::\w+<|^[A-Za-z0-9_.$/<>:-]+$|[{}=;|^~]{3}|\bSECTION\b|^[\])},;.=|&!?]|^\w{1,12}\.(?:cc|h)\b"
    r"|^\(\w+ \w|^(?:const|static|struct|class|void|bool|int|auto) "
)
# The HTP's libraries write a level before each message; those of no level are not logged by them.
_LEVELLED: Final = re.compile(
    r"(?:<[A-Z]> *)?(?:%s:\d+:{1,2} *)?(?:(?:ERROR|WARNING|Error|Warning|ERR)\b[:!]? *)?"
)
_COMPLAINT: Final = re.compile(r"<[EW]>|%s:\d+:{1,2} ?(?:ERROR|WARNING)|(?:ERROR|WARNING)\b")
_LIBRARIES: Final = (
    (re.compile(r"libQnn\w*Skel\.so"), "skel", True),
    (re.compile(r"libQnn\w*Stub\.so"), "stub", True),
    (re.compile(r"libQnnHtp(?:Prepare|NetRunExtensions)?\.so"), "htp", True),
    (re.compile(r"libQnnGpu\w*\.so"), "gpu", False),
    (re.compile(r"libQnnSystem\.so"), "system", False),
    (re.compile(r"libonnxruntime_providers_qnn\.so"), "ort-qnn", False),
)


def origin_of(name: str) -> tuple[str, bool] | None:
    """Return the origin of a library of this name, and whether its messages have levels."""
    return next(
        ((origin, levelled) for known, origin, levelled in _LIBRARIES if known.fullmatch(name)),
        None,
    )


def messages_in(data: bytes, levelled: bool) -> Iterator[str]:
    """The patterns of the messages in a library that complain of something."""
    for match in _PRINTED.finditer(data):
        text = match[0].decode("ascii").strip()
        if levelled and not _COMPLAINT.match(text):
            continue
        message = text[len(level[0]) :] if (level := _LEVELLED.match(text)) else text
        if message.count(" ") < 2 or _NO_SENTENCE.search(message):
            continue
        if not levelled and not complains(message):
            continue
        if sum(letter.isalpha() or letter == " " for letter in message) >= 0.6 * len(message):
            yield pattern_of(message)


def complains(text: str) -> bool:
    """Return whether a text has a word of those that errors and warnings are made of."""
    return _COMPLAINS.search(text) is not None


def pattern_of(text: str) -> str:
    """A message's pattern: %d, %x and %s where something is put in, its first words otherwise."""
    plain = _BRACED.sub("%s", text)
    plain = _PLACE.sub(lambda match: (_KINDS | _FLOATS).get(match[1], "%s"), plain)
    return " ".join(plain.replace("%%", "%").split())[:MAX_CHARS].rstrip()
