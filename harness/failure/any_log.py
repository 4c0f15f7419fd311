"""Reads any log, whoever wrote it, for the lines that may matter: bounded in time and memory.

What stands before a text (a number, a time, a process, a level) is left out of it. Of texts that
differ in their numbers only, the first few are kept.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import BinaryIO, Final, cast

from harness.failure.error import clean_text

MAX_CHARS: Final = 128 << 20
"""So much of a log is read; a log of logcat's has far less."""
MAX_LINES: Final = 8_000
"""So many texts are kept: the first ones and the last ones, in equal parts."""
_MAX_ALIKE: Final = 20
_MAX_TEXTS: Final = 200_000
_MAX_LINE_CHARS: Final = 16_384
_MAX_TEXT_CHARS: Final = 1_000

# Words of which every line has one that a rule can take, or that names a code of QNN's: cheaper to
# look for than the rules' patterns.
_WORDS: Final = (
    *("qnn", "htp", "hexagon", "dsp", "rpc", "skel", "stub", "vtcm", "tcm", "hmx", "npu", "remote"),
    *("session", "graph", "context", "dispatch", "snapdragon", "opencl", "adreno", "gpu", "dmabuf"),
    *("cl_mem", "avc", "ssr", "conn reset", "lowmemory", "lmkd", "out of memory", ".so", "symbol"),
    *("flatbuffer", "deserializ", "create op", "validat", "fp16", "float", "half", "nhwc", "err"),
    *("nodes are", "elements", "transport", "blob", "incorrect value", "signature", "test-sig"),
    *("elf ", "preregistermem", "unsupported version", "ended by sig", "weights", "ort_"),
    *("translation", "user pd", "opened handle", "implementation", "request feature", "allocation"),
    *("buffer", "smmu", "valid interface", "soc model"),
)
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
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+", re.I)


@dataclass(frozen=True)
class LogText:
    """A line of a log, counted from 1, without what stands before its text."""

    number: int
    text: str


@dataclass(frozen=True)
class Log:
    """The lines of a log that may matter, and how many it has; `whole`: all of it was read."""

    lines: tuple[LogText, ...]
    line_count: int
    whole: bool


def read_log(stream: BinaryIO) -> Log:
    """Reads a log to its end or to MAX_CHARS; nothing in it makes this raise."""
    first: list[LogText] = []
    last: deque[LogText] = deque(maxlen=MAX_LINES // 2)
    seen: set[int] = set()
    alike: Counter[int] = Counter()
    buffered = BufferedReader(cast("RawIOBase", stream))
    text_of = TextIOWrapper(buffered, _encoding_of(buffered.peek(2)[:2]), "replace")
    left, number, ended = MAX_CHARS, 0, True
    while left > 0 and (line := text_of.readline(_MAX_LINE_CHARS)):
        left -= len(line)
        # what is too long for one reading is still one line
        number += ended
        ended = line.endswith("\n")
        low = line.lower()
        if not any(word in low for word in _WORDS):
            continue
        for text in texts_of(line):
            same, shape = hash(text), hash(_NUMBERS.sub("#", text))
            if same in seen or alike[shape] >= _MAX_ALIKE:
                continue
            if len(seen) >= _MAX_TEXTS:
                seen.clear()
                alike.clear()
            seen.add(same)
            alike[shape] += 1
            (first if len(first) < MAX_LINES // 2 else last).append(LogText(number, text))
    whole = not text_of.read(1)
    text_of.detach()
    buffered.detach()
    return Log((*first, *last), number, whole)


def texts_of(line: str) -> Iterator[str]:
    """What a line says: of several lines pasted into one, with slashes between, each."""
    for part in _PASTED.split(_ANSI.sub("", line))[:200]:
        text = _BEFORE.sub("", part, count=1).strip()[:_MAX_TEXT_CHARS]
        if text:
            yield str(clean_text(text))


def _encoding_of(start: bytes) -> str:
    """UTF-8, if the first two bytes do not say UTF-16: by a mark, or by a letter's empty half."""
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in start:
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    return "utf-8-sig"
