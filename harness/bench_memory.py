"""What suites about memory do with a bench: run a process, judge each promise, record both."""

from __future__ import annotations

from collections.abc import Sequence

from harness.bench import BACKEND_LIBRARIES, Bench, Observation, TargetFailure
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
from harness.results.checks import Check, broken, conclusion, failure_text, held
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
    bench: Bench, prepared: ModelSpec, raw: ModelSpec, pairing: Pairing, tolerances: Tolerances
) -> None:
    """Runs a context with the memory of a pairing and checks what is documented of it.

    `raw` is the same model prepared for raw memory: what another pairing is compared with, in a
    process of its own. If only the latency differs both are measured again. Raises TargetFailure
    if the process fails or a check does not hold.
    """
    (context,) = bench.contexts(prepared)
    made = prepared_memory(context)
    if made != pairing.prepare:
        why = f"asked for {pairing.prepare}, the compiler prepared the context for {made}"
        check_all(bench, [held("prepared_as_asked", False, why)])
    libraries = _libraries(bench)
    observation = bench.run(pairing_plan(libraries, context, pairing.execute))
    figures = _pairing(observation, context)
    bench.measure(**figures.record())
    observation.check()
    if pairing == _REFERENCE:
        check_all(bench, judge_pairing(pairing, figures, None, tolerances))
        return
    (other,) = bench.contexts(raw)
    for rounds in range(1, _ROUNDS + 1):
        compared = bench.attempt(pairing_plan(libraries, other, _REFERENCE.execute))
        compared.check()
        reference = _pairing(compared, other)
        checks = judge_pairing(pairing, figures, reference, tolerances)
        bench.measure(**figures.record(), reference=reference.record(), rounds=rounds)
        if rounds == _ROUNDS or [check.name for check in broken(checks)] != [LATENCY]:
            break
        # Nothing but the time differs: whoever is slower by nature is so in every round.
        again = bench.attempt(pairing_plan(libraries, context, pairing.execute))
        again.check()
        figures = _pairing(again, context)
    check_all(bench, checks)


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
    checks: list[Check] = []
    for release in releases:
        observation = bench.run(sharing_session(libraries, contexts, sharing, release))
        figures = sharing_figures(observation.run.transcript)
        bench.measure(**figures.record())
        if sharing.undersized and observation.verdict.outcome in ("passed", "failed"):
            check_all(bench, [judge_undersized(sharing, figures)], settles=True)
            return
        observation.check()
        if strategy != "none" and reference is None:
            session = sharing_session(libraries, contexts, plain, sharing.order)
            compared = bench.attempt(session)
            compared.check()
            reference = sharing_figures(compared.run.transcript)
            bench.measure(reference=reference.record())
        found = judge_sharing(sharing, figures, reference, memory_part=memory_part)
        ordered = "-".join(map(str, release))
        checks += [one.model_copy(update={"name": f"{one.name}[{ordered}]"}) for one in found]
    check_all(bench, checks)


def check_all(bench: Bench, checks: Sequence[Check], *, settles: bool = False) -> None:
    """Records checks; raises TargetFailure, whose text names those that broke, if any did.

    `settles`: the checks decide about the case, whatever its process came to.
    """
    bench.notes.checks += checks
    bench.conclude(conclusion(bench.notes.checks))
    problem = failure_text(checks)
    if problem:
        error = ErrorRecord.of(api=None, code=None, message=problem)
        raise TargetFailure(Verdict("failed", "target", error))
    if settles:
        bench.notes.verdict = None


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
