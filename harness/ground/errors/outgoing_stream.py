"""A stream for people in which no CI system finds a command, whoever writes to it.

Programs print what none of our functions made: a traceback, a name of pytest's, a line that was
folded at the terminal's width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TextIO

from harness.ground.errors.outgoing_text import (
    Command,
    printable,
    without_commands,
    without_secrets,
)

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]{0,20}m)")
_COLOURS: Final = re.compile(rf"{_COLOUR.pattern}*+")
_LONGEST: Final = 64
"""So many characters of a line are enough to see a command that begins in them."""
_BLANK_LINE: Final = re.compile(
    r"(?:\s|\x1b\[[0-9;]{0,20}m)*+"
    r"(:|::(?:[A-Za-z-]|\x1b\[[0-9;]{0,20}m){0,40}(?:\x1b(?:\[[0-9;]{0,20})?)?"
    r"|(?:\x1b(?:\[[0-9;]{0,20})?)?)"
)


class OutgoingStream:
    """Stands in for a text stream; does no harm in front of another one of its kind.

    `trusted`: whether its writer may steer the terminal. Of any other writer only colours and lines
    written over themselves are let through, and secrets are taken out of each write.
    """

    def __init__(self, stream: TextIO, *, trusted: bool = True) -> None:
        self._stream = stream
        self._trusted = trusted
        self._line = ""

    def write(self, text: str) -> int:
        """Writes a text without commands, also without one that began in an earlier text."""
        if isinstance(text, Command):
            self._line = ""
            return self._stream.write(text)
        shown = text if self._trusted else _harmless(text)
        # only the last character of a command is changed, and that has not been written yet
        whole = without_commands(self._line + shown)
        line = min(whole.rpartition("\n")[2], whole.rpartition("\r")[2], key=len)
        self._stream.write(whole[len(self._line) :])
        if len(line) > _LONGEST:
            # as its end alone, a line would be blank that is not
            blank = _BLANK_LINE.fullmatch(line)
            line = blank[1] if blank else "." + line[-_LONGEST:]
        self._line = line
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _harmless(text: str) -> str:
    text = without_secrets(text)
    begin, again, rest = text.partition("\r")  # pytest writes a line again
    if not again or _COLOURS.fullmatch(begin) is None:
        begin, again, rest = "", "", text
    parts = _COLOUR.split(rest)
    shown = (part if at % 2 else printable(part) for at, part in enumerate(parts))
    return "".join([begin, again, *shown])
