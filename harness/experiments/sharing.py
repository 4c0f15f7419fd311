"""Contexts that share one spill-fill buffer: in which order, of what size, and what it saves.

The subject of microsoft/onnxruntime#22853: the buffer of a group is as large as the first context
to join says, so whoever is loaded first must know the largest need of all. First what is run and
how it is measured, then how it is judged, which is pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from harness.bench.bench import Bench
from harness.core.errors import ConfigError
from harness.diagnosis.diagnosis import is_unrelated
from harness.diagnosis.error import ErrorRecord
from harness.experiments.latency import Disturbed, MemorySamples, bind, memory_samples, settled
from harness.models.contexts import Source
from harness.models.metadata import needs
from harness.models.source import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import (
    context_load_list,
    context_load_shared,
    io_release,
    io_run,
    memory_sample,
)
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided

Strategy = Literal["none", "naive", "max", "list-async"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
MAX_ORDERS: Final = 6
MEMORY: Final = ("memory_saved", "memory_given_back")
# A size is refused when the context is made, or when it is used for the first time.
_MAY_REFUSE: Final = ("context-load", "io-run")


@dataclass(frozen=True)
class SharingPlan:
    """How contexts are loaded. Contexts are named by their place among those given.

    `group_bytes` is the size that the first of the group asks for (None: no group is registered),
    `needs` what each context needs by its metadata. `undersized` are those that need more than the
    buffer they are to share. `expected_bytes` is the spill-fill memory that all take together.
    """

    strategy: Strategy
    order: tuple[int, ...]
    needs: tuple[int, ...]
    group_bytes: int | None
    undersized: tuple[int, ...]
    expected_bytes: int

    @property
    def expected_saving_bytes(self) -> int:
        """What is saved against buffers of their own."""
        return sum(self.needs) - self.expected_bytes


def spill_fill_bytes(metadata: Mapping[str, Any]) -> int:
    """What a context needs for spill-fill by its metadata: its graphs share it."""
    return needs(metadata)["spill_fill_bytes"] or 0


def sharing_plan(needs: Sequence[int], strategy: Strategy) -> SharingPlan:
    """The plan for contexts that need so many bytes of spill-fill, in the order they are wanted.

    `naive` takes the order as it is and the size of whichever comes first; `max` puts the largest
    first. Raises ConfigError for no contexts or a strategy that does not exist.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(f"no strategy {strategy!r}", field="strategy", choices=STRATEGIES)
    if not needs or min(needs) < 0:
        raise ConfigError("sharing needs contexts, and none that needs less than nothing")
    order = tuple(range(len(needs)))
    if strategy == "max":
        order = tuple(sorted(order, key=lambda at: (-needs[at], at)))
    group = needs[order[0]] if strategy in ("naive", "max") else None
    undersized = () if group is None else tuple(at for at in order if needs[at] > group)
    shared = {"none": sum(needs), "list-async": max(needs)}.get(strategy, group or 0)
    return SharingPlan(strategy, order, tuple(needs), group, undersized, shared)


def release_orders(contexts: int) -> list[tuple[int, ...]]:
    """All orders to free so many contexts in, or the first few of them."""
    return list(itertools.islice(itertools.permutations(range(contexts)), MAX_ORDERS))


def sharing_session(
    libraries: Libraries,
    contexts: Sequence[DeployedContext],
    sharing: SharingPlan,
    release: Sequence[int],
) -> Plan:
    """Loads as planned, executes in turns, frees in the given order.

    There are two rounds over all contexts, so that each executes after every other. Whenever one
    was freed, all that are left but the last execute once more.
    """

    def runs(which: Sequence[int]) -> Iterator[Step]:
        return (io_run(at, tolerance=contexts[at].context.tolerance) for at in which)

    steps: list[Step] = [
        memory_sample("before"),
        *_loads(contexts, sharing),
        memory_sample("loaded"),
        *(bind(at, contexts[at]) for at in sharing.order),
        *runs(sharing.order),
        *runs(sharing.order),
        memory_sample("executed"),
    ]
    left = list(sharing.order)
    for at in release:
        left.remove(at)
        steps += [io_release(at), context_free(at)]
        steps += runs(left) if len(left) > 1 else ()
    steps.append(memory_sample("freed", all_back=True))
    # What a failure leaves behind; the probe skips what is free already.
    frees = (step for at in release for step in (io_release(at), context_free(at)))
    return within_session(libraries, steps, frees, Settings(memory="off"))


