"""The simulated device's log, and its programs `log` and `logcat`.

Run as a file of its own (`python -I -S logcat.py logcat LOGFILE ...`), so it imports nothing but
the standard library. An entry is one line: seconds, pid, tid, priority, tag, tab, message.
"""

from __future__ import annotations

import contextlib
import getopt
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PRIORITIES: Final = "VDIWEFS"
MAX_LINE_BYTES: Final = 8192
_OUR_BUFFERS: Final = {"main", "system", "default", "all"}
_POLL_S: Final = 0.1
_SILENT_S: Final = 1.0
"""No phone is silent for long, and clients that follow its log look at nothing between lines."""
_USAGE: Final = "Usage: logcat [-cdgs] [-b BUFFER] [-e REGEX] [-m N] [-t|-T N|TIME] [-v FORMAT] "

_FORMATS: Final[dict[str, str]] = {
    "brief": "{p}/{tag:<8}({pid:>5}): {message}",
    "process": "{p}({pid:>5}) {message}  ({tag})",
    "raw": "{message}",
    "tag": "{p}/{tag:<8}: {message}",
    "thread": "{p}({pid:>5}:{tid:>5}) {message}",
    "threadtime": "{time} {pid:>5} {tid:>5} {p} {tag:<8}: {message}",
    "time": "{time} {p}/{tag:<8}({pid:>5}): {message}",
    "long": "[ {time} {pid:>5}:{tid:>5} {p}/{tag:<8} ]\n{message}\n",
}
_MODIFIERS: Final = {"UTC", "color", "epoch", "monotonic", "usec", "nsec", "uid", "year", "zone"}
_LINE: Final = re.compile(r"(\d+\.\d{3}) (\d+) (\d+) ([VDIWEFS]) ([^\t]*)\t(.*)\Z", re.DOTALL)


class LoggedLine(NamedTuple):
    """One line of the log; `seconds` since the epoch."""

    seconds: float
    pid: int
    tid: int
    priority: str
    tag: str
    message: str

    def line(self) -> str:
        """The entry as it is stored, without the end of line."""
        tag = re.sub(r"\s", "_", self.tag)
        return f"{self.seconds:.3f} {self.pid} {self.tid} {self.priority} {tag}\t" + self.message


