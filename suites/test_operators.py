"""Single operators in half precision, 8 and 16 bits: the accuracy of a target.

A wrong network shows neither where nor why; these are small enough to do so.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

MODELS = [Model(name) for name in experiments.OPERATORS]


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_operator(bench: Bench, model: Model) -> None:
    """Compare with ONNX Runtime on the CPU, within the limits of the arithmetic."""
    bench.grid("model", "device")
    bench.resident(model).check()
