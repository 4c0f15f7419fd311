"""A model on a backend, phase by phase: opened, nodes taken, loaded, executed, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from harness.bench import Bench, TargetFailure
from harness.bench_memory import check_all
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import session_start
from harness.probe.ort_plan import QNN_EP, ort_placement, ort_run, ort_session
from harness.probe.plan import Plan, Settings, Step, context_free, context_load, execute
from harness.qnn.backends import BACKEND_LIBRARIES
from harness.results.accuracy import Accuracy, arithmetic, compare, judge_accuracy
from harness.results.checks import Check, held
from harness.results.judge_backend import Journey, expected_refusal, journey, judge_journey

# By default the nodes at the ends of a quantised model go to ORT's CPU provider (ORT's docs).
_ALL_NODES: Final = {"offload_graph_io_quantization": "0"}


def measure_backend(bench: Bench, model: ModelSpec) -> None:
    """Takes a model through ONNX Runtime on the placement's backend, as far as it goes.

    The backend is opened first without ORT, in a process of its own, so that what it says to that
    is known. Raises TargetFailure at the phase that was refused, or if an output is not close
    enough to that of ORT on the CPU.
    """
    _open(bench, model)
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(model.outputs()))]
        steps = (
            # With fallback the session tells which nodes were not taken, and the step behind it
            # fails for them. An ORT that cannot tell must not fall back; but it refuses QNN's CPU
            # backend altogether unless it may.
            ort_session(
                0,
                deployed.file,
                ort.provider(_ALL_NODES),
                fallback=ort.tells_placement or bench.placement.backend == "cpu",
            ),
            ort_placement(0, whole=QNN_EP),
            ort_run(0, inputs=deployed.inputs, saved=saved),
        )
        done = bench.run(ort.plan(steps, sessions=1, settings=Settings(memory="rss")))
        found = journey(done.run.transcript, done.verdict)
        if _settle(bench, model, found):
            _compare(bench, model, saved)


def measure_context(bench: Bench, model: ModelSpec) -> None:
    """Takes a model's context binary through QNN itself; raises as `measure_backend`."""
    (context,) = bench.contexts(model)
    libraries = bench.libraries(BACKEND_LIBRARIES[bench.placement.backend])
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(context.expected))]
        steps = (
            *session_start(libraries),
            context_load(0, context.binary),
            execute(0, inputs=context.inputs, saved=saved),
            Step("cleanup"),
            context_free(0),
            Step("device-free"),
            Step("backend-free"),
        )
        done = bench.run(Plan(steps, Settings(memory="rss")))
        if _settle(bench, model, journey(done.run.transcript, done.verdict)):
            _compare(bench, model, saved)


def _open(bench: Bench, model: ModelSpec) -> None:
    """Opens the backend, and nothing else; raises TargetFailure where it does not open."""
    try:
        libraries = bench.libraries(BACKEND_LIBRARIES[bench.placement.backend])
    except TargetFailure as failure:
        _settle(bench, model, Journey("init", failure.verdict))
        raise
    start = [step for step in session_start(libraries) if step.verb != "system-load"]
    ends = (Step("cleanup"), Step("device-free"), Step("backend-free"))
    opened = bench.attempt(Plan((*start, *ends), Settings(memory="off")))
    made = opened.run.transcript.steps
    bench.measure(init_us={step.verb: step.duration_us for step in made if step.ok})
    if opened.verdict.outcome != "passed":
        _settle(bench, model, Journey("init", opened.verdict))
    without = [step.skipped for step in made if step.verb == "device-create" and step.skipped]
    if without:
        bench.measure(device=without[0])


def _settle(bench: Bench, model: ModelSpec, found: Journey) -> bool:
    """Records how far a model came; whether there is an output to compare.

    Raises TargetFailure unless it came to its end, or was refused as it must be.
    """
    refusal = expected_refusal(bench.placement.backend, model.data_type)
    checks, verdict = judge_journey(found, refusal)
    bench.measure(**found.record())
    bench.notes.checks += checks
    if found.refused is not None and verdict.outcome == "passed":
        bench.conclude(f"refused at {found.refused}, as it must be")
    if verdict.outcome != "passed":
        raise TargetFailure(verdict)
    bench.notes.verdict = None  # it was refused, and had to be
    return found.refused is None


def _compare(bench: Bench, model: ModelSpec, saved: Sequence[str]) -> None:
    """Compares the outputs on the device with those of ORT on the CPU."""
    kind = arithmetic(bench.placement.backend, model.data_type)
    checks: list[Check] = []
    found: list[Accuracy] = []
    references = bench.reference(model).expected
    for name, remote, reference in zip(model.outputs(), saved, references, strict=True):
        expected = reference.read_bytes()
        got = bench.fetch(remote, max_bytes=len(expected))
        if len(got) != len(expected):
            why = f"{len(got)} bytes, the reference has {len(expected)}"
            checks.append(held(f"size[{name}]", False, why))
            continue
        one, other = (np.frombuffer(raw, model.output_type) for raw in (got, expected))
        found.append(compare(name, one, other))
        checks += judge_accuracy(found[-1], kind)
    bench.measure(arithmetic=kind, accuracy=[one.record() for one in found])
    check_all(bench, checks)
    bench.conclude(
        "; ".join(
            f"{one.output}: cosine {one.cosine:.7f}, max abs {one.max_abs:.3g} ({kind})"
            for one in found
        )
    )
