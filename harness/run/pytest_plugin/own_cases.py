"""The cases of a file of a user's: of each engine the test that `ArtefactFile` collects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.contexts import SourceList, WholeFile
    from harness.run.bench import Bench


@pytest.mark.device
def test_contexts(bench: Bench, workload: SourceList, residency: str, contexts: int) -> None:
    """All contexts load, execute and free, one process a case, with the outputs expected."""
    if workload.empty_caches:
        from harness.contexts.sources.artefact_sources import left_out

        bench.measure(empty_caches=list(workload.empty_caches))
        bench.conclude(left_out(workload.empty_caches))
    # a bundle is about one failure; its outputs are not what others are compared with
    seen = bench.run_contexts(workload, contexts, residency, keep_outputs=workload.plan is None)
    expects, error = workload.expects, seen.verdict.error
    if expects is not None:
        again = expects.met_by(seen.verdict.outcome, error.signature if error else None)
        bench.measure(came_again=again)
        bench.conclude(f"what was packed {'came again' if again else 'did not come'}: {expects}")
    seen.check()


@pytest.mark.device(engine="ort")
def test_session(bench: Bench, workload: WholeFile) -> None:
    """ONNX Runtime makes a session of a model, all on QNN, with the outputs that are expected."""
    given = workload.given
    bench.session(
        workload.path,
        inputs=given.inputs,
        expected=given.expected,
        tolerance=given.tolerance,
    ).check()


@pytest.mark.device(backend="htp", engine="executorch")
def test_program(bench: Bench, workload: WholeFile) -> None:
    """A .pte loads and executes in ExecuTorch, with the outputs that are expected."""
    given = workload.given
    bench.executorch(
        workload.path,
        method=given.graph or "forward",
        inputs=given.inputs,
        expected=given.expected,
        tolerance=given.tolerance,
    ).check()


@pytest.mark.device(backend="htp", engine="litert")
def test_model(bench: Bench, workload: WholeFile) -> None:
    """What LiteRT compiles of a .tflite runs, with the outputs that its CPU gives."""
    given = workload.given
    bench.litert(workload.path, inputs=given.inputs, tolerance=given.tolerance).check()
