"""What slow work tells its user: progress on a terminal only, warnings always."""

from __future__ import annotations

import sys
from collections.abc import Callable

Say = Callable[[str], None]
"""Takes one line of text, without its end."""


def on_terminal(text: str) -> None:
    """Prints progress to stderr if somebody is looking, else nothing."""
    if sys.stderr.isatty():
        on_stderr(text)


def on_stderr(text: str) -> None:
    """Prints a line to stderr, whoever reads it."""
    print(f"qnn-harness: {text}", file=sys.stderr, flush=True)
