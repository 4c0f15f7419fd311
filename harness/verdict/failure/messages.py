"""What messages of libraries and drivers tell of a cause by themselves: a table, reviewed by hand.

`messages.tsv` has parts of messages as they stand in the libraries and in their sources, whatever
thread knows them (`*` is anything short), and what each tells: `known` states a cause,
`consequence` follows from one of several, `benign` is nothing wrong. A cause is a rule's id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Final

_GAP: Final = ".{0,80}?"
_ROLES: Final = ("known", "consequence", "benign")


def read_messages(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The patterns of a table by role and cause, as they stand there; benign ones have no cause.

    Raises ValueError where a row has not three columns, or an unknown role.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines()[1:], 2):
        columns = line.split("\t")
        if len(columns) != 3 or columns[1] not in _ROLES:
            raise ValueError(f"messages.tsv:{number}: no pattern with role and cause: {line!r}")
        found[columns[1], columns[2]].append(columns[0])
    return {key: tuple(patterns) for key, patterns in found.items()}


@cache
def message_table() -> dict[tuple[str, str], tuple[str, ...]]:
    """The patterns of the project's table."""
    text = files("harness.verdict.failure").joinpath("messages.tsv").read_text("utf-8")
    return read_messages(text)


@cache
def messages_of(role: str, cause: str = "") -> str:
    """A regular expression for all messages that tell this; empty where there are none."""
    patterns = message_table().get((role, cause), ())
    return "|".join(_GAP.join(map(re.escape, one.split("*"))) for one in patterns)
