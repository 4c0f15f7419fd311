"""What the command of a run asked of a file: inputs, expected outputs and limits (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_CONTEXTS: Final = ("inputs", "expected", "tolerance", "graph")
_LIMITS: Final = ("max-error", "min-cosine", "min-sqnr", "reference", "fallback")
_OPTION: Final = re.compile(
    rf"--(?:qnn-)?(?:contexts-)?({'|'.join((*_CONTEXTS, *_LIMITS))})(?:=(.*))?", re.S
)


def asked_of_files(command: object) -> dict[str, str]:
    """What was said by options, {name: value}; `run` and pytest have other names for the same.

    `command` is that of run.json; nothing is told of one that is no list of words.
    """
    words = iter([str(word) for word in command] if isinstance(command, list | tuple) else ())
    found = {}
    for word in words:
        if (named := _OPTION.fullmatch(word)) is not None:
            found[named[1]] = named[2] if named[2] is not None else next(words, "")
    return found


def for_pytest(asked: Mapping[str, str]) -> Iterator[str]:
    """The options by which pytest is asked the same."""
    for name, value in asked.items():
        yield f"--qnn-{'contexts-' if name in _CONTEXTS else ''}{name}={value}"
