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
from harness.results.judge_pairing import Tolerances

# The raw one comes first: every pairing is compared with it.
RAW = ModelSpec("io-heavy", 4)
PREPARED = [(RAW,), (RAW, ModelSpec("io-heavy", 4, prepare="memhandle"))]
TOLERANCES = Tolerances(memory_part=0.25, latency_part=0.25)


@pytest.mark.timed
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("execute", ["raw", "memhandle"])
@pytest.mark.parametrize("prepare", PREPARED, ids=["raw", "memhandle"])
def test_mem_type_pairing(bench: Bench, prepare: tuple[ModelSpec, ...], execute: str) -> None:
    """I/O is allocated and copied as documented, as fast as raw memory, with equal outputs."""
    *_, prepared = prepare
    pairing = Pairing.of(prepared.prepare, execute)
    measure_pairing(bench, prepared, RAW, pairing, TOLERANCES)
