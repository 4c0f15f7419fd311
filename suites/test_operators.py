"""One operator each, in half precision, 8 and 16 bits: what a target calculates, and how exactly.

A network that is wrong tells neither where nor why; these are small enough to tell.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

MODELS = [Model(name) for name in experiments.OPERATORS]


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_operator(bench: Bench, model: Model) -> None:
    """As close to ONNX Runtime on the CPU as its arithmetic allows; the same on every device."""
    bench.grid("model", "device")
    bench.resident(model).check()
