"""The cases of a user's file: one test for each engine, which `ArtefactFile` collects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.bench.case_session import TargetFailure
from harness.core.engine import Engine
from harness.core.matrix_axes import BACKENDS
from harness.experiments.accuracy import record_accuracy
from harness.experiments.context_remedies import try_remedy
from harness.experiments.profiling import profile_case
from harness.models.contexts import SourceList
from harness.models.onnx_model import OnnxModel
from harness.plugin.options import read_options
from harness.probe.plan import ONCE

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.containers.manifest import Expects
    from harness.diagnosis.verdict import Verdict
    from harness.models.artefact_sources import WholeFile


def window_of(config: pytest.Config) -> int:
    """Return the size of a window in `--residency window=N`."""
    return read_options(config).contexts.window


@pytest.mark.device
def test_contexts(
    bench: Bench, workload: SourceList, residency: str, contexts: int, pytestconfig: pytest.Config
) -> None:
    """Load, execute and free all contexts in one process, with the expected outputs."""
    # a bundle reproduces one failure: keep outputs only if that may be about them
    is_compared = any(source.expected for source in workload)
    keep_outputs = workload.plan is None or bool(workload.closeness) or is_compared
    rounds = workload.rounds if workload.plan is None else ONCE
    with _as_packed(bench, workload) as outcome:
        result = bench.run_contexts(
            workload,
            contexts,
            residency,
            window=window_of(pytestconfig),
            keep_outputs=keep_outputs,
            rounds=rounds,
            options=workload.context_options,
        )
        outcome.verdict = result.verdict
        if workload.not_run and result.verdict.outcome == "passed":
            bench.conclude(workload.not_run)
        record_accuracy(bench, result, workload)
    models = [source.path for source in workload if isinstance(source, OnnxModel)]
    profile_case(bench, result.run.plan, pytestconfig.getoption("--qnn-profile"), models)


@pytest.mark.device(backend="htp")
def test_remedy(
    bench: Bench, workload: SourceList, remedy: str, contexts: int, pytestconfig: pytest.Config
) -> None:
    """Load and execute all contexts by a remedy, and record what that takes."""
    is_alone = remedy == "weight-sharing" and len(workload) == 1
    sources = (*workload, *workload) if is_alone else workload
    try_remedy(bench, remedy, sources, contexts, window=window_of(pytestconfig))


@dataclass
class _Outcome:
    verdict: Verdict | None = None


@contextmanager
def _as_packed(bench: Bench, workload: SourceList) -> Iterator[_Outcome]:
    """Record whether a bundle ended as it did when it was packed."""
    outcome = _Outcome()
    try:
        yield outcome
    except TargetFailure as failure:
        outcome.verdict = failure.verdict
        raise
    finally:
        if outcome.verdict is not None and workload.expects is not None:
            _note_reproduction(bench, workload, workload.expects, outcome.verdict)


def _note_reproduction(
    bench: Bench, workload: SourceList, expects: Expects, verdict: Verdict
) -> None:
    error = verdict.error
    reproduced = expects.met_by(verdict.outcome, error.signature if error else None)
    bench.measure(came_again=reproduced)
    packed = workload.plan.qnn if workload.plan is not None else None
    outcome = "was reproduced" if reproduced else "was not reproduced"
    if packed and packed != bench.placement.qnn_version and not reproduced:
        outcome += f" (the bundle was packed with QNN {packed}; try --qnn {packed})"
    bench.conclude(
        f"the outcome in the bundle {outcome}: {expects.outcome if reproduced else expects}"
    )


def test_of(engine: Engine) -> Callable[..., None]:
    """Return the test that runs a file with an engine."""
    if engine.takes_contexts:
        return test_contexts

    def run_file(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
        profile = pytestconfig.getoption("--qnn-profile")
        with _as_packed(bench, workload) as outcome:
            result = engine.run(bench, workload.file_run)
            if result is not None:
                outcome.verdict = result.verdict
                record_accuracy(bench, result, workload)
        if profile is not None and result is not None:
            plan = engine.plan_to_profile(bench, workload, result)
            profile_case(bench, plan, profile, [workload.path] if engine.takes_models else ())

    run_file.__name__ = engine.test
    backends = {} if engine.backends == BACKENDS else {"backend": engine.backends}
    return pytest.mark.device(engine=engine.name, **backends)(run_file)
