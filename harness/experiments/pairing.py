"""Memory types of a context's tensors: prepared one way, executed another, as documented or not.

First what is run and how it is measured, then how it is judged, which is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.bench.bench import Bench
from harness.bench.case_session import Observation, TargetFailure
from harness.core.codes import (
    DOCUMENTED,
    TENSOR_MEMORIES,
    Documented,
    TensorMemory,
    same_code,
)
from harness.core.errors import ConfigError
from harness.experiments.latency import (
    Disturbed,
    Latency,
    LatencyTolerance,
    MemorySamples,
    Rules,
    bind,
    memory_samples,
    same_in_rounds,
    same_latency,
    settled,
)
from harness.models.contexts import Source
from harness.models.models import Model
from harness.models.source import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import io_release, io_run, memory_sample
from harness.probe.plan import Plan, ProfileLevel, Settings, context_free, context_load
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided, whole_numbers

STEADY_RUNS: Final = 30
WARM_RUNS: Final = 10
"""The first inference and nine more; what is timed as steady comes behind them."""


@dataclass(frozen=True)
class Pairing:
    """How a context's tensors were prepared, and how they are executed."""

    prepare: TensorMemory
    execute: TensorMemory

    def __post_init__(self) -> None:
        for name, value in (("prepare", self.prepare), ("execute", self.execute)):
            if value not in TENSOR_MEMORIES:
                raise ConfigError(f"no memory {value!r}", field=name, choices=TENSOR_MEMORIES)

    def __str__(self) -> str:
        return f"{self.prepare}-{self.execute}"

    @property
    def documented(self) -> Documented:
        """What the QNN documentation says of it."""
        return DOCUMENTED[self.prepare, self.execute]

    @property
    def twin(self) -> Pairing:
        """What is prepared the other way and executed alike."""
        (other,) = (memory for memory in TENSOR_MEMORIES if memory != self.prepare)
        return Pairing(other, self.execute)


PAIRINGS: Final = tuple(Pairing(*one) for one in DOCUMENTED)

_LIBRARYS_OWN: Final = 2_200_000
"""What the arm64 library maps with a context beside all that its metadata tells (QNN 2.51.0)."""
_NO_PROFILE: Final = 6006
"""QNN_GRAPH_ERROR_SET_PROFILE."""
_COPY: Final = re.compile(r"\bcop(y|ies|ied)\b", re.I)
_COUNT_UNIT: Final = 4
LATENCY: Final = "steady_latency_same"
MEMORY: Final = (
    "io_allocated_at_load",
    "io_allocated_at_first_inference",
    "io_settled_by_tenth",
    "io_given_back",
)
_ROUNDS: Final = 5
_REFERENCE: Final = Pairing("raw", "raw")


def prepared_memory(context: DeployedContext) -> str:
    """What the binary says its tensors were prepared for; "mixed" if they differ."""
    kinds = {
        tensor.get("memory_type")
        for graph in context.context.metadata.get("graphs", [])
        for kind in ("inputs", "outputs")
        for tensor in graph.get(kind, [])
    }
    return {frozenset({0}): "raw", frozenset({1}): "memhandle"}.get(frozenset(kinds), "mixed")


def by_memory(bench: Bench, sources: Sequence[Source]) -> dict[TensorMemory, Source]:
    """One source for each memory: what a model is to be prepared for, what a file says it is.

    Of several sources for one memory the first counts. Files with tensors of both kinds do not.
    """
    found: dict[TensorMemory, Source] = {}
    for source in sources:
        memory = (
            source.prepare
            if isinstance(source, Model)
            else prepared_memory(bench.contexts(source)[0])
        )
        for one in TENSOR_MEMORIES:
            if memory == one:
                found.setdefault(one, source)
    return found


def pairing_plan(
    libraries: Libraries,
    deployed: DeployedContext,
    execute: TensorMemory,
    settings: Settings = Settings(memory="off"),  # noqa: B008 - it is frozen
    *,
    profile: ProfileLevel = "detailed",
) -> Plan:
    """Loads a context and executes it 41 times, with samples of memory in between.

    The probe's own buffers are there before the sample `bound`, so that what grows behind it is the
    library's. The last execution is profiled, since profiling costs time.
    """
    tolerance = deployed.context.tolerance
    moves = (
        memory_sample("before"),
        context_load(0, deployed.binary),
        memory_sample("loaded"),
        bind(0, deployed, execute),
        memory_sample("bound"),
        io_run(0, tolerance=tolerance),
        memory_sample("first"),
        io_run(0, tolerance=tolerance, repeat=WARM_RUNS - 1),
        memory_sample("tenth"),
        io_run(0, tolerance=tolerance, repeat=STEADY_RUNS),
        io_run(0, tolerance=tolerance, profile=profile),
    )
    frees = (io_release(0), context_free(0), memory_sample("freed", all_back=True))
    return within_session(libraries, moves, frees, settings)


