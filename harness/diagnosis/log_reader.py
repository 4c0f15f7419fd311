"""Reader of any log for the lines that may matter, bounded in time and memory.

The prefix of a text (a number, a time, a process, a level) is left out. Of texts that differ in
their numbers only, the first few are kept.

RE2 extracts from each pattern the words that any match must contain, and searches for all of them
at once. It has no lookarounds, so these are left out; without them a pattern matches more.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import islice
from typing import BinaryIO, Final, cast

import re2

from harness.core.json_record import clean_text
from harness.diagnosis.line_patterns import only_pattern, patterns_of as patterns_of_kind
from harness.diagnosis.rule import Rule
from harness.diagnosis.rule_sources import all_rules

# Words in lines of programs that use the NPU: each such process fails on its own.
CLIENT: Final = re.compile(
    r"Qnn(?:Dsp|Htp|Gpu|Cpu|System|[A-Z][a-z]+_)|Qnn ExecuTorch|QNNExecution|QnnBackendManager"
    r"|ggml-hex|needed by .*lib[acs]dsprpc|(?i:litert|lite_rt|genie)"
)

# Without any of these a number may be another program's: 1008 and 14001 are used by others, too.
OURS: Final = re.compile(
    r"(?i)qnn|htp|hexagon|[acs]dsp|rpc|skel\b|stub\b|snapdragon|genie|qualcomm|adreno|npu\b"
    # codes of the DSP
    r"|0x(?:f{8})?8000|-214748[12]\d{3}\b|\b214748[45]\d{3}\b|18446744071562\d{6}"
)
API: Final = re.compile(r"\bQnn[A-Z][A-Za-z]{2,24}_[a-z][A-Za-z]{2,40}\b")
# A line of every program with TensorFlow Lite, even if it does not use the NPU.
UNRELATED: Final = re.compile(r"TfLiteXNNPackDelegate")


CRASHES: Final = only_pattern("crash")
FAILS: Final = only_pattern("failure")

_LOOKAROUND: Final = re.compile(r"\(\?<?[=!]")
_TOKEN: Final = re.compile(rf"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|{_LOOKAROUND.pattern}|.", re.DOTALL)
"""A part of a regular expression: an escape, a class, the start of a lookaround, or a character."""
_ALSO_I: Final = str.maketrans("\u0130\u0131", "ii")
_ALSO_DIGIT: Final = re.compile(r"(?![0-9])\d")
_ALSO_SPACE: Final = re.compile(r"(?![ \t\n\f\r])\s")
_CONTROLS: Final = bytes.maketrans(b"\x0b\x1c\x1d\x1e\x1f", b" " * 5)
"""White space in Python, not in RE2."""
_NUMBERED: Final = (
    r"(?i)err(?:or)?[ _]?(?:code|no)?\W{0,3}(?:is |was |of )?\W{0,2}(?:0x[0-9a-f]|\d)"
)
"""A number that is called an error, which may be a code of QNN."""
_NUMBER: Final = re.compile(_NUMBERED.encode())


class LineFilter:
    """A filter of lines that may match any of some regular expressions; it may pass others.

    It passes all lines if RE2 does not know a pattern, such as one with a back reference.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        options = re2.Options()
        options.case_sensitive, options.log_errors = False, False
        self._filter, self._passes_all = re2.Filter(), False
        for pattern in (_NUMBERED, *patterns):
            without = without_lookarounds(pattern)
            try:
                re2.compile(without, options)  # the filter itself prints what it refuses
                self._filter.Add(without, options)
            except re2.error:
                self._passes_all = True
        self._filter.Compile()

    def passes(self, line: bytes) -> bool:
        """Return whether a line of UTF-8 may match, or has a number that is called an error."""
        line = _as_in_re2(line)
        matches = self._filter.Match(line, potential=True)
        if matches is None:
            return self._passes_all
        return self._passes_all or matches != [0] or _NUMBER.search(line) is not None


def _as_in_re2(line: bytes) -> bytes:
    """Replace what is a digit, white space or an i to patterns of Python, but not to RE2's."""
    if not line.isascii():
        text = line.decode("utf-8", "replace").translate(_ALSO_I)
        line = _ALSO_SPACE.sub(" ", _ALSO_DIGIT.sub("0", text)).encode()
    return line.translate(_CONTROLS)


def without_lookarounds(pattern: str) -> str:
    """Return a regular expression without its lookarounds, which RE2 does not have."""
    rest, depth = "", 0
    for token in _TOKEN.findall(pattern):
        if depth or _LOOKAROUND.fullmatch(token):
            depth += token.startswith("(") - (token == ")")
        else:
            rest += token
    return rest


def patterns_of(rules: Iterable[Rule]) -> list[str]:
    """Return the patterns of all signs, and those of lines about QNN."""
    signs = [sign for rule in rules for sign in rule.all_signs]
    texts = [text for sign in signs for text in (sign.text, sign.evidence, sign.absent)]
    words = [pattern.pattern for pattern in (API, CLIENT, OURS)]
    calls = (call.pattern for _, call in patterns_of_kind("call"))
    return list(dict.fromkeys(filter(None, [*texts, *words, *calls])))


