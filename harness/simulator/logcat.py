"""The simulated device's log, and its programs `log` and `logcat`.

Run as a file of its own (`python -I -S logcat.py logcat LOGFILE ...`), so it imports nothing but
the standard library. An entry is one line: seconds, pid, priority, tag, tab, message.
"""

from __future__ import annotations

import contextlib
import getopt
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PRIORITIES: Final = "VDIWEFS"
MAX_CHARS: Final = 4096
_OUR_BUFFERS: Final = {"main", "system", "default", "all"}
_POLL_S: Final = 0.1
_USAGE: Final = "Usage: logcat [-cds] [-b BUFFER] [-t|-T N|TIME] [-v FORMAT] [TAG:P]"
_FORMATS: Final[dict[str, str]] = {
    "raw": "{message}",
    "threadtime": "{time} {pid:>5} {pid:>5} {p} {tag:<8}: {message}",
}
_LINE: Final = re.compile(r"(\d+\.\d{3}) (\d+) ([VDIWEFS]) ([^\t]*)\t(.*)\Z", re.DOTALL)


class LoggedLine(NamedTuple):
    """One line of the log; `seconds` since the epoch."""

    seconds: float
    pid: int
    priority: str
    tag: str
    message: str

    def shown(self, layout: str) -> str:
        milliseconds = round(self.seconds * 1000)
        moment = time.strftime("%m-%d %H:%M:%S", time.localtime(milliseconds // 1000))
        stamp = f"{moment}.{milliseconds % 1000:03}"
        return _FORMATS[layout].format(p=self.priority, time=stamp, **self._asdict())


def parse_line(line: str) -> LoggedLine | None:
    """Return the entry of a stored line, None if it is malformed."""
    match = _LINE.match(line)
    if match is None:
        return None
    seconds, pid, priority, tag, message = match.groups()
    return LoggedLine(float(seconds), int(pid), priority, tag, message)


def append(path: Path, priority: str, tag: str, text: str, *, pid: int) -> None:
    """Add an entry for each line of a text, each cut at MAX_CHARS. Raises OSError."""
    word = re.sub(r"\s", "_", tag)
    head = f"{time.time():.3f} {pid} {priority} {word}\t"
    lines = re.split(r"[\r\n]+", text.strip("\r\n"))
    data = "".join(f"{head}{line[:MAX_CHARS]}\n" for line in lines)
    with open(path, "ab", buffering=0) as file:
        file.write(data.encode("utf-8", "surrogateescape"))


class LogFilter:
    """A filter of entries by `TAG:PRIORITY` words, as in logcat."""

    def __init__(self, words: Sequence[str], *, silent: bool = False) -> None:
        self._least = {"*": "S" if silent else "V"}
        for word in words:
            tag, _, priority = word.partition(":")
            least = (priority or "V").upper()[:1]
            if least not in PRIORITIES:
                raise ValueError(f"Invalid filter expression '{word}'")
            self._least[tag or "*"] = least

    def admits(self, entry: LoggedLine) -> bool:
        least = self._least.get(entry.tag, self._least["*"])
        return least != "S" and PRIORITIES.index(entry.priority) >= PRIORITIES.index(least)


def parse_since(text: str, now: float) -> float | int:
    """Parse the value of -t or -T: a number of entries (int) or a time (float, since the epoch).

    Times are `MM-DD hh:mm:ss.mmm`. Raises ValueError.
    """
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    whole, _, fraction = text.partition(".")
    year = time.localtime(now).tm_year
    moment = time.mktime(time.strptime(f"{year}-{whole}", "%Y-%m-%d %H:%M:%S"))
    return moment + float(f"0.{fraction}0")


def _stored(path: str, follow: bool) -> Iterator[LoggedLine]:
    position, rest = 0, b""
    while True:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                position, rest = 0, b""
            file.seek(position)
            *lines, rest = (rest + file.read()).split(b"\n")
            position = file.tell()
            for line in lines:
                if (entry := parse_line(line.decode("utf-8", "replace"))) is not None:
                    yield entry
        if not follow:
            return
        sys.stdout.flush()
        time.sleep(_POLL_S)


def logcat(path: str, arguments: list[str]) -> int:
    """Run the program `logcat` and return its exit code."""
    try:
        options, words = getopt.gnu_getopt(arguments, "b:cdst:T:v:")
        values = dict(options)
        buffers = {part for key, value in options if key == "-b" for part in value.split(",")}
        layout = values.get("-v", "threadtime")
        if layout not in _FORMATS:
            raise ValueError(f'Invalid parameter "{layout}" to -v')
        log_filter = LogFilter(words, silent="-s" in values)
        limit = values.get("-t", values.get("-T"))
        since = None if limit is None else parse_since(limit, time.time())
    except (getopt.GetoptError, ValueError) as error:
        print(f"logcat: {error}\n{_USAGE}", file=sys.stderr)
        return 1
    if buffers and not buffers & _OUR_BUFFERS:
        return 0
    if "-c" in values:
        open(path, "wb").close()
        return 0

    def admitted(follow: bool) -> Iterator[LoggedLine]:
        for entry in _stored(path, follow):
            late = not isinstance(since, float) or entry.seconds >= since
            if late and log_filter.admits(entry):
                yield entry

    skipped = 0
    if isinstance(since, int):
        skipped = max(0, sum(1 for _ in admitted(follow=False)) - since)
    for number, entry in enumerate(admitted(not values.keys() & {"-d", "-t"})):
        if number == skipped:
            print("--------- beginning of main")
        if number >= skipped:
            print(entry.shown(layout))
    return 0


def log(path: str, arguments: list[str]) -> int:
    """Run the program `log` and return its exit code."""
    try:
        options, words = getopt.getopt(arguments, "p:t:")
        values = dict(options)
        priority = values.get("-p", "i").upper()[:1]
        if priority not in PRIORITIES[:-1] or not priority:
            raise ValueError(f"bad -p '{values['-p']}'")
    except (getopt.GetoptError, ValueError) as error:
        print(f"log: {error}", file=sys.stderr)
        return 1
    text = " ".join(words) if words else sys.stdin.read()
    append(Path(path), priority, values.get("-t", "log"), text, pid=os.getppid())
    return 0


def main(arguments: list[str]) -> int:
    """Run `log` or `logcat`: the program's name, the log file, then its own arguments."""
    program, path, *rest = arguments
    try:
        return {"log": log, "logcat": logcat}[program](path, rest)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
