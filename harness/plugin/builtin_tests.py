"""The cases of a user's file: one test for each engine.

`ArtefactFile` collects the tests. Engines that load files as they are have an entry in
`WHOLE_FILES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from harness.bench.case_session import TargetFailure
from harness.bench.executorch import methods_to_run, open_program
from harness.bench.litert import open_model
from harness.bench.session import open_session
from harness.core.axes import EXECUTORCH, LITERT, ORT, Engine
from harness.core.errors import ConfigError
from harness.experiments.accuracy import record_accuracy
from harness.experiments.profiling import profile_case
from harness.models.artefact_sources import ModelOptions, WholeFile, own_folder
from harness.models.contexts import SourceList
from harness.models.onnx_model import OnnxModel, require_alike
from harness.models.source import ANY_DISTANCE, schedule
from harness.probe.plan import ONCE

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.containers.manifest import Expects
    from harness.diagnosis.verdict import Verdict


@pytest.mark.device
def test_contexts(
    bench: Bench,
    workload: SourceList,
    residency: str,
    contexts: int,
    pytestconfig: pytest.Config,
) -> None:
    """Load, execute and free all contexts in one process, with the expected outputs."""
    if workload.empty_caches:
        bench.measure(empty_caches=list(workload.empty_caches))
    # a bundle reproduces one failure: keep outputs only if that is about them
    keep_outputs = workload.plan is None or bool(workload.closeness)
    rounds = workload.rounds if workload.plan is None else ONCE
    with _as_packed(bench, workload) as outcome:
        result = bench.run_contexts(
            workload, contexts, residency, keep_outputs=keep_outputs, rounds=rounds
        )
        outcome.verdict = result.verdict
        if workload.not_run and result.verdict.outcome == "passed":
            bench.conclude(workload.not_run)
        record_accuracy(bench, result, workload)
    models = [source.path for source in workload if isinstance(source, OnnxModel)]
    profile_case(bench, result.run.plan, pytestconfig.getoption("--qnn-profile"), models)


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
    outcome = "came again" if reproduced else "did not come"
    if packed and packed != bench.placement.qnn_version and not reproduced:
        outcome += f" (it was packed with QNN {packed}: --qnn {packed})"
    bench.conclude(f"what was packed {outcome}: {expects.outcome if reproduced else expects}")


@pytest.mark.device(engine=ORT.name)
def test_session(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """Create a session of a model with ONNX Runtime on QNN, with the expected outputs."""
    options = workload.options
    with _as_packed(bench, workload) as outcome:
        result = bench.session(
            workload.path,
            inputs=options.inputs,
            expected=options.expected,
            tolerance=options.tolerance,
            repeat=workload.rounds,
            fallback=options.fallback,
        )
        outcome.verdict = result.verdict
        record_accuracy(bench, result, workload)
    profile_case(bench, result.run.plan, pytestconfig.getoption("--qnn-profile"), [workload.path])


@pytest.mark.device(backend=EXECUTORCH.backends, engine=EXECUTORCH.name)
def test_program(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """Load and execute a .pte in ExecuTorch, with the expected outputs."""
    options = workload.options
    with _as_packed(bench, workload) as outcome:
        result = bench.executorch(
            workload.path,
            method=options.graph or "forward",
            inputs=options.inputs,
            expected=options.expected,
            tolerance=options.tolerance,
            repeat=workload.rounds,
        )
        outcome.verdict = result.verdict
        record_accuracy(bench, result, workload)
    profile = pytestconfig.getoption("--qnn-profile")
    if profile is not None:  # ExecuTorch's wheel has no profiler, so its contexts are profiled
        deployed = bench.contexts(*workload)
        plan = bench.context_plan(deployed, schedule(len(deployed), "sequential"))
        profile_case(bench, plan, profile)


@pytest.mark.device(backend=LITERT.backends, engine=LITERT.name)
def test_model(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """Compile a .tflite with LiteRT and run its partitions, with the outputs of LiteRT's CPU."""
    options = workload.options
    with _as_packed(bench, workload) as outcome:
        inputs, tolerance = options.inputs, options.tolerance
        result = bench.litert(
            workload.path, inputs=inputs, tolerance=tolerance, rounds=workload.rounds
        )
        outcome.verdict = result.verdict
        record_accuracy(bench, result, workload)
    profile_case(bench, result.run.plan, pytestconfig.getoption("--qnn-profile"))


def _programs(path: Path, options: ModelOptions) -> list[WholeFile]:
    options.require_expected(path)
    methods = methods_to_run(path) if options.graph is None else (options.graph,)
    programs = [open_program(path, method) for method in methods]
    wholes = [
        WholeFile.of(
            path,
            program.readable(),
            options if options.graph else replace(options, graph=program.method),
            [path],
            part=program.method if len(programs) > 1 else None,
        )
        for program in programs
    ]
    for program, whole in zip(programs, wholes, strict=True):
        program.tensor_files("inputs", whole.options.inputs)
        program.tensor_files("expected", whole.options.expected)
    return wholes


def _session(path: Path, options: ModelOptions) -> list[WholeFile]:
    _require_no_graph(path, options, ORT)
    named = options.inputs, options.expected
    inputs, expected = (own_folder(files, path.name) for files in named)
    model = open_session(path, options.tolerance, inputs, expected, options.fallback)
    if not model.models:
        options.require_expected(path)
    else:
        require_alike(path, options.closeness.original)
    files = [path, *model.external_files.values()] if not model.models else ()
    return [WholeFile.of(path, model.sources, options, files)]


def _model(path: Path, options: ModelOptions) -> list[WholeFile]:
    _require_no_graph(path, options, LITERT)
    if options.expected is not None:
        problem = f"{LITERT.title} computes what is expected on this computer's CPU: leave it out"
        raise ConfigError(problem, file=path, field="expected")
    open_model(path)
    options.require_no_original(path)
    if options.closeness and not options.tolerance:
        options = replace(options, tolerance=ANY_DISTANCE)
    return [WholeFile.of(path, (), options, ())]


def _require_no_graph(path: Path, options: ModelOptions, engine: Engine) -> None:
    if options.graph is not None:
        problem = f"{engine.title} executes a whole model: there is no graph to choose"
        raise ConfigError(problem, file=path, field="graph")


WHOLE_FILES: Final[Mapping[str, Callable[[Path, ModelOptions], list[WholeFile]]]] = (
    MappingProxyType({EXECUTORCH.name: _programs, ORT.name: _session, LITERT.name: _model})
)
"""The function of each engine that makes the cases of a file; raises ConfigError for others."""
