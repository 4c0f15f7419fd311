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
from pathlib import Path
from typing import Final, NamedTuple

PRIORITIES: Final = "VDIWEFS"
MAX_CHARS: Final = 4096
_OUR_BUFFERS: Final = {"main", "system", "default", "all"}
_USAGE: Final = "Usage: logcat -d [-b BUFFER] [-t N|TIME] [-v threadtime]"
_LINE: Final = re.compile(r"(\d+\.\d{3}) (\d+) ([VDIWEFS]) ([^\t]*)\t(.*)\Z", re.DOTALL)


class LoggedLine(NamedTuple):
    """One line of the log; `seconds` since the epoch."""

    seconds: float
    pid: int
    priority: str
    tag: str
    message: str

    def shown(self) -> str:
        """Return the entry as logcat prints it in the format `threadtime`."""
        milliseconds = round(self.seconds * 1000)
        moment = time.strftime("%m-%d %H:%M:%S", time.localtime(milliseconds // 1000))
        head = f"{moment}.{milliseconds % 1000:03} {self.pid:>5} {self.pid:>5}"
        return f"{head} {self.priority} {self.tag:<8}: {self.message}"


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


def parse_since(text: str, now: float) -> float | int:
    """Parse the value of -t: a number of entries (int) or a time (float, since the epoch).

    Times are `MM-DD hh:mm:ss.mmm`. Raises ValueError.
    """
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    whole, _, fraction = text.partition(".")
    year = time.localtime(now).tm_year
    moment = time.mktime(time.strptime(f"{year}-{whole}", "%Y-%m-%d %H:%M:%S"))
    return moment + float(f"0.{fraction}0")


def logcat(path: str, arguments: list[str]) -> int:
    """Run the program `logcat -d` and return its exit code."""
    try:
        options, words = getopt.getopt(arguments, "b:dt:v:")
        values = dict(options)
        if words or values.get("-v", "threadtime") != "threadtime" or "-d" not in values:
            raise ValueError("only the whole log is printed, as threadtime")
        since = parse_since(values["-t"], time.time()) if "-t" in values else 0.0
    except (getopt.GetoptError, ValueError) as error:
        print(f"logcat: {error}\n{_USAGE}", file=sys.stderr)
        return 1
    buffers = {part for key, value in options if key == "-b" for part in value.split(",")}
    if buffers and not buffers & _OUR_BUFFERS:
        return 0
    text = ""
    with contextlib.suppress(FileNotFoundError):
        text = Path(path).read_text("utf-8", errors="replace")
    entries = [entry for line in text.split("\n") if (entry := parse_line(line))]
    if isinstance(since, int):
        entries = entries[-since:] if since else []
    else:
        entries = [entry for entry in entries if entry.seconds >= since]
    if entries:
        print("--------- beginning of main", *(entry.shown() for entry in entries), sep="\n")
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
