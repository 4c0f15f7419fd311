"""Reads any log, whoever wrote it, for the lines that may matter: bounded in time and memory.

What stands before a text (a number, a time, a process, a level) is left out of it. Of texts that
differ in their numbers only, the first few are kept.

RE2 takes from each pattern the words that must stand in what it matches, and looks for all of them
at once. It has no lookarounds, so these are left out; without them a pattern matches more.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import accumulate, pairwise
from typing import BinaryIO, Final, cast

import re2
import regex

from harness.diagnosis.chain import ECHO, benign_part
from harness.diagnosis.error import clean_text
from harness.diagnosis.rules import RULES

# Words of programs that use the NPU, in a line of theirs: such processes fail each on its own.
CLIENT: Final = re.compile(
    r"Qnn(?:Dsp|Htp|Gpu|Cpu|System|[A-Z][a-z]+_)|Qnn ExecuTorch|QNNExecution|QnnBackendManager"
    r"|ggml-hex|needed by .*lib[acs]dsprpc|(?i:litert|lite_rt|genie)"
)

# How frameworks speak of the calls that a rule may ask for.
CALLS: Final = tuple(
    (re.compile(pattern), api)
    for pattern, api in (
        (
            r"(?i)context from (?:context )?binary|(?:create from|validate) binary|EpContext model",
            "QnnContext_createFromBinary",
        ),
        (r"(?i)failed to create (?:qnn )?context\b", "QnnContext_createFromBinary"),
        (r"(?i)create (?:qnn )?device\b|device_?handle|device creation", "QnnDevice_create"),
        (r"(?i)backend_?handle|initialize backend", "QnnBackend_create"),
        (r"(?i)graph_? ?execut\w+|running QNN_", "QnnGraph_execute"),
    )
)
# A number without any of these may be anybody's: 1008 and 14001 are errors of other programs, too.
OURS: Final = re.compile(
    r"(?i)qnn|htp|hexagon|[acs]dsp|rpc|skel\b|stub\b|snapdragon|genie|qualcomm|adreno|0x8000|npu\b"
)
# What a run of this harness had found beforehand, as its summary says it.
FORESEEN: Final = re.compile(r"\bpreflight (?:error|warning) ([a-z][a-z0-9-]{2,40}): (.{1,300})")
CAME_TRUE: Final = "it came true, as the failure says"
API: Final = re.compile(r"\bQnn[A-Z][A-Za-z]{2,24}_[a-z][A-Za-z]{2,40}\b")
# What every program with TensorFlow Lite says, whether or not it wants the NPU.
ANYBODYS: Final = re.compile(r"TfLiteXNNPackDelegate")


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


_MONTH: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# A day of a month; months are taken to be of 31 days: it is differences of seconds that count.
_CLOCK: Final = re.compile(
    r"(?:(?:\d{4}-)?(?P<month>\d\d)-(?P<day>\d\d)[ T]|(?P<name>[A-Z][a-z]{2}) (?P<date>[ \d]\d) )?"
    r"(?P<hour>[012]\d):(?P<minute>[0-5]\d):(?P<second>[0-5]\d(?:[.,]\d{1,9})?)"
)
_PROCESS: Final = re.compile(
    r"""
      :\d\d[.,]\d{1,9}\S*\s+(?:\w+\s+)?(?P<logcat>\d{1,7})\s+\d{1,7}\s+[VDIWEFAS]\s
    | :\d\d[.,]\d{1,9}\s+(?P<studio>\d{1,7})[-/]\S
    | ^[VDIWEFAS]/[^(\n]{1,60}\([ ]*(?P<brief>\d{1,7})\):
    | :\d\d\S*[ ]\S{1,64}[ ][^\s\[]{1,60}\[(?P<journal>\d{1,7})\]:
    """,
    re.VERBOSE,
)
_KERNELS: Final = re.compile(r"^\s*(?:<\d{1,3}>)?\[ *\d{1,7}\.\d{6}\]|\bkernel: ")
_BEFORE_CHARS: Final = 200
KERNEL: Final = 0
"""The process that the kernel is."""


@dataclass(frozen=True)
class Origin:
    """The process that wrote a line, and when, in seconds of the wall clock; None: not told."""

    process: int | None = None
    at: float | None = None


NOBODY: Final = Origin()


def origin_of(line: str) -> Origin:
    """What stands before the text of a line tells: of logcat, Studio, journald, or dmesg."""
    start = line[:_BEFORE_CHARS]
    clock, process = _CLOCK.search(start), _PROCESS.search(start)
    number = process and next(one for one in process.groups() if one is not None)
    kernels = KERNEL if not number and _KERNELS.search(start) else None
    return Origin(int(number) if number else kernels, _seconds(clock) if clock else None)


def _seconds(clock: re.Match[str]) -> float:
    month, day = int(clock["month"] or 0), int(clock["day"] or clock["date"] or 0)
    if clock["name"] in _MONTH:
        month = _MONTH.index(clock["name"]) + 1
    second = float(clock["second"].replace(",", "."))
    hours = (month * 31 + day) * 24 + int(clock["hour"])
    return hours * 3600 + int(clock["minute"]) * 60 + second


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
