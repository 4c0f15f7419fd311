"""Pairings of memory types: prepared raw or for memory handles, executed with either.

For each pairing the QNN documentation promises when its I/O is allocated, whether it is copied, and
that the preparation changes memory but not latency. Each promise is a check.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

MODELS = (Model("io-heavy", 4), Model("io-heavy", 4, prepare="memhandle"))
MEMORIES = ["raw", "memhandle"]
TOLERANCES = experiments.Tolerances(memory_part=0.25, latency_part=0.25)


@pytest.mark.user_contexts("models")
@pytest.mark.wait_until_idle
@pytest.mark.device
@pytest.mark.parametrize("execute", MEMORIES)
@pytest.mark.parametrize("prepare", MEMORIES)
@pytest.mark.parametrize("models", [MODELS], ids=["io-heavy"])
def test_mem_type_pairing(
    bench: Bench, models: tuple[Model, ...], prepare: str, execute: str
) -> None:
    """Check allocation and copies of I/O, and that the other preparation is as fast and equal."""
    bench.grid("prepare", "device")
    by_memory = experiments.by_memory(bench, models)
    if prepare not in by_memory:
        pytest.skip(f"no context of {models} is prepared for {prepare}")
    pairing = experiments.Pairing(prepare, execute)
    experiments.measure_pairing(bench, by_memory, pairing, TOLERANCES)
