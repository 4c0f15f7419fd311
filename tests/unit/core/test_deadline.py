"""Deadlines end, never go below zero, and can only be shortened."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, strategies as st

from harness.core.deadline import Deadline


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_a_deadline_must_come(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Deadline(seconds)


def test_it_passes() -> None:
    deadline = Deadline(0.01)
    assert not deadline.expired
    time.sleep(0.011)
    assert deadline.expired
    assert deadline.remaining() == 0.0


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_at_most_is_never_later(whole: float, part: float) -> None:
    deadline = Deadline(whole)
    assert deadline.at_most(part).remaining() <= min(deadline.seconds, part)
