"""Remedies for contexts that do not all fit: loaded in another way, does each load and execute?

The second half of test_context_count.py: 66 contexts, as in pytorch/executorch#14985, and 230, more
than four protection domains hold. What a target does not support is `unsupported`. All of them
load. All execute if devices are named (`--device NAME`), but on an emulated DSP, where each
execution takes a second, only a few.
"""

from __future__ import annotations

from typing import Final

import pytest

from harness import Bench, Model, experiments

IO_HEAVY: Final = Model("io-heavy", 56)
WORKLOADS: Final = {
    "spill-fill": Model("spill-heavy", 2),
    "weight-sharing": (IO_HEAVY, Model("io-heavy", 56, 1)),
}
WINDOW: Final = 8
MOST_EXECUTED: Final = 16
MOST_EXECUTED_EMULATED: Final = 4


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("contexts", [66, 230])
@pytest.mark.parametrize("remedy", experiments.REMEDIES)
def test_context_remedies(
    bench: Bench, remedy: str, contexts: int, pytestconfig: pytest.Config
) -> None:
    """Load contexts by a remedy, execute them, and compare outputs with those one after another."""
    bench.grid("remedy", "contexts")
    workload = WORKLOADS.get(remedy, IO_HEAVY)
    most = None if pytestconfig.getoption("--device") else MOST_EXECUTED
    if bench.device.simulated_dsp is not None:
        most = MOST_EXECUTED_EMULATED
    experiments.try_remedy(bench, remedy, workload, contexts, window=WINDOW, most_executed=most)
