"""Cuts a case's own time out of a device's logs, and reads what else they tell (pure).

Nothing here raises: logs come from a device, and hold what any program wanted to write.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

TAGS: Final[Mapping[str, str]] = {
    "adsprpc": r"adsprpc",
    "QnnDsp": r"qnn ?dsp",
    "fastrpc": r"fastrpc",
    "DEBUG": r"\Adebug\Z",
    "libc": r"\Alibc\Z",
    "ExecuTorch": r"qnn executorch|\Aexecutorch",
    "onnxruntime": r"onnxruntime",
}
"""The names of the logs worth a file of their own, and what their tags look like in small letters.

They are those of Qualcomm's DSP transport and runtime (executorch#4973, onnxruntime#19462), of
ExecuTorch's delegate, and of bionic, whose `DEBUG` and `libc` report crashes.
"""

DSP_PATTERN: Final = re.compile(
    r"SSR Detected|CONN Reset|remoteproc|fastrpc|adsprpc|subsys|\bssr\b|cdsp|adsp|glink",
    re.IGNORECASE,
)
AVC_PATTERN: Final = re.compile(r"avc: +(?:denied|granted)")

_LINE: Final = re.compile(
    r"""[ ]{0,20}+(?P<time>[0-9]{2}-[0-9]{2}[ ][0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})
    [ ]{1,8}[0-9]{1,10}[ ]{1,8}[0-9]{1,10}
    [ ][VDIWEFAS][ ](?P<tag>[^:]{0,128}?)[ ]*+:(?:[ ].*)?\Z""",
    re.VERBOSE | re.DOTALL,
)
# [12.345678], [12.345678][T123], <6>[12.345678] as `dmesg` prints them
_KERNEL: Final = re.compile(r"(?:<[0-9]{1,3}>)?\[ {0,12}([0-9]{1,10}\.[0-9]{1,9})\]")
# a line of fdinfo, with the name of its file before it or without
_FDINFO: Final = re.compile(r"(?:\A|[:/])(pos|ino|size|exp_name):[ \t]*([0-9]{1,19}\b|[^0-9]|\Z)")
_HALF_A_YEAR: Final = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of logcat in the format `threadtime`; `moment` is in 1904, a leap year."""

    moment: datetime
    tag: str


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """What a device's clocks said at one moment.

    `local` is as its log prints it, `kernel_s` the clock of its kernel log, None where that is not
    known.
    """

    local: datetime
    kernel_s: float | None = None


def parse_log_line(line: str) -> LogEntry | None:
    """The entry in a line, None if it is none (a continuation, `--------- beginning of main`)."""
    found = _LINE.match(line)
    with contextlib.suppress(ValueError):
        if found is not None:
            moment = datetime.strptime(f"1904-{found['time']}", "%Y-%m-%d %H:%M:%S.%f")
            return LogEntry(moment, found["tag"])
    return None


def age_s(entry: LogEntry, now: DeviceClock) -> float:
    """How many seconds before `now` an entry was written; negative if after it."""
    # a line of December can be read in January, and one written meanwhile the other way round
    ages = [
        (now.local - moment).total_seconds()
        for year in (now.local.year - 1, now.local.year, now.local.year + 1)
        if (moment := _in_year(entry.moment, year)) is not None
    ]
    return min((age for age in ages if age > -_HALF_A_YEAR.total_seconds()), default=-1.0)


def window(text: str, now: DeviceClock, last_s: float) -> tuple[str, int]:
    """The lines of a log that are at most `last_s` seconds old, and how many were left out.

    A line without a time belongs to the one before it.
    """

    def young(line: str) -> bool | None:
        entry = parse_log_line(line)
        return None if entry is None else age_s(entry, now) <= last_s

    return _part(text, young)


def kernel_window(text: str, since_s: float | None) -> tuple[str, int]:
    """The lines of a kernel log from a moment of its own clock on, and how many were left out."""
    if since_s is None:
        return text, 0

    def late(line: str) -> bool | None:
        found = _KERNEL.match(line)
        return None if found is None else float(found[1]) >= since_s

    return _part(text, late)


def _part(text: str, within: Callable[[str], bool | None]) -> tuple[str, int]:
    """The lines that are `within`, and how many are not. None: as the line before, else within."""
    kept: list[str] = []
    inside = True
    lines = text.split("\n")
    for line in lines:
        said = within(line)
        inside = inside if said is None else said
        if inside:
            kept.append(line)
    return "\n".join(kept), len(lines) - len(kept)


def by_tag(text: str) -> dict[str, str]:
    """The lines of a log that belong to each of TAGS, for those that have any."""
    patterns = {name: re.compile(pattern) for name, pattern in TAGS.items()}
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.split("\n"):
        entry = parse_log_line(line)
        if entry is not None:
            tag = entry.tag.lower()
            names = [name for name, pattern in patterns.items() if pattern.search(tag)]
        for name in names:
            if line:
                found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def matching(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    """The lines that a pattern is found in, each with the name of the text it stands in."""
    lines = [
        f"{name}: {line}\n"
        for name, text in texts.items()
        for line in text.split("\n")
        if pattern.search(line)
    ]
    return "".join(lines)


def table(text: str) -> dict[str, str]:
    """Lines of `name=value`; of two with one name the last holds."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value.strip() for name, _, value in pairs}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What differs between two tables, in words."""
    return [
        f"{name}: {before.get(name, 'not there')} -> {after.get(name, 'not there')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def total_dmabuf(lines: Iterable[str]) -> tuple[int, int]:
    """(number, bytes) of the DMA buffers in the `fdinfo` of a process, each counted once.

    The kernel documents the fields (filesystems/proc: `ino`, `size`, `exp_name` of a DMA buffer).
    `lines` may be those of many descriptors, one behind the other.
    """
    sizes: dict[str, int] = {}
    inode = size = ""
    for number, line in enumerate(lines):
        found = _FDINFO.search(line)
        name, value = (found[1], found[2]) if found else ("", "")
        if name == "pos":
            inode = size = ""
        elif name == "ino":
            inode = value
        elif name == "size":
            size = value
        elif name == "exp_name" and size:
            sizes[inode or f"#{number}"] = int(size)
    return len(sizes), sum(sizes.values())


def _in_year(moment: datetime, year: int) -> datetime | None:
    try:
        return moment.replace(year=year)
    except ValueError:  # the 29th of February, or no year at all
        return None
