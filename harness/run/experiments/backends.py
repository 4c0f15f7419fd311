"""A model on a backend, phase by phase: opened, nodes taken, loaded, executed, compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from harness.contexts.compiler.models import Model
from harness.contexts.context.schedule import schedule
from harness.contexts.context.session_plan import within_session
from harness.contexts.sources.contexts import SourceList
from harness.probe.ort_plan import QNN_EP, ort_placement, ort_run, ort_session
from harness.probe.plan import Settings, context_free, context_load, execute
from harness.run.bench.bench import Bench
from harness.run.bench.case_session import NotPassed, TargetFailure
from harness.run.experiments.accuracy import CLOSENESS, Accuracy, arithmetic, compare, judge_asked
from harness.run.experiments.progress import Reached, expected_refusal, judge_progress, progress
from harness.verdict.results.checks import Check, held

# By default the nodes at the ends of a quantised model go to ORT's CPU provider (ORT's docs).
_ALL_NODES: Final = {"offload_graph_io_quantization": "0"}


def measure_backend(bench: Bench, model: Model) -> None:
    """Takes a model through ONNX Runtime on the placement's backend, as far as it goes.

    The backend is opened first without ORT, in a process of its own, so that its own answer is
    known. Raises TargetFailure at the phase that was refused, or if an output is not close enough
    to that of ORT on the CPU.
    """
    _open(bench, model)
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(model.outputs()))]
        steps = (
            # With fallback the session tells which nodes were not taken, and the step behind it
            # fails for them. An ORT that cannot tell must not fall back.
            ort_session(
                0,
                deployed.file,
                ort.provider(_ALL_NODES),
                fallback=ort.tells_placement or ort.wants_fallback,
            ),
            ort_placement(0, whole=QNN_EP),
            ort_run(0, inputs=deployed.inputs, saved=saved),
        )
        done = bench.run(ort.plan(steps, sessions=1, settings=Settings(memory="rss")))
        if _settle(bench, model, progress(done.run.transcript, done.verdict)):
            _compare(bench, model, saved)


def measure_context(bench: Bench, model: Model | SourceList) -> None:
    """Takes a model's context binary through QNN itself; raises as `measure_backend`.

    Contexts of the user's own go through all phases but the last, unless they came with outputs.
    """
    if isinstance(model, SourceList):
        contexts = bench.contexts(*model)
        done = bench.run(bench.context_plan(contexts, schedule(len(contexts), "resident")))
        _settle(bench, None, progress(done.run.transcript, done.verdict))
        return
    (context,) = bench.contexts(model)
    libraries = bench.libraries()
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(context.expected))]
        steps = context_load(0, context.binary), execute(0, inputs=context.inputs, saved=saved)
        settings = Settings(memory="rss")
        done = bench.run(within_session(libraries, steps, [context_free(0)], settings))
        if _settle(bench, model, progress(done.run.transcript, done.verdict)):
            _compare(bench, model, saved)


def _open(bench: Bench, model: Model) -> None:
    """Opens the backend, and nothing else; raises TargetFailure where it does not open."""
    try:
        libraries = bench.libraries()
    except TargetFailure as failure:
        _settle(bench, model, Reached("init", failure.verdict))
        raise
    alone = replace(libraries, system=None)
    opened = bench.attempt(within_session(alone, (), (), Settings(memory="off")))
    made = opened.run.transcript.steps
    bench.measure(init_us={step.verb: step.duration_us for step in made if step.ok})
    if opened.verdict.outcome != "passed":
        _settle(bench, model, Reached("init", opened.verdict))
    without = [step.skipped for step in made if step.verb == "device-create" and step.skipped]
    if without:
        bench.measure(device=without[0])


def _settle(bench: Bench, model: Model | None, found: Reached) -> bool:
    """Records how far a model came; returns whether there is an output to compare.

    Raises TargetFailure unless it came to its end, or was refused as it must be.
    """
    refusal = expected_refusal(bench.placement.backend, model.data_type) if model else None
    checks, verdict = judge_progress(found, refusal)
    bench.measure(**found.record())
    bench.check(*checks)
    if verdict.outcome != "passed":
        raise NotPassed.of(verdict)
    if found.refused is None:
        return True
    bench.accept_refusal()
    bench.conclude(f"refused at {found.refused}, as it must be")
    return False


def _compare(bench: Bench, model: Model, saved: Sequence[str]) -> None:
    """Compares the outputs on the device with those of ORT on the CPU."""
    import numpy as np

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
        checks += judge_asked(found[-1], CLOSENESS[kind])
    bench.outputs_compared()
    bench.measure(arithmetic=kind, accuracy=[asdict(one) for one in found])
    bench.expect(*checks)
    bench.conclude(
        "; ".join(
            f"{one.output}: cosine {_text(one.cosine)}, max abs {_text(one.max_abs)} ({kind})"
            for one in found
        )
    )


def _text(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.7g}"
