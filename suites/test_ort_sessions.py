"""ONNX Runtime on QNN: sessions are made, run, dumped, loaded again, many at once, and let go.

Every node of a session must be on QNN: what falls back to the CPU without a word is a failure.
"""

from __future__ import annotations

import pytest

from harness.bench import Bench
from harness.bench_memory import check_all
from harness.contexts.models import ModelSpec
from harness.ort_bench import run_model
from harness.probe.ort_plan import dump_options, ort_session_free
from harness.results.judge_growth import judge_growth

MODELS = [ModelSpec("tiny"), ModelSpec("weights-heavy", 4)]
HEAVY = ModelSpec("io-heavy", 56)
ROUNDS = 20
# What a session may leave behind once the first few are over (microsoft/onnxruntime#22511): each by
# itself, and all together, since malloc grows in jumps. Measured over 40 rounds with QNN 2.47.0 to
# 2.51.0 and ORT 1.24 to 1.31: most rounds leave below 20 kB, all together below 8 MB.
TOLERATED_GROWTH_BYTES = 64 << 10
TOLERATED_DRIFT_BYTES = 16 << 20


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_session(bench: Bench, model: ModelSpec) -> None:
    """All nodes are on QNN, and its outputs are those of ORT's CPU provider."""
    ort, deployed = bench.ort(), bench.model(model)
    steps = (*ort.session(0, deployed.file), run_model(0, deployed, repeat=3))
    bench.run(ort.plan(steps, sessions=1)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("embed", [False, True], ids=["beside", "embedded"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_context_dump(bench: Bench, model: ModelSpec, embed: bool) -> None:
    """What ORT dumps as EPContext model makes a session that gives the same outputs."""
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        dump = f"{folder}/context.onnx"
        steps = (
            *ort.session(0, deployed.file, options=dump_options(dump, embed=embed)),
            ort_session_free(0),
            *ort.session(1, dump),
            run_model(1, deployed, repeat=3),
        )
        bench.run(ort.plan(steps, sessions=2)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("sessions", [8, 32, 66])
@pytest.mark.parametrize("workload", [HEAVY], ids=str)
def test_many_sessions(bench: Bench, workload: ModelSpec, sessions: int) -> None:
    """So many sessions exist at once, each made of the same EPContext model, and all run."""
    ort, deployed = bench.ort(), bench.model(workload)
    with bench.scratch() as folder:
        dump = f"{folder}/context.onnx"
        made = ort.session(0, deployed.file, options=dump_options(dump, embed=False))
        steps = [*made, ort_session_free(0)]
        for number in range(sessions):
            steps += ort.session(number, dump)
        steps += [run_model(number, deployed) for number in range(sessions)]
        bench.run(ort.plan(steps, sessions=sessions)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_create_and_destroy(bench: Bench, model: ModelSpec) -> None:
    """A session that is gone leaves no more behind, however often it is made."""
    ort, deployed = bench.ort(), bench.model(model)
    steps = []
    for _ in range(ROUNDS):
        steps += [*ort.session(0, deployed.file), run_model(0, deployed), ort_session_free(0)]
    observation = bench.run(ort.plan(steps, sessions=1))
    observation.check()
    figures = observation.measurements
    check_all(bench, judge_growth(figures, TOLERATED_GROWTH_BYTES, TOLERATED_DRIFT_BYTES))
