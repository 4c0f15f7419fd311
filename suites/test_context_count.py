"""The number of context binaries that one process can hold, and the kind of that limit.

The subject of pytorch/executorch#14985: a model cut into 66 context binaries loads and runs one
after the other, and fails if all of them stay loaded.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

WORKLOADS = [Model("tiny"), Model("weights-heavy", 4), Model("io-heavy", 56)]
AROUND_THE_EDGE = [1, 8, 32, 50, 51, 66, 100]
RESIDENCIES = ["resident", "sequential", "window"]
SIZES = tuple(Model("io-heavy", megabytes) for megabytes in (56, 36, 22))
MOST_CONTEXTS = 200
MORE_THAN_FOUR_DOMAINS_HOLD = 256
MOST_LOADED_EMULATED = 60


@pytest.mark.user_contexts("workload")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("contexts", AROUND_THE_EDGE)
@pytest.mark.parametrize("residency", RESIDENCIES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_context_count(bench: Bench, workload: Model, residency: str, contexts: int) -> None:
    """Load all contexts, execute them with the reference's outputs, and free them."""
    bench.grid("contexts", "device")
    bench.run_contexts(workload, contexts, residency).check()


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("workload", WORKLOADS[-1:], ids=str)
def test_until_refused(bench: Bench, workload: Model) -> None:
    """Fill all protection domains; find the context that is refused, and run the others."""
    bench.grid("workload", "device")
    experiments.fill(bench, workload, most=MORE_THAN_FOUR_DOMAINS_HOLD)


@pytest.mark.user_contexts("workloads")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("workloads", [SIZES], ids=["io-heavy"])
def test_limit(bench: Bench, workloads: tuple[Model, ...]) -> None:
    """Find how many contexts of three sizes fit, and conclude the kind of limit."""
    emulated = bench.device.simulated_dsp is not None
    cap = MOST_LOADED_EMULATED if emulated else MOST_CONTEXTS
    limit, points = experiments.find_limit(bench, workloads, cap=cap)
    bench.conclude(str(limit))
    bench.measure(
        limit_kind=limit.kind,
        limit_reason=limit.reason,
        limit_count=limit.count,
        budget_bytes=limit.budget_bytes,
        budget_uncertainty_bytes=limit.uncertainty_bytes,
        sizes=[vars(point) for point in points],
    )
    assert limit.kind not in ("leak", "mixed"), limit.reason
