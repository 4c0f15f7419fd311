"""Texts that a user hands in: read whole, and never more than they may have."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ConfigError


def read_text(path: Path, *, most_bytes: int, what: str) -> str:
    """The text of a file; what is no UTF-8 in it becomes question marks.

    Raises ConfigError naming the file if it cannot be read, or is too long for `what` it should be.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    if len(data) > most_bytes:
        raise ConfigError(f"is too long for {what}", file=path)
    return data.decode("utf-8", "replace")
