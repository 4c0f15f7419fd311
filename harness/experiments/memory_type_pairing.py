"""Memory types of a context's tensors: prepared with one, executed with another, as documented.

First come the plans and measurements, then the judgement, which is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from harness.bench.bench import Bench
from harness.bench.case_session import Observation, TargetFailure
from harness.core.error_codes import (
    DOCUMENTED,
    TENSOR_MEMORIES,
    Documented,
    TensorMemory,
    same_code,
)
from harness.core.errors import ConfigError
from harness.experiments.latency import (
    PART,
    Latency,
    MemorySamples,
    bind,
    memory_samples,
    quickest,
    same_latency,
    settled,
)
from harness.models.builtin_models import Model
from harness.models.contexts import Source
from harness.models.session_plan import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import io_release, io_run, memory_sample
from harness.probe.plan import Plan, ProfileLevel, Settings, context_free, context_load
from harness.probe.transcript import StepResult, Transcript
from harness.results.latency import steady_start
from harness.results.record import Check, held, undecided, whole_numbers

STEADY_RUNS: Final = 30
WARM_RUNS: Final = 10
"""The first inference and nine more, which precede the steady ones."""


@dataclass(frozen=True)
class Pairing:
    """The memory types that a context's tensors were prepared for, and are executed with."""

    prepare: TensorMemory
    execute: TensorMemory

    def __post_init__(self) -> None:
        for name, value in (("prepare", self.prepare), ("execute", self.execute)):
            if value not in TENSOR_MEMORIES:
                raise ConfigError(f"unknown memory {value!r}", field=name, choices=TENSOR_MEMORIES)

    def __str__(self) -> str:
        return f"{self.prepare}-{self.execute}"

    @property
    def documented(self) -> Documented:
        """The entry of the QNN documentation."""
        return DOCUMENTED[self.prepare, self.execute]

    @property
    def twin(self) -> Pairing:
        """The pairing with the same execution and the other preparation."""
        (other,) = (memory for memory in TENSOR_MEMORIES if memory != self.prepare)
        return Pairing(other, self.execute)


_LIBRARYS_OWN: Final = 2_200_000
"""The memory that the arm64 library maps with a context beyond its metadata (QNN 2.51.0)."""
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
DISTURBED: Final = {**dict.fromkeys(MEMORY, 2), LATENCY: 5}
"""The most rounds of checks that other processes can disturb."""

_REFERENCE: Final = Pairing("raw", "raw")


def prepared_memory(context: DeployedContext) -> str:
    """Return the memory type of the binary's tensors; "mixed" if they differ."""
    kinds = {tensor.get("memory_type") for tensor in _tensors(context.context.metadata)}
    return "raw" if kinds == {0} else "memhandle" if kinds == {1} else "mixed"


