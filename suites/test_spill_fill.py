"""Sharing of one spill-fill buffer by contexts, and the memory it saves.

The subject of microsoft/onnxruntime#22853: the first context sets the size of the buffer, so the
order of loading decides whether all of them fit.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

# In this order the second needs more than the first.
CONTEXTS = (
    Model("spill-heavy", 2),
    Model("spill-heavy", 3),
    Model("spill-heavy", 2, 1),
)
ORT = [Model("spill-heavy", size, prepare="spill-fill") for size in (2, 3)]
MEMORY_PART = 0.1


@pytest.mark.user_contexts("contexts")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("contexts", [CONTEXTS], ids=["spill-heavy"])
@pytest.mark.parametrize("strategy", experiments.STRATEGIES)
def test_spill_fill(bench: Bench, strategy: str, contexts: tuple[Model, ...]) -> None:
    """Check that sharing saves memory, changes no output, and allows any order of release."""
    bench.grid("strategy", "device")
    shares = strategy in ("max", "list-async")
    orders = experiments.release_orders(len(contexts)) if shares else [range(len(contexts))]
    if bench.device.simulated_dsp is not None:  # slow: only one, in which the largest goes first
        orders = orders[len(orders) // 2 :][:1]
    experiments.measure_sharing(bench, contexts, strategy, orders, memory_part=MEMORY_PART)


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("context", ORT, ids=str)
def test_ort_max_size(bench: Bench, context: Model) -> None:
    """Compare the size in ORT's EPContext model with the binary's metadata, and run it."""
    (deployed,) = bench.contexts(context)
    stated = deployed.context.max_size
    needed = experiments.spill_fill_bytes(deployed.context.metadata)
    bench.measure(max_size_bytes=stated, spill_fill_bytes=needed)
    bench.resident(context).check()
    assert needed > 0, "the binary needs no spill-fill buffer, so that nothing is compared"
    assert stated == needed, f"max_size is {stated}, the binary needs {needed} bytes"
