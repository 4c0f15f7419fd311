"""Takes messages of errors and warnings out of libraries: of their strings, those that complain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.messages.patterns import complains, pattern_of

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
    for found in _PRINTED.finditer(data):
        text = found[0].decode("ascii").strip()
        if levelled and not _COMPLAINT.match(text):
            continue
        said = text[len(level[0]) :] if (level := _LEVELLED.match(text)) else text
        if said.count(" ") < 2 or _NO_SENTENCE.search(said):
            continue
        if not levelled and not complains(said):
            continue
        if sum(one.isalpha() or one == " " for one in said) >= 0.6 * len(said):
            yield pattern_of(said)
