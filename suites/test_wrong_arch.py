"""A context that was compiled for another HTP is refused by the load, or gives right outputs.

The code of a real DSP refuses it; the simulator for x86-64 does not check the architecture.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model

CONTEXTS = [Model("tiny", htp_arch=arch) for arch in (68, 69, 73, 75, 79)]
WRONG_ARCH = 5005


@pytest.mark.user_contexts("context")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_wrong_arch(bench: Bench, context: Model) -> None:
    """Load a context: it gives the right outputs, or is refused with 5005."""
    bench.grid("context", "device")
    result = bench.resident(context)
    failed = result.run.transcript.first_failure
    if failed is None or (failed.verb, failed.code) != ("context-load", WRONG_ARCH):
        result.check()
        return
    bench.accept_refusal()
    bench.conclude(f"a context for HTP v{context.htp_arch} is refused as it is loaded")
