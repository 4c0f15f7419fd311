"""What suites about memory do with a bench: run a process, judge each promise, record both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.bench import Bench, Observation, TargetFailure
from harness.contexts.compile import Context
from harness.contexts.mem_pairing import Pairing, pairing_plan, prepared_memory
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import DeployedContext, Libraries
from harness.contexts.spill_fill import (
    Strategy,
    sharing_plan,
    sharing_session,
    spill_fill_bytes,
)
from harness.probe.memory_steps import TensorMemory
from harness.qnn.backends import BACKEND_LIBRARIES
from harness.results.checks import Check, broken, conclusion, failure_text, held, unseen
from harness.results.judge_pairing import (
    LATENCY,
    PairingFigures,
    Tolerances,
    judge_pairing,
    pairing_figures,
)
from harness.results.judge_sharing import (
    SharingFigures,
    judge_sharing,
    judge_undersized,
    sharing_figures,
)
from harness.results.record import ErrorRecord
from harness.results.verdict import Verdict

_REFERENCE = Pairing("raw", "raw")
_ROUNDS = 5


def measure_pairing(
    bench: Bench,
    models: Mapping[TensorMemory, ModelSpec],
    pairing: Pairing,
    tolerances: Tolerances,
) -> None:
    """Runs a context with the memory of a pairing and checks what is documented of it.

    `models` has the same model by the memory that it is prepared for. What a pairing is compared
    with runs in processes of its own; where this target does not give it, the check that needs it
    is `unseen`. If only the latency does not hold, both are measured again. Raises TargetFailure if
    the process fails or a check does not hold.
    """
    (context,) = bench.contexts(models[pairing.prepare])
    made = prepared_memory(context)
    if made != pairing.prepare:
        why = f"asked for {pairing.prepare}, the compiler prepared the context for {made}"
        check_all(bench, [held("prepared_as_asked", False, why)])
    observation = bench.run(pairing_plan(_libraries(bench), context, pairing.execute))
    figures = _pairing(observation, context)
    bench.measure(**figures.record())
    observation.check()
    for rounds in range(1, _ROUNDS + 1):
        twin = _compared(bench, models, pairing.twin)
        base = twin
        if _REFERENCE not in (pairing, pairing.twin):
            base = _compared(bench, models, _REFERENCE)
        checks = judge_pairing(pairing, figures, twin, base, tolerances)
        compared = {} if twin is None else {str(pairing.twin): twin.record()}
        bench.measure(**figures.record(), compared_with=compared, rounds=rounds)
        doubtful = [check.name for check in broken(checks)] or [
            check.name for check in checks if check.name == LATENCY and check.verdict == "unseen"
        ]
        if rounds == _ROUNDS or twin is None or doubtful != [LATENCY]:
            break
        # Nothing but the time differs: whoever is slower by nature is so in every round.
        again = bench.attempt(pairing_plan(_libraries(bench), context, pairing.execute))
        again.check()
        figures = _pairing(again, context)
    check_all(bench, checks)


def _compared(
    bench: Bench, models: Mapping[TensorMemory, ModelSpec], pairing: Pairing
) -> PairingFigures | None:
    """What another pairing shows; None if this target or its compiler does not give it.

    Raises TargetFailure if the lab kept it from being seen.
    """
    try:
        (context,) = bench.contexts(models[pairing.prepare])
    except TargetFailure:
        return None  # what its own case fails with
    observation = bench.attempt(pairing_plan(_libraries(bench), context, pairing.execute))
    if observation.verdict.outcome == "error":
        observation.check()
    return _pairing(observation, context) if observation.verdict.outcome == "passed" else None


def measure_sharing(
    bench: Bench,
    models: Sequence[ModelSpec],
    strategy: Strategy,
    releases: Sequence[Sequence[int]],
    *,
    memory_part: float,
) -> None:
    """Loads contexts by a strategy, executes them in turns, and frees them in each given order.

    Every order runs in a process of its own and is compared with one without sharing. Raises
    TargetFailure if a process fails or a promise is not kept.
    """
    contexts = bench.contexts(*models)
    sharing = sharing_plan(_needs(contexts), strategy)
    plain = sharing_plan(sharing.needs, "none")
    bench.measure(plan=list(sharing.lines()), expected_saving_bytes=sharing.expected_saving_bytes)
    libraries = _libraries(bench)
    reference: SharingFigures | None = None
    seen: dict[str, object] = {}
    checks: list[Check] = []
    if strategy == "naive" and not sharing.undersized:
        checks.append(unseen("undersized_refused", "no context needs more than the first"))
    for release in releases:
        observation = bench.run(sharing_session(libraries, contexts, sharing, release))
        figures = sharing_figures(observation.run.transcript)
        ordered = "-".join(map(str, release))
        seen[ordered] = figures.record()
        bench.measure(**figures.record(), by_order_of_release=seen)
        if sharing.undersized and observation.verdict.outcome in ("passed", "failed"):
            check = judge_undersized(sharing, figures, observation.verdict.error)
            check_all(bench, [check])
            if check.verdict == "unseen":
                observation.check()
            bench.notes.verdict = None  # it was refused, and had to be
            return
        observation.check()
        if strategy != "none" and reference is None:
            session = sharing_session(libraries, contexts, plain, sharing.order)
            compared = bench.attempt(session)
            compared.check()
            reference = sharing_figures(compared.run.transcript)
            bench.measure(reference=reference.record())
        found = judge_sharing(sharing, figures, reference, memory_part=memory_part)
        checks += [one.model_copy(update={"name": f"{one.name}[{ordered}]"}) for one in found]
    check_all(bench, checks)


def check_all(bench: Bench, checks: Sequence[Check]) -> None:
    """Records checks; raises TargetFailure, whose text names those that broke, if any did."""
    bench.notes.checks += checks
    bench.conclude(conclusion(bench.notes.checks))
    problem = failure_text(checks)
    if problem:
        error = ErrorRecord.of(api=None, code=None, message=problem)
        raise TargetFailure(Verdict("failed", "target", error))


def planned_sharing(contexts: Sequence[Context], strategy: Strategy) -> list[str]:
    """What `--plan` says about a case of `measure_sharing`."""
    needs = [spill_fill_bytes(context.metadata) for context in contexts]
    return list(sharing_plan(needs, strategy).lines())


def _needs(contexts: Sequence[DeployedContext]) -> list[int]:
    return [spill_fill_bytes(one.context.metadata) for one in contexts]


def _pairing(observation: Observation, deployed: DeployedContext) -> PairingFigures:
    context = deployed.context
    transcript = observation.run.transcript
    return pairing_figures(transcript, context.metadata, context.memory_bytes)


def _libraries(bench: Bench) -> Libraries:
    return bench.libraries(BACKEND_LIBRARIES[bench.placement.backend])