def _loads(contexts: Sequence[DeployedContext], sharing: SharingPlan) -> Iterator[Step]:
    if sharing.strategy == "list-async":
        yield context_load_list(0, [contexts[at].binary for at in sharing.order])
        return
    head = sharing.order[0]
    for at in sharing.order:
        if sharing.group_bytes is None:
            yield context_load(at, contexts[at].binary)
        else:
            yield context_load_shared(
                at,
                contexts[at].binary,
                max_spill_fill_bytes=sharing.group_bytes,
                group=None if at == head else head,
            )


def measure_sharing(
    bench: Bench,
    sources: Sequence[Source],
    strategy: Strategy,
    releases: Sequence[Sequence[int]],
    *,
    memory_part: float,
) -> None:
    """Loads contexts by a strategy, executes them in turns, and frees them in each given order.

    Every order runs in a process of its own and is compared with one without sharing. Where memory
    is not as promised, both run again. Raises TargetFailure if a process fails or a promise is not
    kept.
    """
    contexts = bench.contexts(*sources)
    sharing = sharing_plan([spill_fill_bytes(one.context.metadata) for one in contexts], strategy)
    plain = sharing_plan(sharing.needs, "none")
    bench.measure(
        order=list(sharing.order),
        group_bytes=sharing.group_bytes,
        expected_spill_fill_bytes=sharing.expected_bytes,
        expected_saving_bytes=sharing.expected_saving_bytes,
    )
    if sharing.undersized:
        _expect_refusal(bench, contexts, sharing, releases[0])
        return
    libraries = bench.libraries()
    reference: SharingFigures | None = None
    seen: dict[str, object] = {}
    checks: list[Check] = []
    if strategy == "naive":
        checks.append(undecided("undersized_refused", "no context needs more than the first"))
    for release in releases:
        ordered = "-".join(map(str, release))
        plan = sharing_session(libraries, contexts, sharing, release)

        def measured(before: int, ordered: str = ordered, plan: Plan = plan) -> list[Check]:
            nonlocal reference
            observation = bench.attempt(plan) if before else bench.run(plan)
            figures = sharing_figures(observation.run.transcript)
            if not before:
                seen[ordered] = figures.samples.record()
                bench.measure(**figures.samples.record(), by_order_of_release=seen)
            observation.check()
            if strategy != "none" and (before or reference is None):
                compared = bench.attempt(sharing_session(libraries, contexts, plain, sharing.order))
                compared.check()
                reference = sharing_figures(compared.run.transcript)
                bench.measure(reference=reference.samples.record())
            return judge_sharing(sharing, figures, reference, memory_part=memory_part)

        found = settled(measured, dict.fromkeys(MEMORY, Disturbed()))
        checks += [one.model_copy(update={"name": f"{one.name}[{ordered}]"}) for one in found]
    bench.expect(*checks)


def _expect_refusal(
    bench: Bench, contexts: Sequence[DeployedContext], sharing: SharingPlan, release: Sequence[int]
) -> None:
    """Runs a plan whose buffer is too small for some; raises TargetFailure unless that is told."""
    observation = bench.run(sharing_session(bench.libraries(), contexts, sharing, release))
    figures = sharing_figures(observation.run.transcript)
    samples = figures.samples.record()
    bench.measure(**samples, by_order_of_release={"-".join(map(str, release)): samples})
    if observation.verdict.outcome not in ("passed", "failed"):
        observation.check()
    check = judge_undersized(sharing, figures, observation.verdict.error)
    bench.expect(check)
    if check.verdict == "unseen":
        observation.check()
    bench.accept_refusal()


@dataclass(frozen=True)
class SharingFigures:
    """What one process showed; `digests` are the outputs of every execution by context.

    `failure` is the step that failed first.
    """

    samples: MemorySamples
    digests: Mapping[int, frozenset[tuple[int, ...]]]
    failure: StepResult | None = None


