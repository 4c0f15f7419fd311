"""Questions to devices, and parsers of their answers, which are not trusted (pure).

`device_queries.sh` is the table of questions; `query_script` makes one script of several, so that
they take one round trip.

A section of an answer begins after a line of `PREFIX` and its name, and ends at the next one. For
sections with untrusted text, such as a log, a random token precedes the name. Such a section ends
with a line break that is not part of it and the name `=`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import Final

PREFIX: Final = "@qnn-harness:"
"""The beginning of each output line that is meant for the harness, here of a section's heading."""
MAX_PATH: Final = 200
_MAX_LISTED: Final = 64
_FREE_BLOCKS: Final = re.compile(r"\bfree (\d{1,18}) (\d{1,9})\s*\Z", re.ASCII)


def query_script(names: str, **words: str) -> str:
    """Return a script that asks the questions of these names, which are separated by blanks.

    Its answer has a section for each, and `end` as the last one. $1 is the work folder, $2 a prefix
    of every path on the device (empty but in tests). `words` are shell variables that single
    questions use.
    """
    table = _table()
    assignments = [f"{name}={shlex.quote(value)}\n" for name, value in words.items()]
    questions = [f'echo "${{m}}{name}"\n{table[name]}' for name in names.split()]
    return "".join((table[""], *assignments, *questions, 'echo "${m}end"\n'))


@cache
def _table() -> dict[str, str]:
    before, *parts = re.split(r"^#: (.*)\n", shell_text("transport", "device_queries"), flags=re.M)
    return {"": before} | dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def shell_text(package: str, name: str) -> str:
    """Return a package's shell script for a device: without comments and indentation."""
    text = files(f"harness.{package}").joinpath(f"{name}.sh").read_text("ascii")
    return re.sub(r"^ *#[^:\n].*\n|^ +|^\n", "", text, flags=re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """One section of an answer; `whole` unless the answer ended within it."""

    content: bytes
    whole: bool


def split_sections(answer: bytes, token: str) -> dict[str, Section]:
    """Return the sections of an answer by name, as far as it arrived; `token` may be empty."""
    before = f"{PREFIX}{token} " if token else PREFIX
    mark = re.compile(rb"(?:\A|\n)" + re.escape(before.encode()) + rb"([^\n]{0,200})(?=\n)")
    sections: dict[str, Section] = {}
    marks = list(mark.finditer(answer))
    for match, following in zip_longest(marks, marks[1:]):
        name = match[1].decode("utf-8", "replace")
        if name != "=":
            content = answer[match.end() + 1 : following.start() if following else None]
            sections[name] = Section(content, whole=following is not None)
    return sections


def parse_sections(text: str) -> dict[str, list[str]]:
    """Return {name: stripped lines, without empty ones} of an answer without a token."""
    lines = text.replace("\r\n", "\n") + "\n"
    sections = split_sections(lines.encode("utf-8", "replace"), "")
    return {
        name.strip(): [
            line.strip() for line in section.content.decode().split("\n") if line.strip()
        ]
        for name, section in sections.items()
    }


def first_line(sections: Mapping[str, list[str]], name: str) -> str | None:
    """Return the first line of a section, at most 200 characters; None if there is none."""
    return (sections.get(name) or [""])[0][:200] or None


def integer(text: str | None) -> int | None:
    """Parse a plain decimal number of at most 18 digits; None for other text."""
    return int(text) if text and re.fullmatch(r"\d{1,18}", text) else None


def free_storage(lines: list[str]) -> int | None:
    """Return the free bytes by `df -k` of one folder, followed by `stat -f -c 'free %a %S'`.

    The smaller number counts: for root, toybox's df includes the blocks reserved for the system,
    and only df knows a simulated device's limit.
    """
    text = " ".join(lines[1:])
    match = _FREE_BLOCKS.search(text)
    free = [int(match[1]) * int(match[2])] if match else []
    # some df break a row with a long device name in two: the numbers are counted from the right
    fields = text.split()
    for index in range(len(fields) - 1, 2, -1):
        # negative where only root may still write
        if re.fullmatch(r"\d{1,3}%", fields[index]) and re.fullmatch(
            r"-?\d{1,18}", fields[index - 1], re.ASCII
        ):
            free.append(max(0, int(fields[index - 1])) * 1024)
            break
    return min(free, default=None)


def memory(sections: Mapping[str, list[str]], name: str) -> int | None:
    """Return the bytes in a line of /proc/meminfo, e.g. MemTotal."""
    match = re.search(rf"^{name}: +(\d{{1,15}}) kB$", "\n".join(sections.get("memory", [])), re.M)
    return int(match[1]) * 1024 if match else None


def parse_boot_id(sections: Mapping[str, list[str]]) -> str | None:
    """Return the identifier of a device's current boot."""
    return " ".join(sections.get("boot", []))[:200] or None


def parse_access(sections: Mapping[str, list[str]], name: str) -> dict[str, str]:
    """Return {path: "r", "w", "rw" or ""} of a section: whether it may be read and written."""
    access = {}
    for line in sections.get(name, [])[:_MAX_LISTED]:
        rights, _, path = line.partition(" ")
        if re.fullmatch(r"-|-?r?w?", rights) and path:
            access[path[:MAX_PATH]] = rights.lstrip("-")
    return access
