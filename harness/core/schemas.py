"""The refusal of a file that another version of the harness wrote (pure)."""

from __future__ import annotations

import reprlib
from typing import Final

OTHER_SCHEMA: Final = "is of schema "


def other_schema(schema: object, known: int) -> str:
    """Describe a `schema` other than the `known` one, and what to do.

    A `schema` that is not an integer is damage: no version of the harness wrote it.
    """
    reads = f"this version reads schema {known}"
    if type(schema) is not int:  # true is one for isinstance
        return f"is damaged: its schema is {reprlib.repr(schema)[:40]}, which is no number; {reads}"
    advice = ": a newer qnn-harness wrote it, so update this one" if schema > known else ""
    return f"{OTHER_SCHEMA}{str(schema)[:20]}; {reads}{advice}"
