"""What to say of a file that another version of the harness wrote (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OTHER_SCHEMA: Final = "is of schema "


def other_schema(said: object, read: Sequence[int]) -> str:
    """That what a file has for `schema` is none of those that are `read`, and what to do."""
    newer = isinstance(said, int) and said > max(read)
    advice = ": a newer qnn-harness wrote it, so update this one" if newer else ""
    known = " and ".join(map(str, read))
    return f"{OTHER_SCHEMA}{str(said)[:20]}; this version reads schema {known}{advice}"
