"""The options that a run's command gives: its lab; inputs, expected outputs, limits (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_OPTIONS: Final = ("inputs", "expected", "limit", "residency")
_LAB: Final = "lab"
_KEYS: Final = ("graph", "reference", "fallback", "context-option")
LIMITS: Final = ("tolerance", "max-error", "min-cosine", "min-sqnr")
_OPTION: Final = re.compile(
    rf"--(?:qnn-)?({'|'.join((*_OPTIONS, *_KEYS, _LAB))})(?:=(.*))?"
    r"|(?:qnn_(graph|reference|fallback|context_option)=(.*))",
    re.S,
)


def _options_in(command: object) -> Iterator[tuple[str, str]]:
    words = iter([str(word) for word in command] if isinstance(command, list | tuple) else ())
    for word in words:
        if (named := _OPTION.fullmatch(word)) is None:
            continue
        if named[1] is None:
            yield named[3].replace("_", "-"), named[4]
        else:
            yield named[1], next(words, "") if named[2] is None else named[2]


def lab_in(command: object) -> str:
    """Return the last --lab of a run's command; empty without one."""
    return dict(_options_in(command)).get(_LAB, "")


def file_options_in(command: object) -> dict[str, str]:
    """Return the values of these options by name, in the spelling of `run` or pytest.

    Each limit, and the size of a `window`, has a name of its own. `command` is that of run.json;
    empty if it is no list.
    """
    options: dict[str, str] = {}
    for name, value in _options_in(command):
        if name in ("limit", "residency"):
            parts = (part.strip().partition("=") for part in value.split(","))
            named_parts = {key: text for key, equals, text in parts if equals}
            options |= {
                key: text for key, text in named_parts.items() if key in (*LIMITS, "window")
            }
        elif name != _LAB:
            repeats = name == "context-option" and name in options
            options[name] = f"{options[name]},{value}" if repeats else value
    return options


def pytest_options(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the same options as pytest spells them."""
    for name, value in options.items():
        if name in _KEYS:
            yield from ("-o", f"qnn_{name.replace('-', '_')}={value}")
        elif name == "window":
            yield f"--qnn-residency=window={value}"
        else:
            yield f"--qnn-limit={name}={value}" if name in LIMITS else f"--qnn-{name}={value}"
