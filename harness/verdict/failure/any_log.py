"""Reads any log, whoever wrote it, for the lines that may matter: bounded in time and memory.

What stands before a text (a number, a time, a process, a level) is left out of it. Of texts that
differ in their numbers only, the first few are kept.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import accumulate, pairwise
from typing import BinaryIO, Final, cast

from harness.verdict.failure.chain import ECHO, benign_part
from harness.verdict.failure.error import clean_text
from harness.verdict.failure.line_filter import rule_filter
from harness.verdict.failure.log_origin import NOBODY, Origin, origin_of

MAX_CHARS: Final = 256 << 20
"""So much of a log is read; a log of logcat's has far less."""
MAX_LINES: Final = 8_000
"""So many texts are kept: the first ones and the last ones, in equal parts."""
_MAX_ALIKE: Final = 20
_MAX_TEXTS: Final = 200_000
_MAX_LOOKED: Final = 1_000_000
"""Of a log with more different texts than this, only the last lines are looked at from then on."""
_MAX_UNLOOKED_CHARS: Final = 2_000
_CHUNK_CHARS: Final = 1 << 20
_MAX_LINE_CHARS: Final = 16_384
_MAX_TEXT_CHARS: Final = 1_000
_OVERLAP: Final = 200
"""What is too long for one text, or one reading, is looked at in pieces that overlap so much."""
_WIDTHS: Final = (80, 100, 120, 132, 160)
_MAX_WRAPPED: Final = 8
"""A log whose longest lines have a terminal's width may be cut there, each line into so many."""

# It begins with a letter, not with \b, so that it is found fast.
_ERROR: Final = re.compile(rb"ERROR(?<![A-Z_]ERROR)(?![A-Z_])")
_ECHO: Final = re.compile(ECHO)
_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_BEFORE: Final = re.compile(
    r"""(?:[ \t]*+(?:
        >++ | \#\d{1,7}\b | L?\d{1,7}[:|)] | \d{1,7}[ \t]++(?=\d\d-\d\d[ ]|\[)
      | (?:\d{4}-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16} | \d\d:\d\d:\d\d\S{0,12}
      | \[[ ]*[\d:. /-]{1,30}\] | [\d.]{1,12}ms | \d{1,7}[ ]++\d{1,7}[ ](?=[VDIWEFAS][ ])
      | [VDIWEFAS](?=[ ]\S{1,60}[ ]?:[ ])
      | \[[ ]?(?:ERROR|WARN(?:ING)?|INFO|VERBOSE|DEBUG|trace)[ ]?\]
      | <[EWIVD]>
    ))*+[ \t]*+""",
    re.VERBOSE,
)
_PASTED: Final = re.compile(r"\s//?\s")
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_NUMBERS: Final = re.compile(r"\d(?:(?<=0)[xX][0-9a-fA-F]+|\d*)")


@dataclass(frozen=True)
class LogText:
    """A line of a log, counted from 1, without what stands before its text, and who wrote it.

    `file` is the name of a log beside the one that is explained.
    """

    number: int
    text: str
    origin: Origin = NOBODY
    file: str | None = None


@dataclass(frozen=True)
class ScannedLog:
    """The lines of a log that may matter, and how many it has; `whole`: all of it was read.

    `error` is the number of the first line that says ERROR.
    """

    lines: tuple[LogText, ...]
    line_count: int
    whole: bool
    error: int | None


def read_log(stream: BinaryIO) -> ScannedLog:
    """Reads a log to its end or to MAX_CHARS; nothing in it makes this raise."""
    buffered = BufferedReader(cast("RawIOBase", stream))
    text_of = TextIOWrapper(buffered, _encoding_of(buffered.peek(2)[:2]), "replace")
    kept, left, number, rest = _Kept(), MAX_CHARS, 1, ""
    while left > 0 and (read := text_of.read(min(left, _CHUNK_CHARS))):
        left -= len(read)
        rest += read
        if len(read) < _CHUNK_CHARS:
            break
        whole, end, rest = rest.rpartition("\n")
        if end:
            number += kept.take(whole, number)
        if len(rest) > _MAX_LINE_CHARS:
            # what is too long for one reading is still one line
            kept.take(rest, number)
            rest = rest[-_OVERLAP:]
    kept.take(rest, number)
    number += rest.count("\n") - (not rest or rest.endswith("\n"))
    whole_log = not text_of.read(1)
    text_of.detach()
    buffered.detach()
    return ScannedLog(kept.lines(), number, whole_log, kept.error)


