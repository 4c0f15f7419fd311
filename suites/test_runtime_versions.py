"""Compatibility of versions: contexts of each compiler, and each ONNX Runtime, on each runtime.

`--qnn`, `--compiler` and `--ort` select them; without `--compiler` every runtime gets the contexts
of all selected runtimes. The result is a grid at the end of the run.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model

MODEL = [Model("tiny")]


@pytest.mark.user_contexts("model")
@pytest.mark.device(backend="htp", compilers="all")
@pytest.mark.parametrize("model", MODEL, ids=str)
def test_compiler_and_runtime(bench: Bench, model: Model) -> None:
    """Load a context of a compiler with a runtime, with the right outputs."""
    bench.grid("compiler", "qnn")
    bench.resident(model).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", MODEL, ids=str)
def test_ort_and_runtime(bench: Bench, model: Model) -> None:
    """Create a session of an ORT version with a runtime, with the right outputs."""
    bench.grid("ort", "qnn")
    ort, deployed = bench.ort(), bench.model(model)
    steps = (*ort.session(0, deployed.file), ort.run(0, deployed))
    bench.run(ort.plan(steps, sessions=1)).check()