@dataclass(frozen=True)
class Tolerances:
    """How far a figure may be from what is expected of it.

    Memory: a part of the I/O's size; what has less than that part counts as nothing.
    """

    memory_part: float = 0.25
    latency: LatencyTolerance = field(default_factory=LatencyTolerance)


def measure_pairing(
    bench: Bench,
    sources: Mapping[TensorMemory, Source],
    pairing: Pairing,
    tolerances: Tolerances,
) -> None:
    """Runs a context with the memory of a pairing and checks what is documented of it.

    `sources` has one model by the memory that it is prepared for, as `by_memory` gives it; only the
    pairing's memory must be there. A pairing is compared with runs in other processes; if this
    target does not give them, the check is undecided. What other processes may have disturbed is
    measured again. Raises TargetFailure if a process fails or a check does not hold.
    """
    (context,) = bench.contexts(sources[pairing.prepare])
    made = prepared_memory(context)
    if made != pairing.prepare:
        why = f"asked for {pairing.prepare}, the compiler prepared the context for {made}"
        bench.expect(held("prepared_as_asked", False, why))
    timed = bench.device.simulated_dsp is None

    def measured(before: int) -> list[Check]:
        observation = _observed(bench, context, pairing.execute, own=not before)
        figures = _pairing(bench, observation, context)
        if not before:
            bench.measure(**figures.record())
        observation.check()
        twin = _compared(bench, sources, pairing.twin)
        base = twin
        if _REFERENCE not in (pairing, pairing.twin):
            base = _compared(bench, sources, _REFERENCE)
        compared = {} if twin is None else {str(pairing.twin): twin.record()}
        bench.measure(**figures.record(), compared_with=compared, rounds=before + 1)
        checks = judge_pairing(pairing, figures, twin, base, tolerances)
        return checks if timed else [untimed(check) for check in checks]

    bench.expect(*settled(measured, disturbed(tolerances)))


def _observed(
    bench: Bench, context: DeployedContext, execute: TensorMemory, *, own: bool = False
) -> Observation:
    """Runs a pairing, profiled in detail where the library does that; `own`: it is the case's.

    The arm64 library of QNN 2.51.0 refuses it to contexts whose binaries have no room for it.
    """
    libraries = bench.libraries()
    plan = pairing_plan(libraries, context, execute)
    observation = bench.run(plan) if own else bench.attempt(plan)
    failure = observation.run.transcript.first_failure
    if failure is None or failure.verb != "io-run" or not same_code(failure.code, _NO_PROFILE):
        return observation
    plan = pairing_plan(libraries, context, execute, profile="basic")
    return bench.run(plan) if own else bench.attempt(plan)


def _compared(
    bench: Bench, sources: Mapping[TensorMemory, Source], pairing: Pairing
) -> PairingFigures | None:
    """What another pairing shows; None if this target or its compiler does not give it.

    Raises NoVerdict if the lab kept it from being seen.
    """
    if pairing.prepare not in sources:
        return None
    try:
        (context,) = bench.contexts(sources[pairing.prepare])
    except TargetFailure:
        return None  # what its own case fails with
    observation = _observed(bench, context, pairing.execute)
    if observation.verdict.outcome == "error":
        observation.check()
    return (
        _pairing(bench, observation, context) if observation.verdict.outcome == "passed" else None
    )


def _pairing(bench: Bench, observation: Observation, deployed: DeployedContext) -> PairingFigures:
    context = deployed.context
    beside = _LIBRARYS_OWN if bench.device.target.endswith("arm64") else 0
    memory_bytes = context.memory_bytes + beside
    return pairing_figures(observation.run.transcript, context.metadata, memory_bytes)


@dataclass(frozen=True)
class PairingFigures:
    """What one process with a pairing showed; `copies` is None where its profile shows none.

    `first_us` is the first inference, `steady` has those behind ten of them.
    """

    io_bytes: int
    other_bytes: int
    samples: MemorySamples
    first_us: int | None
    steady: Latency
    copies: int | None
    digests: tuple[int, ...]

    def record(self) -> dict[str, object]:
        """The figures as they stand in a record's measurements."""
        return self.samples.record() | {
            "io_bytes": self.io_bytes,
            "first_inference_us": self.first_us,
            "steady_us": list(self.steady.times_us),
            "steady_median_us": self.steady.median_us,
            "steady_spread_us": self.steady.spread_us,
            "copies_shown": self.copies,
        }


def pairing_figures(
    transcript: Transcript, metadata: Mapping[str, Any], memory_bytes: int
) -> PairingFigures:
    """Takes the figures out of a process that ran `pairing_plan`.

    `memory_bytes` is all that a device needs for the context, by its metadata and what is known of
    the library.
    """
    io_bytes = sum(
        int(tensor.get("bytes", 0))
        for graph in metadata.get("graphs", [])
        for kind in ("inputs", "outputs")
        for tensor in graph.get(kind, [])
    )
    runs = [step for step in transcript.steps if step.verb == "io-run" and step.ok]
    timed = [whole_numbers(step.data.get("run_us")) for step in runs]
    return PairingFigures(
        io_bytes=io_bytes,
        other_bytes=max(0, memory_bytes - io_bytes),
        samples=memory_samples(transcript),
        first_us=timed[0][0] if timed and timed[0] else None,
        steady=Latency(tuple(timed[2]) if len(timed) > 2 else ()),
        copies=_copies(runs),
        digests=tuple(whole_numbers(runs[-1].data.get("digests")) if runs else ()),
    )