class _Kept:
    """The lines of a log that are kept. The time this takes grows with the log's length."""

    def __init__(self) -> None:
        self.error: int | None = None
        self._first: list[LogText] = []
        self._last: deque[LogText] = deque(maxlen=MAX_LINES // 2)
        self._seen: set[int] = set()
        self._alike: Counter[int] = Counter()
        self._full: set[int] = set()
        self._looked = 0
        self._widest = 0
        self._unlooked: deque[tuple[int, str, int]] = deque(maxlen=MAX_LINES // 2)

    def take(self, text: str, number: int) -> int:
        """Takes whole lines, the first of which has this number; how many they are."""
        if not text.strip("\n"):
            return len(text) + 1
        plain = _ANSI.sub("", text) if "\x1b" in text else text
        data = plain.encode("utf-8", "replace")
        if self.error is None and (error := _ERROR.search(data)) is not None:
            self.error = number + data.count(b"\n", 0, error.start())
        lines, passes = data.split(b"\n"), rule_filter().passes
        wrapped, harmless = self._wrapped(lines)
        for index, line in enumerate(lines):
            whole = wrapped.get(index)
            if (whole is None and not passes(line)) or index in harmless:
                continue
            # a line like many before it but for its digits, and so but for its time, is not kept
            if (rough := hash(line.translate(_DIGITS))) not in self._full:
                self._take(number + index, line.decode("utf-8", "replace"), rough)
            if whole is not None:
                self._take(number + index, whole.decode("utf-8", "replace"), 0)
        return len(lines)

    def lines(self) -> tuple[LogText, ...]:
        while self._unlooked:
            self._look(*self._unlooked.popleft())
        return (*self._first, *self._last)

    def _wrapped(self, lines: list[bytes]) -> tuple[dict[int, bytes], set[int]]:
        """Return lines that a terminal may have cut, whole again, by the number of the last piece.

        With them, the pieces of what is benign when it is whole.
        """
        self._widest = max(self._widest, *map(len, lines))
        if self._widest > _WIDTHS[0] and self._widest not in _WIDTHS:
            return {}, set()
        cut = [len(line) == self._widest in _WIDTHS for line in lines]
        between = b""
        if self._widest <= _WIDTHS[0]:
            # what breaks lines between words does so where the next one has no room
            full = [
                len(line) + 1 + len(after.partition(b" ")[0]) > _WIDTHS[0]
                for line, after in pairwise(lines)
            ]
            if sum(full) > 2 * sum(cut):
                cut, between = [*full, False], b" "
        found: dict[int, bytes] = {}
        harmless: set[int] = set()
        for first in (at for at, is_cut in enumerate(cut) if is_cut and not (at and cut[at - 1])):
            most = min(first + _MAX_WRAPPED, len(cut))
            last = next((at for at in range(first, most) if not cut[at]), most - 1)
            pieces = lines[first : last + 1]
            whole = between.join(pieces)
            if rule_filter().passes(whole):
                found[last if between else first] = whole
                if (part := benign_part(whole.decode("latin-1"))) is not None:
                    ends = list(accumulate(len(piece) + len(between) for piece in pieces))
                    begin, end = bisect_right(ends, part[0]), bisect_right(ends, part[1] - 1)
                    harmless |= {*range(first + begin, first + end + 1)}
        return found, harmless

    def _take(self, number: int, line: str, rough: int) -> None:
        if _ECHO.search(line):
            return
        if self._looked >= _MAX_LOOKED:
            self._unlooked.append((number, line[:_MAX_UNLOOKED_CHARS], rough))
            return
        for begin in range(0, len(line), _MAX_LINE_CHARS - _OVERLAP):
            self._look(number, line[begin : begin + _MAX_LINE_CHARS], rough)

    def _look(self, number: int, line: str, rough: int) -> None:
        full, origin = True, origin_of(line)
        for text in texts_of(line):
            self._looked += 1
            same, shape = hash((text, origin.process)), hash(_NUMBERS.sub("#", text))
            many = self._alike.get(shape, 0) >= _MAX_ALIKE
            full &= many
            if many or same in self._seen:
                continue
            if len(self._seen) >= _MAX_TEXTS:
                self._seen.clear()
                self._alike.clear()
                self._full.clear()
            self._seen.add(same)
            self._alike[shape] = self._alike.get(shape, 0) + 1
            room = len(self._first) < MAX_LINES // 2
            (self._first if room else self._last).append(LogText(number, text, origin))
        if full and len(self._full) < _MAX_TEXTS:
            self._full.add(rough)


def texts_of(line: str) -> Iterator[str]:
    """What a line says; of several lines pasted into one, with slashes between, what each says."""
    plain = _ANSI.sub("", line) if "\x1b" in line else line
    for part in _PASTED.split(plain)[:200] if "/" in plain else (plain,):
        text = _BEFORE.sub("", part, count=1).strip()
        for begin in range(0, len(text), _MAX_TEXT_CHARS - _OVERLAP):
            piece = text[begin : begin + _MAX_TEXT_CHARS]
            if not begin or rule_filter().passes(piece.encode("utf-8", "replace")):
                yield str(clean_text(piece))


def _encoding_of(start: bytes) -> str:
    """UTF-8, if the first two bytes do not say UTF-16: by a mark, or by a letter's empty half."""
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in start and any(start):
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    return "utf-8-sig"
