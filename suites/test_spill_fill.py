"""Whether contexts can share one spill-fill buffer, and what that saves.

The subject of microsoft/onnxruntime#22853: the buffer is as large as the first context asks for, so
the order of loading decides whether all of them fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from harness.bench import Bench
from harness.bench_memory import measure_sharing, planned_sharing
from harness.contexts.compile import Context
from harness.contexts.models import ModelSpec
from harness.contexts.spill_fill import STRATEGIES, Strategy, release_orders, spill_fill_bytes

# Wanted in this order: the second needs more than the first.
CONTEXTS = (
    ModelSpec("spill-heavy", 2),
    ModelSpec("spill-heavy", 3),
    ModelSpec("spill-heavy", 2, 1),
)
ORT = [ModelSpec("spill-heavy", size, prepare="spill-fill") for size in (2, 3)]
MEMORY_PART = 0.1


def plan(contexts: Sequence[Context], parameters: Mapping[str, object]) -> list[str]:
    """What --plan says of a strategy."""
    return planned_sharing(contexts, parameters["strategy"])  # type: ignore[arg-type]


@pytest.mark.planned(says=plan)
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("contexts", [CONTEXTS], ids=["spill-heavy"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_spill_fill(bench: Bench, strategy: Strategy, contexts: tuple[ModelSpec, ...]) -> None:
    """Sharing saves what it promises, changes no output, and any context may go first."""
    shares = strategy in ("max", "list-async")
    orders = release_orders(len(contexts)) if shares else [range(len(contexts))]
    measure_sharing(bench, contexts, strategy, orders, memory_part=MEMORY_PART)


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("context", ORT, ids=str)
def test_ort_max_size(bench: Bench, context: ModelSpec) -> None:
    """ORT's EPContext model states the size that the binary's own metadata has, and it runs."""
    (deployed,) = bench.contexts(context)
    stated, needed = deployed.context.max_size, spill_fill_bytes(deployed.context.metadata)
    bench.measure(max_size_bytes=stated, spill_fill_bytes=needed)
    bench.run_contexts([context], 1, "resident").check()
    assert needed > 0, "the binary needs no spill-fill buffer, so that nothing is compared"
    assert stated == needed, f"max_size is {stated}, the binary needs {needed} bytes"
