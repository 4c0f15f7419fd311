"""What devices are asked, and how an answer is cut into its parts and read without trust (pure).

`questions.sh` is the table of questions; `script_of` makes a script of those that somebody needs,
so that all of them take one round trip.

A part of an answer begins behind a line of `PREFIX` and its name, and ends at the next one. If it
holds what anybody may have written, such as a log, a token that nobody can guess stands before the
name. Such a part ends with a line break that is not its own and the name `=`.
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
"""What begins each line of a script that is meant for us; here, the one in front of a part."""
MAX_PATH: Final = 200
_MAX_LISTED: Final = 64
_FREE_BLOCKS: Final = re.compile(r"\bfree (\d{1,18}) (\d{1,9})\s*\Z", re.ASCII)


def script_of(names: str, **words: str) -> str:
    """A script that asks these questions, whose names stand behind each other.

    Its answer has a part for each, and last the part `end`. $1 is the work folder, $2 stands before
    every path of the device (empty but in tests). `words` are variables of the shell that single
    questions use.
    """
    table = _table()
    given = [f"{name}={shlex.quote(value)}\n" for name, value in words.items()]
    asked = [f'echo "${{m}}{name}"\n{table[name]}' for name in names.split()]
    return "".join((table[""], *given, *asked, 'echo "${m}end"\n'))


@cache
def _table() -> dict[str, str]:
    before, *parts = re.split(r"^#: (.*)\n", shell_text("transport", "questions"), flags=re.M)
    return {"": before} | dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def shell_text(package: str, name: str) -> str:
    """A script of a package as a device gets it: without comments and what begins its lines."""
    text = files(f"harness.{package}").joinpath(f"{name}.sh").read_text("ascii")
    return re.sub(r"^ *#[^:\n].*\n|^ +|^\n", "", text, flags=re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """One part of an answer; `whole` unless the answer ended within it."""

    content: bytes
    whole: bool


def sections_with(answer: bytes, token: str) -> dict[str, Section]:
    """The parts of an answer by name, as far as it came; `token` may be empty."""
    before = f"{PREFIX}{token} " if token else PREFIX
    mark = re.compile(rb"(?:\A|\n)" + re.escape(before.encode()) + rb"([^\n]{0,200})(?=\n)")
    sections: dict[str, Section] = {}
    marks = list(mark.finditer(answer))
    for found, following in zip_longest(marks, marks[1:]):
        name = found[1].decode("utf-8", "replace")
        if name != "=":
            content = answer[found.end() + 1 : following.start() if following else None]
            sections[name] = Section(content, whole=following is not None)
    return sections


def sections_of(text: str) -> dict[str, list[str]]:
    """{name: its lines, stripped, without empty ones} of an answer whose parts have no token."""
    lines = text.replace("\r\n", "\n") + "\n"
    found = sections_with(lines.encode("utf-8", "replace"), "")
    return {
        name.strip(): [
            line.strip() for line in section.content.decode().split("\n") if line.strip()
        ]
        for name, section in found.items()
    }


def first_line(sections: Mapping[str, list[str]], name: str) -> str | None:
    """The first line of a part, at most 200 characters; None if there is none."""
    return (sections.get(name) or [""])[0][:200] or None


def integer(text: str | None) -> int | None:
    """A plain decimal number of at most 18 digits, else None."""
    return int(text) if text and re.fullmatch(r"\d{1,18}", text) else None


def free_storage(lines: list[str]) -> int | None:
    """Bytes free as `df -k` says for one folder, and behind it `stat -f -c 'free %a %S'`.

    The smaller one holds: to root, toybox's df gives what is kept back for the system, too, and a
    simulated device's limit is known to its df only.
    """
    text = " ".join(lines[1:])
    told = _FREE_BLOCKS.search(text)
    free = [int(told[1]) * int(told[2])] if told else []
    # Long device names make some df break a row in two: the numbers are found from the right.
    fields = text.split()
    for index in range(len(fields) - 1, 2, -1):
        # what is left can be less than nothing, where root may write on
        if re.fullmatch(r"\d{1,3}%", fields[index]) and re.fullmatch(
            r"-?\d{1,18}", fields[index - 1], re.ASCII
        ):
            free.append(max(0, int(fields[index - 1])) * 1024)
            break
    return min(free, default=None)


def memory(sections: Mapping[str, list[str]], name: str) -> int | None:
    """Bytes that a line of /proc/meminfo tells, e.g. MemTotal."""
    found = re.search(rf"^{name}: +(\d{{1,15}}) kB$", "\n".join(sections.get("memory", [])), re.M)
    return int(found[1]) * 1024 if found else None


def boot_of(sections: Mapping[str, list[str]]) -> str | None:
    """What names a device's present boot."""
    return " ".join(sections.get("boot", []))[:200] or None


def access_of(sections: Mapping[str, list[str]], name: str) -> dict[str, str]:
    """{path: whether it may be read (r) and written (w)} of a part."""
    found = {}
    for line in sections.get(name, [])[:_MAX_LISTED]:
        how, _, path = line.partition(" ")
        if re.fullmatch(r"-|-?r?w?", how) and path:
            found[path[:MAX_PATH]] = how.lstrip("-")
    return found