def entries_of(priority: str, tag: str, text: str, *, pid: int, seconds: float) -> list[LoggedLine]:
    """Entries for a text, one per line of it, each cut at MAX_LINE_BYTES // 2 characters."""
    lines = re.split(r"[\r\n]+", text.strip("\r\n"))
    return [LoggedLine(seconds, pid, pid, priority, tag, s[: MAX_LINE_BYTES // 2]) for s in lines]


def parse_line(line: str) -> LoggedLine | None:
    """The entry in a stored line, None if it is not one."""
    found = _LINE.match(line)
    if found is None:
        return None
    seconds, pid, tid, priority, tag, message = found.groups()
    return LoggedLine(float(seconds), int(pid), int(tid), priority, tag, message)


def append(path: Path, entries: Iterable[LoggedLine]) -> None:
    """Adds entries at the end of the log file. Raises OSError."""
    data = "".join(entry.line() + "\n" for entry in entries).encode("utf-8", "surrogateescape")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


class LogFilter:
    """Which entries are shown: `TAG:PRIORITY` words as logcat takes them."""

    def __init__(self, words: Sequence[str], *, silent: bool = False) -> None:
        self._default = "S" if silent else "V"
        self._least: dict[str, str] = {}
        for word in words:
            tag, _, priority = word.partition(":")
            least = (priority or "V").upper()[:1]
            if least not in PRIORITIES:
                raise ValueError(f"Invalid filter expression '{word}'")
            if tag in ("*", ""):
                self._default = least
            else:
                self._least[tag] = least

    def admits(self, entry: LoggedLine) -> bool:
        """Whether the entry's priority reaches what was asked for its tag."""
        least = self._least.get(entry.tag, self._default)
        return least != "S" and PRIORITIES.index(entry.priority) >= PRIORITIES.index(least)


def formatter(words: Iterable[str]) -> Callable[[LoggedLine], str]:
    """A function that makes an entry readable as `-v` asks. Raises ValueError."""
    layout, modifiers = "threadtime", set()
    for word in re.findall(r"[^\s,]+", ",".join(words)):
        if word in _FORMATS:
            layout = word
        elif word in _MODIFIERS:
            modifiers.add(word)
        else:
            raise ValueError(f'Invalid parameter "{word}" to -v')

    def when(seconds: float) -> str:
        milliseconds = round(seconds * 1000)
        if "epoch" in modifiers or "monotonic" in modifiers:
            return f"{milliseconds // 1000:>10}.{milliseconds % 1000:03}"
        split = time.gmtime if "UTC" in modifiers else time.localtime
        shape = "%Y-%m-%d %H:%M:%S" if "year" in modifiers else "%m-%d %H:%M:%S"
        zone = " %z" if modifiers & {"UTC", "zone"} else ""
        moment = split(milliseconds // 1000)
        text = f"{time.strftime(shape, moment)}.{milliseconds % 1000:03}"
        return text + time.strftime(zone, moment)

    def show(entry: LoggedLine) -> str:
        return _FORMATS[layout].format(
            p=entry.priority,
            tag=entry.tag,
            pid=entry.pid,
            tid=entry.tid,
            message=entry.message,
            time=when(entry.seconds),
        )

    return show


def parse_since(text: str, now: float) -> float | int:
    """What -t and -T take: a number of entries (int) or a time (float, seconds since the epoch).

    Times as logcat takes them: `sssss.mmm`, `MM-DD hh:mm:ss.mmm`, `YYYY-MM-DD hh:mm:ss.mmm`.
    Raises ValueError.
    """
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    if re.fullmatch(r"\d{1,12}\.\d{1,9}", text):
        return float(text)
    whole, _, fraction = text.partition(".")
    year = time.localtime(now).tm_year
    for candidate in (whole, f"{year}-{whole}"):
        with contextlib.suppress(ValueError):
            moment = time.mktime(time.strptime(candidate, "%Y-%m-%d %H:%M:%S"))
            return moment + (float(f"0.{fraction}") if fraction else 0.0)
    raise ValueError(f'"{text}" is not a number of lines and not a time')


def _stored(path: str, follow: bool) -> Iterator[LoggedLine]:
    position, rest, silent_s = 0, b"", 0.0
    while True:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                position, rest = 0, b""
            file.seek(position)
            data = rest + file.read()
            position = file.tell()
            *lines, rest = data.split(b"\n")
            for line in lines:
                entry = parse_line(line.decode("utf-8", "replace"))
                if entry is not None:
                    silent_s = 0.0
                    yield entry
        if not follow:
            return
        if silent_s >= _SILENT_S:
            silent_s = 0.0
            pid = os.getpid()
            yield LoggedLine(time.time(), pid, pid, "I", "simulated", "nothing has been logged")
        sys.stdout.flush()
        time.sleep(_POLL_S)
        silent_s += _POLL_S


def logcat(path: str, arguments: list[str]) -> int:
    """The program `logcat`; returns its exit code."""
    try:
        options, words = getopt.gnu_getopt(
            arguments, "b:cde:gG:hm:st:T:v:", ["help", "pid=", "buffer=", "format=", "clear"]
        )
        given = dict(options)
        names = [v for k, v in options if k in ("-b", "--buffer")]
        buffers = {part for name in names for part in name.split(",")} or {"default"}
        show = formatter(v for k, v in options if k in ("-v", "--format"))
        wanted = LogFilter(words, silent="-s" in given)
        limit = given.get("-t", given.get("-T"))
        since = None if limit is None else parse_since(limit, time.time())
        pattern = re.compile(given["-e"]) if "-e" in given else None
        pid = int(given["--pid"]) if "--pid" in given else None
        most = int(given["-m"]) if "-m" in given else None
    except (getopt.GetoptError, ValueError, re.error) as error:
        print(f"logcat: {error}\n{_USAGE}", file=sys.stderr)
        return 1
    if given.keys() & {"-h", "--help"}:
        print(_USAGE)
        return 0
    ours = bool(buffers & _OUR_BUFFERS)
    if given.keys() & {"-c", "--clear"}:
        if ours:
            open(path, "wb").close()
        return 0
    if given.keys() & {"-g", "-G"}:
        used = os.path.getsize(path) if os.path.exists(path) else 0
        print(f"main: ring buffer is 1 MiB ({used} B consumed), max entry is {MAX_LINE_BYTES} B")
        return 0
    if not ours:
        return 0
    follow = not given.keys() & {"-d", "-t"}

    def admitted(entries: Iterable[LoggedLine]) -> Iterator[LoggedLine]:
        for entry in entries:
            if (
                wanted.admits(entry)
                and (pattern is None or pattern.search(entry.message))
                and (pid is None or entry.pid == pid)
                and not (isinstance(since, float) and entry.seconds < since)
            ):
                yield entry

    skipped = 0
    if isinstance(since, int):
        skipped = max(0, sum(1 for _ in admitted(_stored(path, follow=False))) - since)
    for number, entry in enumerate(admitted(_stored(path, follow))):
        if number == skipped:
            print("--------- beginning of main")
        if number >= skipped:
            print(show(entry))
        if most is not None and number - skipped + 1 >= most:
            break
    return 0


def log(path: str, arguments: list[str]) -> int:
    """The program `log`; returns its exit code."""
    try:
        options, words = getopt.getopt(arguments, "p:t:")
        given = dict(options)
        priority = given.get("-p", "i").upper()[:1]
        if priority not in PRIORITIES[:-1] or not priority:
            raise ValueError(f"bad -p '{given['-p']}'")
    except (getopt.GetoptError, ValueError) as error:
        print(f"log: {error}", file=sys.stderr)
        return 1
    text = " ".join(words) if words else sys.stdin.read()
    tag = given.get("-t", "log")
    for entry in entries_of(priority, tag, text, pid=os.getppid(), seconds=time.time()):
        append(Path(path), [entry])
    return 0


def main(arguments: list[str]) -> int:
    """Runs `log` or `logcat`: the program's name, the log file, then its own arguments."""
    program, path, *rest = arguments
    try:
        return {"log": log, "logcat": logcat}[program](path, rest)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