def rule_filter() -> LineFilter:
    """Return the filter of all rules."""
    return _filter_of(all_rules())


@lru_cache(4)
def _filter_of(rules: tuple[Rule, ...]) -> LineFilter:
    return LineFilter(patterns_of(rules))


_MONTH: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# All months count 31 days: only differences of seconds matter.
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
LOUD: Final = only_pattern("loud")
QUIET: Final = only_pattern("quiet")
_BEFORE_CHARS: Final = 200
KERNEL: Final = 0
"""The process id for lines of the kernel."""


@dataclass(frozen=True)
class Origin:
    """The process that wrote a line, and its wall-clock time in seconds; None if not known.

    `loud`: its level is that of an error; `quiet`: it is below that.
    """

    process: int | None = None
    time: float | None = None
    loud: bool = False
    quiet: bool = False


NOBODY: Final = Origin()


def origin_of(line: str) -> Origin:
    """Parse the prefix of a line of logcat, Studio, journald, or dmesg."""
    start = line[:_BEFORE_CHARS]
    clock, process = _CLOCK.search(start), _PROCESS.search(start)
    number = process and next(group for group in process.groups() if group is not None)
    kernel = KERNEL if not number and _KERNELS.search(start) else None
    prefix = "" if _PASTED.search(line) else start
    return Origin(
        int(number) if number else kernel,
        _seconds(clock) if clock else None,
        loud=LOUD.search(prefix) is not None,
        quiet=QUIET.search(prefix) is not None,
    )


def _seconds(clock: re.Match[str]) -> float:
    month, day = int(clock["month"] or 0), int(clock["day"] or clock["date"] or 0)
    if clock["name"] in _MONTH:
        month = _MONTH.index(clock["name"]) + 1
    second = float(clock["second"].replace(",", "."))
    hours = (month * 31 + day) * 24 + int(clock["hour"])
    return hours * 3600 + int(clock["minute"]) * 60 + second


MAX_CHARS: Final = 256 << 20
"""The most characters of a log that are read; logcat has far fewer."""
MAX_LINES: Final = 8_000
"""The most texts that are kept: half of them the first, half the last ones."""
_MAX_ALIKE: Final = 20
_MAX_TEXTS: Final = 200_000
_MAX_SCANNED: Final = 1_000_000
"""After this many texts only the last lines of a log are scanned."""
_MAX_UNSCANNED_CHARS: Final = 2_000
_CHUNK_CHARS: Final = 1 << 20
_MAX_LINE_CHARS: Final = 16_384
_MAX_TEXT_CHARS: Final = 1_000
_OVERLAP: Final = 200
"""The overlap of the pieces of a line that is too long for one text, or one chunk."""
_WIDTHS: Final = (80, 100, 120, 132, 160)
_MAX_WRAPPED: Final = 8
"""The most pieces of a line that a terminal may have cut at its width."""

_FAILURES: Final = tuple(re2.compile(each.pattern.encode()) for each in (CRASHES, FAILS))
_ANY_FAILURE: Final = re2.compile(f"{CRASHES.pattern}|{FAILS.pattern}".encode())
_MAX_OTHERS: Final = 20
_MAX_SEARCHED: Final = 50
"""The most lines of failures that no rule takes: those kept, and those found in a chunk."""
_ECHO: Final = only_pattern("echo")
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
    """A line of a log, counted from 1, without its prefix, and its origin.

    `for_rules` is false for a line that no rule takes, which tells of a failure nevertheless.
    """

    number: int
    text: str
    origin: Origin = NOBODY
    for_rules: bool = True


@dataclass(frozen=True)
class ScannedLog:
    """The lines of a log that may matter, and their total number; `whole`: all of it was read."""

    lines: tuple[LogText, ...]
    line_count: int
    whole: bool


def read_log(stream: BinaryIO) -> ScannedLog:
    """Read a log to its end or to MAX_CHARS, never raising for its content."""
    buffered = BufferedReader(cast("RawIOBase", stream))
    reader = TextIOWrapper(buffered, _encoding_of(buffered.peek(2)[:2]), "replace")
    store, chars_left, number, rest = _LineStore(), MAX_CHARS, 1, ""
    while chars_left > 0 and (chunk := reader.read(min(chars_left, _CHUNK_CHARS))):
        chars_left -= len(chunk)
        rest += chunk
        if len(chunk) < _CHUNK_CHARS:
            break
        complete, end, rest = rest.rpartition("\n")
        if end:
            number += store.add(complete, number)
        if len(rest) > _MAX_LINE_CHARS:
            # a line longer than a chunk is still one line
            store.add(rest, number)
            rest = rest[-_OVERLAP:]
    store.add(rest, number)
    number += rest.count("\n") - (not rest or rest.endswith("\n"))
    whole = not reader.read(1)
    reader.detach()
    buffered.detach()
    return ScannedLog(store.lines(), number, whole)


