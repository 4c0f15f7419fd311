"""The cases of a file of a user's: what each engine runs of it, and with which test.

`ArtefactFile` collects the tests. Engines that load files as they are have an entry below them.
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
from harness.experiments.accuracy import tell_accuracy
from harness.experiments.profiling import profile_case
from harness.models.artefact_sources import Given, WholeFile, own_folder
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
    """All contexts load, execute and free, one process a case, with the outputs expected."""
    if workload.empty_caches:
        bench.measure(empty_caches=list(workload.empty_caches))
    # a bundle is about one failure; only if that is of its outputs are they kept
    keep = workload.plan is None or bool(workload.closeness)
    rounds = workload.rounds if workload.plan is None else ONCE
    with _as_packed(bench, workload) as outcome:
        seen = bench.run_contexts(workload, contexts, residency, keep_outputs=keep, rounds=rounds)
        outcome.verdict = seen.verdict
        if workload.not_run and seen.verdict.outcome == "passed":
            bench.conclude(workload.not_run)
        tell_accuracy(bench, seen, workload)
    models = [one.path for one in workload if isinstance(one, OnnxModel)]
    profile_case(bench, seen.run.plan, pytestconfig.getoption("--qnn-profile"), models)


@dataclass
class _Outcome:
    verdict: Verdict | None = None


@contextmanager
def _as_packed(bench: Bench, workload: SourceList) -> Iterator[_Outcome]:
    """Say whether a bundle ended as it did when it was packed; of any other file nothing."""
    outcome = _Outcome()
    try:
        yield outcome
    except TargetFailure as failure:
        outcome.verdict = failure.verdict
        raise
    finally:
        if outcome.verdict is not None and workload.expects is not None:
            _tell_whether_it_came(bench, workload, workload.expects, outcome.verdict)


def _tell_whether_it_came(
    bench: Bench, workload: SourceList, expects: Expects, verdict: Verdict
) -> None:
    error = verdict.error
    again = expects.met_by(verdict.outcome, error.signature if error else None)
    bench.measure(came_again=again)
    packed = workload.plan.qnn if workload.plan is not None else None
    came = "came again" if again else "did not come"
    if packed and packed != bench.placement.qnn_version and not again:
        came += f" (it was packed with QNN {packed}: --qnn {packed})"
    bench.conclude(f"what was packed {came}: {expects.outcome if again else expects}")


@pytest.mark.device(engine=ORT.name)
def test_session(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """ONNX Runtime makes a session of a model on QNN, with the outputs that are expected."""
    given = workload.given
    with _as_packed(bench, workload) as outcome:
        seen = bench.session(
            workload.path,
            inputs=given.inputs,
            expected=given.expected,
            tolerance=given.tolerance,
            repeat=workload.rounds,
            fallback=given.fallback,
        )
        outcome.verdict = seen.verdict
        tell_accuracy(bench, seen, workload)
    profile_case(bench, seen.run.plan, pytestconfig.getoption("--qnn-profile"), [workload.path])


@pytest.mark.device(backend=EXECUTORCH.backends, engine=EXECUTORCH.name)
def test_program(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """A .pte loads and executes in ExecuTorch, with the outputs that are expected."""
    given = workload.given
    with _as_packed(bench, workload) as outcome:
        seen = bench.executorch(
            workload.path,
            method=given.graph or "forward",
            inputs=given.inputs,
            expected=given.expected,
            tolerance=given.tolerance,
            repeat=workload.rounds,
        )
        outcome.verdict = seen.verdict
        tell_accuracy(bench, seen, workload)
    asked = pytestconfig.getoption("--qnn-profile")
    if asked is not None:  # what ExecuTorch's wheel brings has no profile of its own
        deployed = bench.contexts(*workload)
        plan = bench.context_plan(deployed, schedule(len(deployed), "sequential"))
        profile_case(bench, plan, asked)


@pytest.mark.device(backend=LITERT.backends, engine=LITERT.name)
def test_model(bench: Bench, workload: WholeFile, pytestconfig: pytest.Config) -> None:
    """What LiteRT compiles of a .tflite runs, with the outputs that its CPU gives."""
    given = workload.given
    with _as_packed(bench, workload) as outcome:
        seen = bench.litert(
            workload.path, inputs=given.inputs, tolerance=given.tolerance, rounds=workload.rounds
        )
        outcome.verdict = seen.verdict
        tell_accuracy(bench, seen, workload)
    profile_case(bench, seen.run.plan, pytestconfig.getoption("--qnn-profile"))


def _programs(path: Path, given: Given) -> list[WholeFile]:
    given.require_expected(path)
    methods = methods_to_run(path) if given.graph is None else (given.graph,)
    programs = [open_program(path, method) for method in methods]
    wholes = [
        WholeFile.of(
            path,
            one.readable(),
            given if given.graph else replace(given, graph=one.method),
            [path],
            part=one.method if len(programs) > 1 else None,
        )
        for one in programs
    ]
    for program, whole in zip(programs, wholes, strict=True):
        program.given("inputs", whole.given.inputs)
        program.given("expected", whole.given.expected)
    return wholes


def _session(path: Path, given: Given) -> list[WholeFile]:
    _require_no_graph(path, given, ORT)
    read, wanted = (own_folder(one, path.name) for one in (given.inputs, given.expected))
    model = open_session(path, given.tolerance, read, wanted, given.fallback)
    if not model.models:
        given.require_expected(path)
    else:
        require_alike(path, given.closeness.original)
    files = [path, *model.beside.values()] if not model.models else ()
    return [WholeFile.of(path, model.sources, given, files)]


def _model(path: Path, given: Given) -> list[WholeFile]:
    _require_no_graph(path, given, LITERT)
    if given.expected is not None:
        problem = f"{LITERT.title} says on this computer's CPU what is expected: none is given"
        raise ConfigError(problem, file=path, field="expected")
    open_model(path)
    given.require_no_original(path)
    if given.closeness and not given.tolerance:
        given = replace(given, tolerance=ANY_DISTANCE)
    return [WholeFile.of(path, (), given, ())]


def _require_no_graph(path: Path, given: Given, engine: Engine) -> None:
    if given.graph is not None:
        problem = f"{engine.title} executes a whole model: there is no graph to choose"
        raise ConfigError(problem, file=path, field="graph")


WHOLE_FILES: Final[Mapping[str, Callable[[Path, Given], list[WholeFile]]]] = MappingProxyType(
    {EXECUTORCH.name: _programs, ORT.name: _session, LITERT.name: _model}
)
"""By engine what makes the cases of a file. Raises ConfigError for a file that it does not take."""
