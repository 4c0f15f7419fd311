"""One network on every backend: opening it, the nodes it supports, the accuracy of its outputs.

The subject of microsoft/onnxruntime#24004: a float32 MobileNet-v2 whose nodes the GPU backend all
accepted and then failed, and its 8-bit twin, which that backend must refuse.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

MODELS = [Model("mobilenet-v2"), Model("mobilenet-v2-8bit")]


@pytest.mark.device(backend=("htp", "gpu", "cpu"), engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_backend(bench: Bench, model: Model) -> None:
    """Open, assign all nodes, load, execute, compare with ORT on the CPU; or name the failure."""
    experiments.measure_backend(bench, model)


@pytest.mark.user_contexts("model")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_context(bench: Bench, model: Model) -> None:
    """Run the same as a context binary, with QNN alone."""
    experiments.measure_context(bench, model)
