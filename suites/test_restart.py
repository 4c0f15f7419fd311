"""A DSP that restarts during a run: the error codes, what survives, and the recovery."""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

CONTEXTS = [Model("io-heavy", 2)]


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_restart(bench: Bench, context: Model) -> None:
    """Check that an execution fails with a code, no output is wrong, and a new context runs."""
    experiments.measure_restart(bench, context)
