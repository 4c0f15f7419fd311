"""What to say of a file that another version of the harness wrote (pure)."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Final

OTHER_SCHEMA: Final = "is of schema "


def other_schema(said: object, read: Sequence[int]) -> str:
    """Says that the `schema` of a file is none of those that are `read`, and what to do.

    A `schema` that is no number is damage: no version of the harness wrote it.
    """
    reads = f"this version reads schema {' and '.join(map(str, read))}"
    if type(said) is not int:  # true is one for isinstance
        return f"is damaged: its schema is {reprlib.repr(said)[:40]}, which is no number; {reads}"
    advice = ": a newer qnn-harness wrote it, so update this one" if said > max(read) else ""
    return f"{OTHER_SCHEMA}{str(said)[:20]}; {reads}{advice}"
