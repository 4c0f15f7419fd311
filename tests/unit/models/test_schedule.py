"""The order of moves: nothing is used before it is loaded, and residency means what it says."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.models.source import RESIDENCIES, Move, Residency, schedule


def test_sequential_frees_one_before_the_next_is_loaded() -> None:
    assert schedule(2, "sequential").moves == (
        Move("load", 0),
        Move("execute", 0),
        Move("free", 0),
        Move("load", 1),
        Move("execute", 1),
    )


@given(st.integers(1, 80), st.sampled_from(RESIDENCIES), st.integers(1, 9))
def test_every_context_is_used_while_it_is_loaded(
    contexts: int, residency: Residency, window: int
) -> None:
    plan = schedule(contexts, residency, window)
    loaded: set[int] = set()
    peak = 0
    executed: list[int] = []
    for move in plan.moves:
        if move.verb == "load":
            assert move.context not in loaded
            loaded.add(move.context)
            peak = max(peak, len(loaded))
        elif move.verb == "execute":
            assert move.context in loaded
            executed.append(move.context)
        else:
            loaded.remove(move.context)
    assert executed == list(range(contexts))
    assert plan.frees == tuple(Move("free", number) for number in range(contexts))
    expected_peak = {"resident": contexts, "sequential": 1, "window": min(window, contexts)}
    assert peak == expected_peak[residency]


@pytest.mark.parametrize(("contexts", "window"), [(0, 4), (3, 0), (-1, 1)])
def test_nonsense_is_refused(contexts: int, window: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        schedule(contexts, "window", window)
