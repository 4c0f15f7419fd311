"""Who wrote a line of a log, and when, by what stands before its text (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
