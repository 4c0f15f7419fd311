"""Contexts that share one spill-fill buffer: their order, its size, and the memory it saves.

The subject of microsoft/onnxruntime#22853: the first context of a group sets the size of its
buffer, so it must know the largest need of all. First come the plans and measurements, then the
judgement, which is pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from harness.bench.bench import Bench
from harness.core.errors import ConfigError
from harness.diagnosis.diagnosis import is_unrelated
from harness.diagnosis.error_record import ErrorRecord
from harness.experiments.latency import MemorySamples, bind, memory_samples, settled
from harness.models.context_metadata import needs
from harness.models.contexts import Source
from harness.models.session_plan import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import context_load_list, io_release, io_run, memory_sample
from harness.probe.plan import Plan, Settings, Step, context_free, texts
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
    """The way in which contexts, named by their index, are loaded.

    `group_bytes` is the size that the first of the group requests (None: no group), `needs` what
    each context needs by its metadata. `undersized` are those that need more than the shared
    buffer. `expected_bytes` is the spill-fill memory that all use together.
    """

    strategy: Strategy
    order: tuple[int, ...]
    needs: tuple[int, ...]
    group_bytes: int | None
    undersized: tuple[int, ...]
    expected_bytes: int

    @property
    def expected_saving_bytes(self) -> int:
        """The memory saved compared with separate buffers."""
        return sum(self.needs) - self.expected_bytes


def spill_fill_bytes(metadata: Mapping[str, Any]) -> int:
    """Return the spill-fill memory of a context by its metadata; its graphs share it."""
    return needs(metadata)["spill_fill_bytes"] or 0


def sharing_plan(needs: Sequence[int], strategy: Strategy) -> SharingPlan:
    """Return the plan for contexts with these needs of spill-fill, given in the desired order.

    `naive` keeps the order and uses the size of the first; `max` puts the largest first. Raises
    ConfigError without contexts or for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown strategy {strategy!r}", field="strategy", choices=STRATEGIES)
    if not needs or min(needs) < 0:
        raise ConfigError("sharing needs at least one context, and sizes of at least 0")
    order = tuple(range(len(needs)))
    if strategy == "max":
        order = tuple(sorted(order, key=lambda i: (-needs[i], i)))
    group = needs[order[0]] if strategy in ("naive", "max") else None
    undersized = () if group is None else tuple(i for i in order if needs[i] > group)
    shared = {"none": sum(needs), "list-async": max(needs)}.get(strategy, group or 0)
    return SharingPlan(strategy, order, tuple(needs), group, undersized, shared)


def release_orders(contexts: int) -> list[tuple[int, ...]]:
    """Return all orders in which to free so many contexts, or the first few of them."""
    return list(itertools.islice(itertools.permutations(range(contexts)), MAX_ORDERS))


def sharing_session(
    libraries: Libraries,
    contexts: Sequence[DeployedContext],
    sharing: SharingPlan,
    release: Sequence[int],
) -> Plan:
    """Return a plan that loads as planned, executes in turn, and frees in the given order.

    There are two rounds over all contexts, so that each executes after every other. Whenever one
    was freed, the remaining ones execute again while there are several.
    """

    def runs(numbers: Sequence[int]) -> Iterator[Step]:
        return (io_run(number, tolerance=contexts[number].context.tolerance) for number in numbers)

    steps: list[Step] = [
        memory_sample("before"),
        *_loads(contexts, sharing),
        memory_sample("loaded"),
        *(bind(number, contexts[number]) for number in sharing.order),
        *runs(sharing.order),
        *runs(sharing.order),
        memory_sample("executed"),
    ]
    remaining = list(sharing.order)
    for number in release:
        remaining.remove(number)
        steps += [io_release(number), context_free(number)]
        steps += runs(remaining) if len(remaining) > 1 else ()
    steps.append(memory_sample("freed", all_back=True))
    # Cleans up after a failure; the probe skips contexts that are free already.
    frees = (step for number in release for step in (io_release(number), context_free(number)))
    return within_session(libraries, steps, frees, Settings(memory="off"))


def _loads(contexts: Sequence[DeployedContext], sharing: SharingPlan) -> Iterator[Step]:
    if sharing.strategy == "list-async":
        yield context_load_list(0, [contexts[number].binary for number in sharing.order])
        return
    head, size = sharing.order[0], sharing.group_bytes
    for number in sharing.order:
        group = None if size is None or number == head else head
        file = contexts[number].binary
        fields = texts(context=number, file=file, max_spill_fill=size, group=group)
        yield Step("context-load", fields)


def measure_sharing(
    bench: Bench,
    sources: Sequence[Source],
    strategy: Strategy,
    releases: Sequence[Sequence[int]],
    *,
    memory_part: float,
) -> None:
    """Load contexts by a strategy, execute them in turn, and free them in each given order.

    Every order runs in a process of its own and is compared with one without sharing. If memory is
    not as expected, both run again. Raises TargetFailure if a process fails or a check does not
    hold.
    """
    contexts = bench.contexts(*sources)
    needed = [spill_fill_bytes(deployed.context.metadata) for deployed in contexts]
    sharing = sharing_plan(needed, strategy)
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
    by_order: dict[str, object] = {}
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
                by_order[ordered] = figures.samples.record()
                bench.measure(**figures.samples.record(), by_order_of_release=by_order)
            observation.check()
            if strategy != "none" and (before or reference is None):
                compared = bench.attempt(sharing_session(libraries, contexts, plain, sharing.order))
                compared.check()
                reference = sharing_figures(compared.run.transcript)
                bench.measure(reference=reference.samples.record())
            return judge_sharing(sharing, figures, reference, memory_part=memory_part)

        for check in settled(measured, dict.fromkeys(MEMORY, 2)):
            checks.append(check.model_copy(update={"name": f"{check.name}[{ordered}]"}))
    bench.expect(*checks)