def judge_pairing(
    pairing: Pairing,
    figures: PairingFigures,
    twin: PairingFigures | None,
    base: PairingFigures | None,
    tolerances: Tolerances,
) -> list[Check]:
    """The checks of a process that came to a good end.

    `twin` is the pairing that is executed alike and prepared the other way; by the documentation it
    is as fast. `base` is raw memory prepared and executed, or the twin if this pairing is `base`
    itself. Each is None if this target does not give it.
    """
    documented = pairing.documented
    processes = (figures, twin, base)
    # where any of them shows buffers of the backend's, those that the others lack are not there
    visible = any(one is not None and one.samples.visible for one in processes)
    at_load = figures.io_bytes * documented.at_load
    growth = _Growth(figures, visible, tolerances.memory_part * figures.io_bytes)
    return [
        # with the I/O what the context needs besides (weights, spill-fill) may come, too
        growth.by(MEMORY[0], "before", "loaded", at_load, figures.other_bytes),
        growth.by(MEMORY[1], "bound", "first", figures.io_bytes * documented.at_first_inference),
        growth.by(MEMORY[2], "first", "tenth", 0),
        growth.by(MEMORY[3], "before", "freed", 0),
        _copied(documented.copied, figures, base),
        same_latency(
            LATENCY,
            figures.steady,
            None if twin is None else twin.steady,
            str(pairing.twin),
            tolerances.latency,
        ),
        _same_outputs(figures, base),
    ]


def untimed(check: Check) -> Check:
    """The check where times say nothing, as those of an emulated DSP."""
    if check.name != LATENCY:
        return check
    return undecided(LATENCY, "the DSP is emulated here, and its times tell nothing of a device's")


def disturbed(tolerances: Tolerances) -> Rules:
    """Which of the checks other processes can disturb."""

    def same(rounds: Sequence[Check]) -> Check:
        return same_in_rounds(rounds, tolerances.latency)

    latency = Disturbed(same, most=_ROUNDS, noisy=True)
    return dict.fromkeys(MEMORY, Disturbed()) | {LATENCY: latency}


@dataclass(frozen=True)
class _Growth:
    """What a process's shared buffers grew by; `slack` bytes count as nothing."""

    figures: PairingFigures
    visible: bool
    slack: float

    def by(self, name: str, start: str, end: str, expected: int, beside: int = 0) -> Check:
        """Whether they grew by so many bytes, or by these and what may come `beside`."""
        growth = self.figures.samples.growth(start, end)
        if growth is None or not self.visible:
            return self._blind(name, start, end)
        least, most = expected - self.slack, expected + beside + self.slack
        wanted = f"the I/O's {expected} bytes" if expected else "nothing"
        return held(
            name,
            growth <= most and (growth >= least or not expected),
            f"expected {wanted}, shared buffers grew by {growth} bytes from {start} to {end}",
            growth_bytes=growth,
            expected_bytes=expected,
            tolerance_bytes=round(self.slack),
        )

    def _blind(self, name: str, start: str, end: str) -> Check:
        samples = self.figures.samples
        if samples.growth(start, end) is None:
            return undecided(name, f"there is no sample {start} or {end}")
        rss = samples.rss_bytes.get(end, 0) - samples.rss_bytes.get(start, 0)
        why = f"the backend shares no buffers with a DSP here; RSS changed by {rss} bytes"
        return undecided(name, why, rss_growth_bytes=rss)


def _copied(expected: bool, figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "copies_per_inference"
    if figures.copies is None and (base is None or base.copies is None):
        return undecided(name, "no event of the profile tells of copies")
    copies = figures.copies or 0
    wanted = "copies" if expected else "no copies"
    reason = f"expected {wanted}, the profile shows {copies} per inference"
    return held(name, (copies > 0) == expected, reason, copies=copies)


def _same_outputs(figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "outputs_equal"
    if base is None:
        return undecided(name, "no other pairing gave outputs to compare with")
    same = bool(figures.digests) and figures.digests == base.digests
    return held(
        name, same, f"outputs {'equal' if same else 'differ from'} those of another pairing"
    )


def _copies(runs: Sequence[StepResult]) -> int | None:
    """How many copies the last profile tells of; None if no event of it is about copies."""
    events = [event for step in runs for event in step.data.get("profile_events") or ()]
    found = [
        event
        for event in events
        if isinstance(event, dict) and _COPY.search(str(event.get("name", "")))
    ]
    if not found:
        return None
    return sum(
        value if event.get("unit") == _COUNT_UNIT else 1
        for event in found
        if type(value := event.get("value")) is int and value > 0
    )
