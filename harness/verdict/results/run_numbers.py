"""The order in which the runs, bisections and nights of a folder of reports were begun.

Each takes the next number of its folder, under a lock, and keeps it in its run.json. So no clock
that jumps disturbs their order. What is of several folders is ordered by when it began.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.notices import ONCE
from harness.ground.files.whole_file import write_whole
from harness.verdict.results.run_info import INFO, info_in

COUNTER: Final = ".number"
_SERIES: Final = re.compile(r"[0-9a-f]{16}")
_COUNT: Final = re.compile(rb"([0-9a-f]{16}) ([0-9]{19})\n")
_COUNT_BYTES: Final = 37
_NUMBERS: Final = 1 << 62
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class RunNumber(NamedTuple):
    """The number of a run, bisection or night in the `series` of its folder, and when it began.

    `series` is empty if it has no number.
    """

    series: str
    number: int
    started: str
    name: str

    @classmethod
    def of(cls, name: str, info: Mapping[str, Any]) -> RunNumber:
        """Return the number that run.json tells, which anybody may have written."""
        series, number = info.get("series") or "", info.get("number") or 0
        started = sortable_time(info.get("started")) or sortable_time(name.partition("-")[0])
        if not (0 < number < _NUMBERS and _SERIES.fullmatch(series)):
            return cls("", 0, started, name)
        return cls(series, number, started, name)


def moment_text(moment: datetime) -> str:
    """Return a time in UTC as all are written, so that they sort."""
    text = moment.isoformat(timespec="microseconds")
    return f"{text.removesuffix('+00:00')}Z"


def sortable_time(text: object) -> str:
    """Return the text of a time as `moment_text` has it; empty for what is no time."""
    try:
        return moment_text(datetime.fromisoformat(str(text)).astimezone(UTC))
    except (ValueError, OverflowError):
        return ""


def take_number(reports: Path) -> dict[str, object]:
    """Return what run.json keeps of the next number of a folder. Raises InfraError.

    Two at once wait for each other.
    """
    try:
        # the folder may be somebody else's: a link in it would have another file overwritten
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(reports / COUNTER, flags, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            count = _COUNT.fullmatch(file.read(_COUNT_BYTES + 1))
            series, number = (count[1].decode(), int(count[2])) if count else ("", _NUMBERS)
            if number + 1 >= _NUMBERS:
                series, number = secrets.token_hex(8), 0
                file.truncate(0)
            file.seek(0)
            file.write(f"{series} {number + 1:019}\n".encode())
    except OSError as error:
        raise InfraError(f"cannot number what begins in {reports}: {error.strerror}") from error
    return {"series": series, "number": number + 1}


def number_folder(folder: Path, kind: str) -> None:
    """Write the run.json of a bisection or a night, with its number. Raises InfraError."""
    started = moment_text(datetime.now(UTC))
    info = {"schema": 1, "kind": kind, "started": started, **take_number(folder.parent)}
    try:
        write_whole(folder / INFO, f"{json.dumps(info, indent=2)}\n".encode())
    except OSError as error:
        raise InfraError(f"cannot write {folder / INFO}: {error.strerror}") from error


def ordered(folders: Iterable[Path]) -> list[Path]:
    """Return folders in the order in which they were begun.

    Leave out those whose run.json cannot be read, and say so once.
    """
    numbers: dict[Path, RunNumber] = {}
    for folder in folders:
        try:
            numbers[folder] = RunNumber.of(folder.name, info_in(folder))
        except ConfigError as error:
            _log.warning("left out: %s", error, extra=ONCE)
    return in_order(numbers, numbers.__getitem__)


def in_order(things: Iterable[_T], number_of: Callable[[_T], RunNumber]) -> list[_T]:
    """Return things in the order in which they were begun (pure).

    Those of one series are in the order of their numbers, and each began no later than the next.
    """
    numbered = sorted(((number_of(thing), thing) for thing in things), key=lambda pair: pair[0])
    began: dict[str, str] = {}
    keys: list[tuple[str, RunNumber, _T]] = []
    for number, thing in reversed(numbered):
        started = number.started
        if number.series:
            started = began[number.series] = min(started, began.get(number.series, started))
        keys.append((started, number, thing))
    return [thing for *_, thing in sorted(keys, key=lambda key: key[:2])]
