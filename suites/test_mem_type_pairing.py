"""Whether memory types pair as documented: prepared raw or for memory handles, executed as either.

The QNN documentation promises of each pairing when its I/O is allocated, whether it is copied, and
that the way a context was prepared changes memory but not latency. Each promise is a check.
"""

from __future__ import annotations

import pytest

from harness.bench import Bench
from harness.bench_memory import measure_pairing
from harness.contexts.mem_pairing import Pairing
from harness.contexts.models import ModelSpec
from harness.probe.memory_steps import TENSOR_MEMORIES, TensorMemory
from harness.results.judge_latency import LatencyTolerance
from harness.results.judge_pairing import Tolerances

MODELS = (ModelSpec("io-heavy", 4), ModelSpec("io-heavy", 4, prepare="memhandle"))
TOLERANCES = Tolerances(memory_part=0.25, latency=LatencyTolerance(part=0.25))


@pytest.mark.timed
@pytest.mark.device
@pytest.mark.parametrize("execute", TENSOR_MEMORIES)
@pytest.mark.parametrize("prepare", TENSOR_MEMORIES)
@pytest.mark.parametrize("models", [MODELS], ids=["io-heavy"])
def test_mem_type_pairing(
    bench: Bench, models: tuple[ModelSpec, ...], prepare: TensorMemory, execute: TensorMemory
) -> None:
    """I/O is allocated and copied as documented; prepared otherwise it is as fast, and equal."""
    by_memory: dict[TensorMemory, ModelSpec] = dict(zip(TENSOR_MEMORIES, models, strict=True))
    measure_pairing(bench, by_memory, Pairing(prepare, execute), TOLERANCES)
