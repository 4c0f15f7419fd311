"""Values that become JSON: what stays, what changes, and where it ends."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

from harness.results.record import as_json


class Number(IntEnum):
    SEVEN = 7


class Odd:
    """An object whose `tolist` returns no list."""

    def tolist(self) -> Odd:
        return self


class Boxed:
    """An object that becomes the value in it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def tolist(self) -> object:
        return self._value


class Marked(str):
    """A text of another type."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (False, False),
        (0, 0),
        (Number.SEVEN, 7),
        ("a", "a"),
        ("\ud800 \u00fc", "? \u00fc"),
        (Marked("\udfff"), "?"),
        (PurePosixPath("/x"), "/x"),
        (1.5, 1.5),
        (np.float64(2.5), 2.5),
        (np.bool_(True), True),
        (float("-inf"), None),
        # counters of 64 bits stay, and what floating numbers hold becomes one
        (2**64 - 1, 2**64 - 1),
        (2**64, 2.0**64),
        (-(2**64), -(2.0**64)),
        (1 - 2**64, 1 - 2**64),
        (10**300 - 1, 1e300),
        (1 - 10**300, -1e300),
        (10**300, None),
        (-(10**300), None),
        ([], []),
        ((), []),
        ([None], [None]),
        ([None, 3, True], [None, 3, True]),
        ((1, 2), [1, 2]),
        ([0, 2**64], [0, 2.0**64]),
        ([None, -(2**64), 0], [None, -(2.0**64), 0]),
        ([2**64 - 1, 1 - 2**64], [2**64 - 1, 1 - 2**64]),
        ([1, "\ud800"], [1, "?"]),
        ([float("nan"), 1.5], [None, 1.5]),
        (OrderedDict({3: (1,), "\ud800": 2**64}), {"3": [1], "?": 2.0**64}),
        (np.array([[1.0, np.inf]]), [[1.0, None]]),
    ],
)
def test_a_measured_value_becomes_json(value: object, expected: object) -> None:
    converted = as_json(value)
    assert converted == expected
    assert json.dumps(converted, allow_nan=False) == json.dumps(expected)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, [object()]])
def test_what_json_cannot_hold_is_named(value: object) -> None:
    inner = value[0] if isinstance(value, list) else value
    with pytest.raises(
        ValueError, match=f"JSON cannot hold a value of type {type(inner).__name__}$"
    ):
        as_json(value)


def nested(depth: int, wrap: Any) -> object:
    value: object = "\u00fc"
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, Boxed])
def test_values_are_nested_twenty_levels_deep_at_most(wrap: Any) -> None:
    assert as_json(nested(20, wrap)) == ("\u00fc" if wrap is Boxed else nested(20, wrap))
    with pytest.raises(ValueError, match="nested deeper than 20 levels"):
        as_json(nested(21, wrap))


def test_what_is_its_own_list_comes_to_an_end() -> None:
    with pytest.raises(ValueError, match="nested deeper than 20 levels"):
        as_json(Odd())
    with pytest.raises(ValueError, match="JSON cannot hold a value of type Listed"):
        as_json(type("Listed", (), {"tolist": 7})())
