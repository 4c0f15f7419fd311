"""The options that a run's command gives for a file: inputs, expected outputs, limits (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_CONTEXTS: Final = ("inputs", "expected", "tolerance", "graph", "window")
_LIMITS: Final = ("max-error", "min-cosine", "min-sqnr", "reference", "fallback", "context-option")
_OPTION: Final = re.compile(
    rf"--(?:qnn-)?(?:contexts-)?({'|'.join((*_CONTEXTS, *_LIMITS))})(?:=(.*))?", re.S
)


def file_options_in(command: object) -> dict[str, str]:
    """Return the values of these options by name, in the spelling of `run` or pytest.

    `command` is that of run.json; empty if it is no list.
    """
    words = iter([str(word) for word in command] if isinstance(command, list | tuple) else ())
    options: dict[str, str] = {}
    for word in words:
        if (named := _OPTION.fullmatch(word)) is not None:
            name, value = named[1], named[2] if named[2] is not None else next(words, "")
            repeats = name == "context-option" and name in options
            options[name] = f"{options[name]},{value}" if repeats else value
    return options


def pytest_options(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the same options as pytest spells them."""
    for name, value in options.items():
        yield f"--qnn-{'contexts-' if name in _CONTEXTS else ''}{name}={value}"
