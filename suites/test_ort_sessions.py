"""ONNX Runtime on QNN: sessions are created, run, dumped, loaded again, many at once, and freed.

Every node of a session must be on QNN: a silent fallback to the CPU is a failure.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments, steps

MODELS = [Model("tiny"), Model("weights-heavy", 4)]
SHARED = [Model("tiny"), Model("io-heavy", 4)]
HEAVY = Model("io-heavy", 56)
# The memory that a session may leave behind after the first few (microsoft/onnxruntime#22511), each
# by itself, and all together. Measured with ORT 1.26, with and without load: with QNN 2.47.0 to
# 2.49.40 most rounds leave nothing, with 2.50.40 and 2.51.0 first 20 to 50 kB and later 15 to 23;
# all together up to 12 MB, in two jumps.
TOLERATED = experiments.GrowthTolerance(each_bytes=64 << 10, all_bytes=16 << 20)


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_session(bench: Bench, model: Model) -> None:
    """Run a session with all nodes on QNN, with the outputs of ORT's CPU provider."""
    ort, deployed = bench.ort(), bench.model(model)
    plan = (*ort.session(0, deployed.file), ort.run(0, deployed, repeat=3))
    bench.run(ort.plan(plan, sessions=1)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", SHARED, ids=str)
def test_shared_memory(bench: Bench, model: Model) -> None:
    """Run a session with the allocator of memory shared with the DSP, with the same outputs."""
    bench.grid("model", "device")
    ort, deployed = bench.ort(), bench.model(model)
    provider = ort.provider({"enable_htp_shared_memory_allocator": "1"})
    plan = (
        steps.memory_sample("begin"),
        *ort.session(0, deployed.file, provider=provider),
        steps.memory_sample("made"),
        ort.run(0, deployed, repeat=3),
        steps.memory_sample("ran"),
    )
    result = bench.run(ort.plan(plan, sessions=1))
    bench.measure(**experiments.memory_samples(result.run.transcript).record())
    result.check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("embed", [False, True], ids=["beside", "embedded"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_context_dump(bench: Bench, model: Model, embed: bool) -> None:
    """Create a session from the EPContext model that ORT dumps, with the same outputs."""
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        dump = f"{folder}/context.onnx"
        plan = (
            *ort.session(0, deployed.file, options=steps.dump_options(dump, embed=embed)),
            steps.ort_session_free(0),
            *ort.session(1, dump),
            ort.run(1, deployed, repeat=3),
        )
        bench.run(ort.plan(plan, sessions=2)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("sessions", [8, 32, 66])
@pytest.mark.parametrize("workload", [HEAVY], ids=str)
def test_many_sessions(bench: Bench, workload: Model, sessions: int) -> None:
    """Create many sessions of one EPContext model at once, and run all of them."""
    ort, deployed = bench.ort(), bench.model(workload)
    with bench.scratch() as folder:
        dump = f"{folder}/context.onnx"
        session = ort.session(0, deployed.file, options=steps.dump_options(dump, embed=False))
        plan = [*session, steps.ort_session_free(0)]
        for number in range(sessions):
            plan += ort.session(number, dump)
        plan += [ort.run(number, deployed) for number in range(sessions)]
        bench.run(ort.plan(plan, sessions=sessions)).check()


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_create_and_destroy(bench: Bench, model: Model) -> None:
    """Create and free sessions, and check the memory that they leave behind."""
    experiments.measure_growth(bench, model, TOLERATED)
