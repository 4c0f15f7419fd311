"""Values that may be anything that is JSON and that every reader of JSON can hold (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Final

from pydantic import BeforeValidator, JsonValue

from harness.ground.files.bounded_json import INTEGERS, MAX_DEPTH
from harness.verdict.failure.error import clean_text

_MAX_DEPTH: Final = 20
WHOLE: Final = _MAX_DEPTH - MAX_DEPTH
"""The `depth` of what is a whole file, which may be nested as deep as it can be read."""
_MOST: Final = 10**300
_LISTS: Final = (list, tuple)
_AS_THEY_ARE: Final = frozenset({int, bool, type(None)})


def as_json(value: object, depth: int = 0) -> JsonValue:
    """A measured value as JSON has it.

    Tuples and arrays become lists, numpy's numbers plain ones, paths text; NaN and infinities,
    for which JSON has no number, become null, and integers beyond 64 bits floating numbers.
    Raises ValueError for anything else.
    """
    if type(value) is str and value.isascii():  # nearly all of a journal
        return value
    if type(value) is int:
        return _integer(value)
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, _LISTS):  # these and floats first: of them there are most
        if _AS_THEY_ARE.issuperset(map(type, value)):
            numbers = value if None not in value else [one for one in value if one is not None]
            if not numbers or (max(numbers) < INTEGERS and min(numbers) > -INTEGERS):
                return list(value)
        return [as_json(item, depth + 1) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath):
        return str(clean_text(str(value)))
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, Mapping):
        return {str(clean_text(str(key))): as_json(item, depth + 1) for key, item in value.items()}
    plain = getattr(value, "tolist", None)
    if callable(plain):
        return as_json(plain(), depth + 1)
    raise ValueError(f"JSON cannot hold a value of type {type(value).__name__}")


def _integer(value: int) -> int | float | None:
    if -INTEGERS < value < INTEGERS:
        return value
    return float(value) if -_MOST < value < _MOST else None


JsonObject = Annotated[dict[str, JsonValue], BeforeValidator(as_json)]


def whole_numbers(value: object) -> list[int]:
    """The whole numbers of a list that the probe told; none of what is no list."""
    return [one for one in value if type(one) is int] if isinstance(value, list) else []