def _expect_refusal(
    bench: Bench, contexts: Sequence[DeployedContext], sharing: SharingPlan, release: Sequence[int]
) -> None:
    """Run a plan whose buffer is too small. Raises TargetFailure unless that is refused."""
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
    """The figures of one process; `digests` are the outputs of every execution by context.

    `failure` is the step that failed first.
    """

    samples: MemorySamples
    digests: Mapping[int, frozenset[tuple[int, ...]]]
    failure: StepResult | None = None


def sharing_figures(transcript: Transcript) -> SharingFigures:
    """Return the figures of a process that ran `sharing_session`."""
    digests: dict[int, set[tuple[int, ...]]] = {}
    for step in transcript.steps:
        reported = step.data.get("digests")
        if step.verb == "io-run" and step.ok and step.context is not None:
            numbers = tuple(value for value in reported or () if type(value) is int)
            digests.setdefault(step.context, set()).add(numbers)
    outputs = {context: frozenset(seen_digests) for context, seen_digests in digests.items()}
    return SharingFigures(memory_samples(transcript), outputs, transcript.first_failure)


def judge_sharing(
    sharing: SharingPlan,
    figures: SharingFigures,
    reference: SharingFigures | None,
    *,
    memory_part: float,
) -> list[Check]:
    """Return the checks of a process that ended well.

    `reference` loaded the same contexts with separate buffers; None for that strategy itself.
    `memory_part` is the tolerance, as a part of the spill-fill of all contexts.
    """
    saved = [] if reference is None else [_saved(sharing, figures, reference, memory_part)]
    given_back = _given_back(sharing, figures, memory_part)
    return [*saved, given_back, _same_outputs(figures, reference)]


def judge_undersized(
    sharing: SharingPlan, figures: SharingFigures, error: ErrorRecord | None
) -> Check:
    """Check that a buffer that is too small was refused, at the right context and with a code.

    `error` is that of the process; an unrelated one decides nothing.
    """
    name = "undersized_refused"
    message = f"contexts {list(sharing.undersized)} need more than {sharing.group_bytes} bytes"
    if figures.failure is None:
        return held(name, False, f"{message}, but nothing was refused")
    verb, context, code = figures.failure.verb, figures.failure.context, figures.failure.code
    refused = context in sharing.undersized and code not in (None, 0) and verb in _MAY_REFUSE
    if error is not None and error.diagnosis is not None and is_unrelated(error):
        reason = f"{verb} of context {context} failed for another reason: {error.diagnosis.words}"
        return undecided(name, reason, context=context, code=code)
    answer = f"{verb} of context {context} returned {code}"
    return held(name, refused, f"{message}; {answer}", context=context, code=code)


def _saved(
    sharing: SharingPlan, figures: SharingFigures, reference: SharingFigures, memory_part: float
) -> Check:
    name = MEMORY[0]
    alone = reference.samples.growth("before", "executed")
    shared = figures.samples.growth("before", "executed")
    if alone is None or shared is None:
        return undecided(name, "there are no samples to compare")
    if not (reference.samples.visible or figures.samples.visible):
        return undecided(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    group = sharing.group_bytes
    if group is not None and shared - alone > slack and abs(shared - alone - group) <= slack:
        reason = f"only the group's {group} bytes were measured, not the buffer of a context"
        return undecided(name, reason)
    if alone + slack < sum(sharing.needs) or not sum(sharing.needs):
        reason = f"without sharing, only {alone} of {sum(sharing.needs)} bytes were measured"
        return undecided(name, reason)
    saved, expected = alone - shared, sharing.expected_saving_bytes
    return held(
        name,
        abs(saved - expected) <= slack,
        f"expected to save {expected} bytes, saved {saved}: {alone} without sharing, {shared} with",
        saved_bytes=saved,
        expected_bytes=expected,
        tolerance_bytes=round(slack),
    )


def _given_back(sharing: SharingPlan, figures: SharingFigures, memory_part: float) -> Check:
    name = MEMORY[1]
    growth = figures.samples.growth("before", "freed")
    if growth is None:
        return undecided(name, "there is no sample after the last context")
    if not figures.samples.visible:
        return undecided(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    reason = f"shared buffers hold {growth} bytes more than before the first context"
    return held(name, growth <= slack, reason, left_bytes=growth, tolerance_bytes=round(slack))


def _same_outputs(figures: SharingFigures, reference: SharingFigures | None) -> Check:
    name = "outputs_equal"
    unsteady = [context for context, outputs in figures.digests.items() if len(outputs) > 1]
    if unsteady:
        return held(name, False, f"the outputs of contexts {unsteady} vary between executions")
    if not figures.digests and (reference is None or not reference.digests):
        return undecided(name, "no execution finished")
    if reference is None:
        return held(name, True, "all outputs equal those of ONNX Runtime on the CPU")
    wrong = [
        context
        for context, outputs in reference.digests.items()
        if figures.digests.get(context) != outputs
    ]
    difference = f"differ for contexts {wrong}" if wrong else "equal those without sharing"
    return held(name, not wrong, f"outputs {difference}")