def _tensors(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for graph in metadata.get("graphs", []):
        yield from (*graph.get("inputs", []), *graph.get("outputs", []))


def by_memory(bench: Bench, sources: Sequence[Source]) -> dict[TensorMemory, Source]:
    """Return one source for each memory type: that of the model, or that in the file.

    The first source of a type counts. Files with tensors of both types are left out.
    """
    sources_by_memory: dict[TensorMemory, Source] = {}
    for source in sources:
        memory = (
            source.prepare
            if isinstance(source, Model)
            else prepared_memory(bench.contexts(source)[0])
        )
        for known in TENSOR_MEMORIES:
            if memory == known:
                sources_by_memory.setdefault(known, source)
    return sources_by_memory


def pairing_plan(
    libraries: Libraries,
    deployed: DeployedContext,
    execute: TensorMemory,
    *,
    profile: ProfileLevel = "detailed",
    steady_runs: int = STEADY_RUNS,
) -> Plan:
    """Return a plan that loads and executes a context, with memory samples in between.

    It is executed once, nine times, `steady_runs` times and once with a profile.

    The probe's buffers exist before the sample `bound`, so that later growth is the library's. Only
    the last execution is profiled, since profiling costs time.
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
        io_run(0, tolerance=tolerance, repeat=steady_runs),
        io_run(0, tolerance=tolerance, profile=profile),
    )
    frees = (io_release(0), context_free(0), memory_sample("freed", all_back=True))
    return within_session(libraries, moves, frees, Settings(memory="off"))


@dataclass(frozen=True)
class Tolerances:
    """The tolerances of figures, as parts of the I/O's size and of the smaller median.

    Memory below that part counts as nothing.
    """

    memory_part: float = 0.25
    latency_part: float = PART


def measure_pairing(
    bench: Bench, sources: Mapping[TensorMemory, Source], pairing: Pairing, tolerances: Tolerances
) -> None:
    """Run a context with the memory of a pairing and check the documented behaviour.

    `sources` maps memory types to a model that is prepared for them, as returned by `by_memory`;
    only the pairing's type is required. A pairing is compared with runs in other processes; if the
    target does not support these, the check is undecided. Checks that other processes may have
    disturbed are measured again. Raises TargetFailure if a process fails or a check does not hold.
    """
    (context,) = bench.contexts(sources[pairing.prepare])
    actual = prepared_memory(context)
    if actual != pairing.prepare:
        reason = (
            f"the compiler was asked for {pairing.prepare}, but prepared the context for {actual}"
        )
        bench.expect(held("prepared_as_asked", False, reason))
    timed = bench.device.simulated_dsp is None
    own_latencies: list[Latency] = []
    twin_latencies: list[Latency] = []

    def measured(before: int) -> list[Check]:
        observation = _observed(bench, context, pairing.execute, of_case=not before)
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
        own_latencies.append(figures.steady)
        figures = replace(figures, steady=quickest(own_latencies))
        if twin is not None:
            twin_latencies.append(twin.steady)
            twin = replace(twin, steady=quickest(twin_latencies))
        checks = judge_pairing(pairing, figures, twin, base, tolerances)
        return checks if timed else [untimed(check) for check in checks]

    bench.expect(*settled(measured, DISTURBED))


def _observed(
    bench: Bench, context: DeployedContext, execute: TensorMemory, *, of_case: bool = False
) -> Observation:
    """Run a pairing, profiled in detail if possible; `of_case`: its verdict is the case's.

    The arm64 library of QNN 2.51.0 refuses that for contexts whose binaries have no room for it.
    """
    libraries = bench.libraries()
    # an emulator's latencies are not judged, and 30 of them take it many seconds
    steady_runs = STEADY_RUNS if bench.device.simulated_dsp is None else 1
    plan = pairing_plan(libraries, context, execute, steady_runs=steady_runs)
    observation = bench.run(plan) if of_case else bench.attempt(plan)
    failure = observation.run.transcript.first_failure
    if failure is None or failure.verb != "io-run" or not same_code(failure.code, _NO_PROFILE):
        return observation
    plan = pairing_plan(libraries, context, execute, profile="basic", steady_runs=steady_runs)
    return bench.run(plan) if of_case else bench.attempt(plan)


def _compared(
    bench: Bench, sources: Mapping[TensorMemory, Source], pairing: Pairing
) -> PairingFigures | None:
    """Return the figures of another pairing; None if target or compiler do not support it.

    Raises NoVerdict if the lab failed.
    """
    if pairing.prepare not in sources:
        return None
    try:
        (context,) = bench.contexts(sources[pairing.prepare])
    except TargetFailure:
        return None  # its own case reports that
    observation = _observed(bench, context, pairing.execute)
    if observation.verdict.outcome == "error":
        observation.check()
    return (
        _pairing(bench, observation, context) if observation.verdict.outcome == "passed" else None
    )


def _pairing(bench: Bench, observation: Observation, deployed: DeployedContext) -> PairingFigures:
    context = deployed.context
    library_bytes = _LIBRARYS_OWN if bench.device.target.endswith("arm64") else 0
    memory_bytes = context.memory_bytes + library_bytes
    return pairing_figures(observation.run.transcript, context.metadata, memory_bytes)


@dataclass(frozen=True)
class PairingFigures:
    """The figures of one process with a pairing; `copies` is None if its profile has none.

    `first_us` is the first inference, `steady` has those after the first ten.
    """

    io_bytes: int
    other_bytes: int
    samples: MemorySamples
    first_us: int | None
    steady: Latency
    copies: int | None
    digests: tuple[int, ...]

    def record(self) -> dict[str, object]:
        """Return the figures as entries in a record's measurements."""
        return self.samples.record() | {
            "io_bytes": self.io_bytes,
            "first_inference_us": self.first_us,
            "steady_us": list(self.steady.times_us),
            "steady_p50_us": self.steady.p50_us,
            "steady_spread_us": self.steady.spread_us,
            "copies_shown": self.copies,
        }


def pairing_figures(
    transcript: Transcript, metadata: Mapping[str, Any], memory_bytes: int
) -> PairingFigures:
    """Return the figures of a process that ran `pairing_plan`.

    `memory_bytes` is all memory that a device needs for the context, by its metadata and the known
    needs of the library.
    """
    io_bytes = sum(int(tensor.get("bytes", 0)) for tensor in _tensors(metadata))
    runs = [step for step in transcript.steps if step.verb == "io-run" and step.ok]
    timed = [whole_numbers(step.data.get("run_us")) for step in runs]
    last = timed[2] if len(timed) > 2 else []
    return PairingFigures(
        io_bytes=io_bytes,
        other_bytes=max(0, memory_bytes - io_bytes),
        samples=memory_samples(transcript),
        first_us=timed[0][0] if timed and timed[0] else None,
        steady=Latency(tuple(last[steady_start(last) :])),
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
    """Return the checks of a process that ended well.

    `twin` is the pairing with the same execution and the other preparation, which should be as fast
    by the documentation. `base` is raw memory prepared and executed, or the twin if this pairing is
    `base` itself. Each is None if this target does not support it.
    """
    documented = pairing.documented
    processes = (figures, twin, base)
    # if any of them shows buffers of the backend, the others have none if they show none
    visible = any(process is not None and process.samples.visible for process in processes)
    at_load = figures.io_bytes * documented.at_load
    slack = tolerances.memory_part * figures.io_bytes
    grown = partial(_grown, figures, slack=slack, visible=visible)
    return [
        # weights and spill-fill may be allocated together with the I/O
        grown(MEMORY[0], "before", "loaded", at_load, extra=figures.other_bytes),
        grown(MEMORY[1], "bound", "first", figures.io_bytes * documented.at_first_inference),
        grown(MEMORY[2], "first", "tenth", 0),
        grown(MEMORY[3], "before", "freed", 0),
        _copied(documented.copied, figures, base),
        same_latency(
            LATENCY,
            figures.steady,
            None if twin is None else twin.steady,
            str(pairing.twin),
            tolerances.latency_part,
        ),
        _same_outputs(figures, base),
    ]


def untimed(check: Check) -> Check:
    """Return the check with latency undecided, for an emulated DSP."""
    if check.name != LATENCY:
        return check
    return undecided(LATENCY, "the DSP is emulated, so its times say nothing about a device")


def _grown(
    figures: PairingFigures,
    name: str,
    start: str,
    end: str,
    expected: int,
    *,
    slack: float,
    visible: bool,
    extra: int = 0,
) -> Check:
    """Check that shared buffers grew by the expected bytes, or up to `extra` more.

    `slack` bytes count as nothing.
    """
    growth = figures.samples.growth(start, end)
    if growth is None:
        return undecided(name, f"there is no memory sample {start!r} or {end!r}")
    if not visible:
        rss_bytes = figures.samples.rss_bytes
        rss = rss_bytes.get(end, 0) - rss_bytes.get(start, 0)
        reason = f"the backend shares no buffers with a DSP here; RSS changed by {rss} bytes"
        return undecided(name, reason)
    expectation = f"the I/O's {expected} bytes" if expected else "nothing"
    return held(
        name,
        growth <= expected + extra + slack and (growth >= expected - slack or not expected),
        f"expected {expectation}, shared buffers grew by {growth} bytes from {start} to {end}",
        growth_bytes=growth,
        expected_bytes=expected,
        tolerance_bytes=round(slack),
    )


def _copied(expected: bool, figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "copies_per_inference"
    if figures.copies is None and (base is None or base.copies is None):
        return undecided(name, "the profile has no event about copies")
    copies = figures.copies or 0
    expectation = "copies" if expected else "no copies"
    reason = f"expected {expectation}, the profile shows {copies} per inference"
    return held(name, (copies > 0) == expected, reason, copies=copies)


def _same_outputs(figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "outputs_equal"
    if base is None:
        return undecided(name, "no other pairing gave outputs to compare with")
    same = bool(figures.digests) and figures.digests == base.digests
    relation = "equal" if same else "differ from"
    return held(name, same, f"outputs {relation} those of another pairing")


def _copies(runs: Sequence[StepResult]) -> int | None:
    """Return the number of copies in the profiles; None if they have no event about copies."""
    events = [event for step in runs for event in step.data.get("profile_events") or ()]
    copies = [
        event
        for event in events
        if isinstance(event, dict) and _COPY.search(str(event.get("name", "")))
    ]
    if not copies:
        return None
    return sum(
        value if event.get("unit") == _COUNT_UNIT else 1
        for event in copies
        if type(value := event.get("value")) is int and value > 0
    )
