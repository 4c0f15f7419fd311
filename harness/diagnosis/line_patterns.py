"""Patterns of lines in logs, by kind, from `line_patterns.tsv` (pure).

`component`, `phase`, `call` and `step` tell the place of a failure; a `program` or a `neighbour`
names the component of a line after it that does not, as a `frame` does after a crash. A line of the
linker or the kernel counts if it is `ours`. `failure` and `crash` are words of a failure, in a line
of any program; `loud` is the level of an error, `quiet` one below it, and `no failure` a part of a
line that has such words. A `benign` line looks like an error and is none; its name is the reason
why it is logged. An `echo` is a command in a log, which is no message even if it has the words of
one.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files


@cache
def patterns_of(kind: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the names and patterns of a kind."""
    text = files("harness.diagnosis").joinpath("line_patterns.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return tuple((name, re.compile(pattern)) for of, name, pattern in rows if of == kind)


def only_pattern(kind: str) -> re.Pattern[str]:
    """Return the pattern of a kind that has one."""
    ((_, pattern),) = patterns_of(kind)
    return pattern


def first_name(kind: str, text: str) -> str | None:
    """Return the name of the first pattern of a kind that matches."""
    return next((name for name, pattern in patterns_of(kind) if pattern.search(text)), None)
