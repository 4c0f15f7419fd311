"""A DSP that restarts in mid-run: what is told of it, what survives, what can be had again."""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

CONTEXTS = [Model("io-heavy", 2)]


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_restart(bench: Bench, context: Model) -> None:
    """The execution fails with a code, no output is silently wrong, and a new context runs."""
    experiments.measure_restart(bench, context)