def sharing_figures(transcript: Transcript) -> SharingFigures:
    """Takes the figures out of a process that ran `sharing_session`."""
    digests: dict[int, set[tuple[int, ...]]] = {}
    for step in transcript.steps:
        found = step.data.get("digests")
        if step.verb == "io-run" and step.ok and step.context is not None:
            numbers = tuple(one for one in found or () if type(one) is int)
            digests.setdefault(step.context, set()).add(numbers)
    outputs = {context: frozenset(seen) for context, seen in digests.items()}
    return SharingFigures(memory_samples(transcript), outputs, transcript.first_failure)


def judge_sharing(
    sharing: SharingPlan,
    figures: SharingFigures,
    reference: SharingFigures | None,
    *,
    memory_part: float,
) -> list[Check]:
    """The checks of a process that came to a good end.

    `reference` loaded the same contexts with buffers of their own; None for that strategy itself.
    `memory_part`: how much of the spill-fill of all contexts a figure may be off.
    """
    saved = [] if reference is None else [_saved(sharing, figures, reference, memory_part)]
    kept = _given_back(sharing, figures, memory_part)
    return [*saved, kept, _same_outputs(figures, reference)]


def judge_undersized(
    sharing: SharingPlan, figures: SharingFigures, error: ErrorRecord | None
) -> Check:
    """Whether a buffer that is too small was refused where it is too small, and with a code.

    `error` is what the process failed with; one that would have met any context decides nothing.
    """
    name = "undersized_refused"
    told = f"contexts {list(sharing.undersized)} need more than {sharing.group_bytes} bytes"
    if figures.failure is None:
        return held(name, False, f"{told}, and nothing was refused")
    verb, context, code = figures.failure.verb, figures.failure.context, figures.failure.code
    refused = context in sharing.undersized and code not in (None, 0) and verb in _MAY_REFUSE
    if error is not None and error.diagnosis is not None and is_unrelated(error):
        why = f"{verb} of context {context} failed otherwise: {error.diagnosis.words}"
        return undecided(name, why, context=context, code=code)
    how = f"{verb} of context {context} gave {code}"
    return held(name, refused, f"{told}; {how}", context=context, code=code)


def _saved(
    sharing: SharingPlan,
    figures: SharingFigures,
    reference: SharingFigures,
    memory_part: float,
) -> Check:
    name = MEMORY[0]
    own = reference.samples.growth("before", "executed")
    shared = figures.samples.growth("before", "executed")
    if own is None or shared is None:
        return undecided(name, "there are no samples to compare")
    if not (reference.samples.visible or figures.samples.visible):
        return undecided(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    group = sharing.group_bytes
    if group is not None and shared - own > slack and abs(shared - own - group) <= slack:
        why = f"the group's {group} bytes were seen, and no buffer that a context has for itself"
        return undecided(name, why, seen_bytes=shared - own)
    if own + slack < sum(sharing.needs) or not sum(sharing.needs):
        why = f"without sharing {own} bytes were seen of the {sum(sharing.needs)} that they need"
        return undecided(name, why, seen_bytes=own)
    saved, expected = own - shared, sharing.expected_saving_bytes
    return held(
        name,
        abs(saved - expected) <= slack,
        f"expected to save {expected} bytes, saved {saved}: {own} without sharing, {shared} with",
        saved_bytes=saved,
        expected_bytes=expected,
        tolerance_bytes=round(slack),
    )


def _given_back(sharing: SharingPlan, figures: SharingFigures, memory_part: float) -> Check:
    name = MEMORY[1]
    left = figures.samples.growth("before", "freed")
    if left is None:
        return undecided(name, "there is no sample behind the last context")
    if not figures.samples.visible:
        return undecided(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    reason = f"shared buffers hold {left} bytes more than before the first context"
    return held(name, left <= slack, reason, left_bytes=left, tolerance_bytes=round(slack))


def _same_outputs(figures: SharingFigures, reference: SharingFigures | None) -> Check:
    name = "outputs_equal"
    unsteady = [at for at, seen in figures.digests.items() if len(seen) > 1]
    if unsteady:
        return held(name, False, f"the outputs of contexts {unsteady} are not always the same")
    if not figures.digests and (reference is None or not reference.digests):
        return undecided(name, "nothing was executed to the end")
    if reference is None:
        return held(name, True, "they are what ONNX Runtime computes on the CPU, every time")
    wrong = [at for at, seen in reference.digests.items() if figures.digests.get(at) != seen]
    how = f"differ for contexts {wrong}" if wrong else "equal those without sharing"
    return held(name, not wrong, f"outputs {how}")
