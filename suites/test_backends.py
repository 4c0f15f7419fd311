"""One network on every backend: is it opened, which nodes does it take, how close is what it gives?

The subject of microsoft/onnxruntime#24004: a float32 MobileNet-v2 whose nodes were all taken by the
GPU backend and failed there, and its 8-bit twin, which that backend must refuse.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

MODELS = [Model("mobilenet-v2"), Model("mobilenet-v2-8bit")]


@pytest.mark.device(backend=("htp", "gpu", "cpu"), engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_backend(bench: Bench, model: Model) -> None:
    """Opened, every node taken, loaded, executed, close to ORT on the CPU; or where it ended."""
    experiments.measure_backend(bench, model)


@pytest.mark.takes_contexts("model")
@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_context(bench: Bench, model: Model) -> None:
    """The same as a context binary, through QNN alone."""
    experiments.measure_context(bench, model)