class _LineStore:
    """The kept lines of a log, collected in linear time."""

    def __init__(self) -> None:
        self._passes = rule_filter().passes
        self._others: list[dict[bytes, list[LogText]]] = [{} for _ in _FAILURES]
        self._first: list[LogText] = []
        self._last: deque[LogText] = deque(maxlen=MAX_LINES // 2)
        self._known: set[int] = set()
        self._alike: Counter[int] = Counter()
        self._full: set[int] = set()
        self._scanned = 0
        self._widest = 0
        self._unscanned: deque[tuple[int, str, int]] = deque(maxlen=MAX_LINES // 2)

    def add(self, text: str, number: int) -> int:
        """Add complete lines, the first of which has this number; return their count."""
        if not text.strip("\n"):
            return len(text) + 1
        plain = _ANSI.sub("", text) if "\x1b" in text else text
        data = plain.encode("utf-8", "replace")
        lines = data.split(b"\n")
        is_full = all(len(others) >= _MAX_OTHERS for others in self._others)
        if not is_full and _ANY_FAILURE.search(data):
            self._add_failures(data, lines, number)
        self._widest = max(self._widest, *map(len, lines))
        wrapped = self._widest in _WIDTHS
        for index, line in self._unwrapped(lines) if wrapped else enumerate(lines):
            if not self._passes(line):
                continue
            # a line that differs from many before it only in digits, such as its time, is dropped
            if (rough := hash(line.translate(_DIGITS))) not in self._full:
                self._add_line(number + index, line.decode("utf-8", "replace"), rough)
        return len(lines)

    def _add_failures(self, data: bytes, lines: list[bytes], number: int) -> None:
        """Keep the first lines that tell of a failure, of those that no rule takes."""
        for pattern, others in zip(_FAILURES, self._others, strict=True):
            room = _MAX_OTHERS - len(others)
            matches = islice(pattern.finditer(data), _MAX_SEARCHED) if room else ()
            for index in dict.fromkeys(data.count(b"\n", 0, match.start()) for match in matches):
                line, rough = lines[index], lines[index].translate(_DIGITS)
                if len(others) < _MAX_OTHERS and rough not in others and not self._passes(line):
                    text = line[:_MAX_LINE_CHARS].decode("utf-8", "replace")
                    origin = origin_of(text)
                    others[rough] = [
                        LogText(number + index, part, origin, for_rules=False)
                        for part in texts_of(text)
                    ]

    def lines(self) -> tuple[LogText, ...]:
        """Return all lines that were kept, in their order."""
        while self._unscanned:
            self._scan(*self._unscanned.popleft())
        others = {line for kept in self._others for texts in kept.values() for line in texts}
        return tuple(sorted((*self._first, *self._last, *others), key=lambda line: line.number))

    def _unwrapped(self, lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield lines and their indexes, with the pieces that a terminal cut put together."""
        first, whole = 0, b""
        for index, line in enumerate(lines):
            whole += line
            after = lines[index + 1].decode("latin-1") if index + 1 < len(lines) else ""
            is_cut = len(line) == self._widest and index - first < _MAX_WRAPPED
            # another line begins with a time, a number or a level of its own
            if not is_cut or not after or _BEFORE.sub("", after, 1) != after.lstrip():
                yield first, whole
                first, whole = index + 1, b""

    def _add_line(self, number: int, line: str, rough: int) -> None:
        if _ECHO.search(line):
            return
        if self._scanned >= _MAX_SCANNED:
            self._unscanned.append((number, line[:_MAX_UNSCANNED_CHARS], rough))
            return
        for begin in range(0, len(line), _MAX_LINE_CHARS - _OVERLAP):
            self._scan(number, line[begin : begin + _MAX_LINE_CHARS], rough)

    def _scan(self, number: int, line: str, rough: int) -> None:
        all_frequent, origin = True, origin_of(line)
        for text in texts_of(line):
            self._scanned += 1
            key, shape = hash((text, origin.process)), hash(_NUMBERS.sub("#", text))
            frequent = self._alike.get(shape, 0) >= _MAX_ALIKE
            all_frequent &= frequent
            if frequent or key in self._known:
                continue
            if len(self._known) >= _MAX_TEXTS:
                self._known.clear()
                self._alike.clear()
                self._full.clear()
            self._known.add(key)
            self._alike[shape] = self._alike.get(shape, 0) + 1
            room = len(self._first) < MAX_LINES // 2
            (self._first if room else self._last).append(LogText(number, text, origin))
        if all_frequent and len(self._full) < _MAX_TEXTS:
            self._full.add(rough)


def texts_of(line: str) -> Iterator[str]:
    """Yield the text of a line; several lines pasted into one with slashes give one text each."""
    plain = _ANSI.sub("", line) if "\x1b" in line else line
    for part in _PASTED.split(plain)[:200] if "/" in plain else (plain,):
        text = _BEFORE.sub("", part, count=1).strip()
        for begin in range(0, len(text), _MAX_TEXT_CHARS - _OVERLAP):
            piece = text[begin : begin + _MAX_TEXT_CHARS]
            if not begin or rule_filter().passes(piece.encode("utf-8", "replace")):
                yield str(clean_text(piece))


def _encoding_of(start: bytes) -> str:
    """Return UTF-8, unless the first two bytes have a UTF-16 mark or a zero byte."""
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in start and any(start):
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    return "utf-8-sig"
