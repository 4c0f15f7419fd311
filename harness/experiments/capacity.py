"""The number of contexts that fit, and the kind of that limit.

Separates the three explanations offered in pytorch/executorch#14985: a count of contexts, an
amount of memory (the address space of a protection domain), or a leak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.bench.bench import Bench
from harness.bench.case_session import Observation
from harness.core.error_codes import same_code
from harness.core.outgoing_text import counted
from harness.models.contexts import Source
from harness.models.session_plan import Move, Schedule, schedule
from harness.probe.plan import Settings
from harness.results.probe_figures import context_estimate
from harness.results.record import held

_MOST_SIZES = 3
_EXECUTED = 8
_NO_ROOM = 1002
"""QNN_COMMON_ERROR_MEM_ALLOC."""
_NO_MEMORY = Settings(memory="off")

LimitKind = Literal["bytes", "count", "leak", "none", "mixed", "unclear"]


def largest_that_fits(attempt: Callable[[int], int], cap: int) -> tuple[int, int | None]:
    """Find the largest number in 1..cap of which `attempt` loads all: try 1, cap, then bisect.

    Returns it and the smallest number seen refused, None if nothing was. Each call of `attempt`
    must use a process of its own, and return how many were loaded. After a refusal that number and
    the next are tried first, so that a consistent device needs two trials instead of log2(n). A
    device that contradicts these hints is bisected as usual.

    Raises ValueError for a cap below 1.
    """
    if cap < 1:
        raise ValueError(f"cap must be at least 1, not {cap}")
    fits, refused, number = 0, cap + 1, 1
    hints: list[int] = []
    while refused - fits > 1:
        loaded = attempt(number)
        if loaded == number:
            fits = number
        else:
            if refused == cap + 1:
                hints = [loaded, loaded + 1]
            refused = number
        if refused == cap + 1:
            number = cap
            continue
        hints = [hint for hint in hints if fits < hint < refused]
        number = hints.pop(0) if hints else (fits + refused) // 2
    return fits, refused if refused <= cap else None


def repeat_loads(attempt: Callable[[int], int], number: int) -> tuple[int, int]:
    """Load and free contexts in turn; return how many were loaded, and how many were tried.

    `attempt` uses a process of its own, and returns how many of a number were loaded. If not all
    were, twice as many are tried: a leak uses up the memory of that process, too.
    """
    loaded = attempt(number)
    if loaded < number:
        number *= 2
        loaded = attempt(number)
    return loaded, number


@dataclass(frozen=True)
class SizePoint:
    """The measurements of contexts of one size.

    `bytes_per_context` is the memory of one context: the estimate that the library prints when it
    refuses one (`estimate_source` "library"), else I/O, constants and spill-fill from the binary's
    metadata ("metadata"). `sequential_loads` of `sequential_tried` contexts were loaded and freed
    in turn in one process before one was refused.
    """

    label: str
    bytes_per_context: int
    estimate_source: Literal["library", "metadata"]
    fits: int
    refused_at: int | None
    sequential_loads: int
    sequential_tried: int


@dataclass(frozen=True)
class Limit:
    """The kind of a limit; if it is bytes, `budget_bytes` plus or minus `uncertainty_bytes`."""

    kind: LimitKind
    reason: str
    budget_bytes: int | None = None
    uncertainty_bytes: int | None = None
    count: int | None = None

    def __str__(self) -> str:
        if self.budget_bytes is None or self.uncertainty_bytes is None:
            return f"{self.kind}: {self.reason}"
        budget = f"{self.budget_bytes / 1e9:.3f} GB +/- {self.uncertainty_bytes / 1e9:.3f} GB"
        return f"{self.kind}, {budget}: {self.reason}"


def conclude(points: Sequence[SizePoint]) -> Limit:
    """Determine the kind of limit that the points show.

    With a budget of B bytes, n contexts of e bytes load exactly when n*e <= B < (n+1)*e. So each
    size that was refused confines B to an interval, and each that was not gives a lower bound. If
    these have a common range, the limit is bytes. If instead the same number fits whatever the
    size, it is a count. If contexts freed again still use it up, it is a leak.

    With one size only the kind is `unclear`. Raises ValueError without any point.
    """
    if not points:
        raise ValueError("nothing was measured")
    leaking = (point for point in points if point.sequential_loads < point.sequential_tried)
    if (worst := next(leaking, None)) is not None:
        return Limit(
            kind="leak",
            reason=f"{worst.label}: contexts loaded and freed one after another were refused after "
            f"{worst.sequential_loads} of {worst.sequential_tried}",
            count=worst.sequential_loads,
        )
    refused = [point for point in points if point.refused_at is not None]
    if not refused:
        most = max(points, key=lambda point: point.fits * point.bytes_per_context)
        return Limit(
            kind="none",
            reason=f"nothing was refused: {counted(most.fits, 'context')} of "
            f"{most.bytes_per_context:,} bytes each loaded together",
        )
    if len({point.bytes_per_context for point in points}) < 2:
        fits = ", ".join(f"{point.fits} x {point.bytes_per_context:,} bytes" for point in points)
        return Limit(
            kind="unclear",
            reason=f"{fits} fit; one size does not show if bytes or a count limits it",
            count=refused[0].fits,
        )
    low = max(point.fits * point.bytes_per_context for point in points)
    high = min((point.fits + 1) * point.bytes_per_context - 1 for point in refused)
    figures = ", ".join(
        f"{point.fits} x {point.bytes_per_context:,} bytes"
        + ("" if point.refused_at is not None else " or more")
        for point in points
    )
    counts = {point.fits for point in refused}
    same_count = len(counts) == 1 and all(point.fits <= max(counts) for point in points)
    if low <= high and not (same_count and len(refused) > 1):
        return Limit(
            kind="bytes",
            reason=f"one memory budget explains all sizes: {figures}",
            budget_bytes=(low + high) // 2,
            uncertainty_bytes=(high - low + 1) // 2,
        )
    if same_count:
        return Limit(
            kind="count",
            reason=f"the same number of contexts fits at all sizes: {figures}",
            count=max(counts),
        )
    return Limit(kind="mixed", reason=f"neither a memory budget nor a count explains {figures}")


def settled_limit(measure: Callable[[], Sequence[SizePoint]]) -> tuple[Limit, Sequence[SizePoint]]:
    """Return the limit and its points, measured again if nothing explains them.

    Others may have used memory of the DSP during some trials; a target that is mixed by itself will
    be mixed again. Raises ValueError like `conclude`.
    """
    points = measure()
    limit = conclude(points)
    if limit.kind == "mixed":
        points = measure()
        limit = conclude(points)
    return limit, points


def _refusal(observation: Observation) -> int | None:
    """Return the code with which a context was refused; None if none was."""
    failure = observation.run.transcript.first_failure
    if failure is None or failure.verb != "context-load":
        return None
    return failure.code or None


def fill(bench: Bench, source: Source, *, most: int) -> None:
    """Load contexts until one is refused, then execute some of those that fit in a new process.

    The refusal must be for lack of memory (1002). The first, the last and some contexts in between
    are executed, in any protection domain. Raises TargetFailure if a process fails differently.
    """
    (deployed,) = bench.contexts(source)
    loads = tuple(Move("load", number) for number in range(most))
    frees = tuple(Move("free", number) for number in range(most))
    result = bench.run(bench.context_plan([deployed], Schedule(loads, frees), _NO_MEMORY))
    refused = _refusal(result)
    if refused is not None:
        bench.accept_refusal()
    else:
        result.check()
    fits = result.loaded
    bench.measure(fits=fits)
    executed = {*range(0, fits, max(1, fits // _EXECUTED)), fits - 1} if fits else set()
    moves = (*loads[:fits], *(Move("execute", number) for number in sorted(executed)))
    bench.attempt(bench.context_plan([deployed], Schedule(moves, frees[:fits]), _NO_MEMORY)).check()
    bench.outputs_compared()
    if refused is None:
        bench.conclude(f"{counted(fits, 'context')} of {source} loaded together, none was refused")
        return
    message = f"{counted(fits, 'context')} of {source} loaded, the next was refused with {refused}"
    bench.expect(held("refused_for_want_of_memory", same_code(refused, _NO_ROOM), message))


def find_limit(
    bench: Bench, sources: Sequence[Source], *, cap: int
) -> tuple[Limit, Sequence[SizePoint]]:
    """Find how many contexts of each source fit at most, and what kind of limit that is.

    Every number is tried in a new process; a leak, or a limit that nothing explains, is measured
    twice. Of more than three sources the smallest, a middle one and the largest are used. Raises
    TargetFailure if a process crashes, hangs or fails for another reason than a refused load.
    """
    chosen = _three_sizes(bench, sources)
    return settled_limit(lambda: [_size_point(bench, source, cap) for source in chosen])


def _three_sizes(bench: Bench, sources: Sequence[Source]) -> Sequence[Source]:
    if len(sources) <= _MOST_SIZES:
        return sources
    needed = [deployed.context.memory_bytes for deployed in bench.contexts(*sources)]
    by_size = dict(zip(needed, sources, strict=True))
    sizes = sorted(by_size)
    return [by_size[sizes[place]] for place in dict.fromkeys((0, len(sizes) // 2, len(sizes) - 1))]


def _size_point(bench: Bench, source: Source, cap: int) -> SizePoint:
    (deployed,) = bench.contexts(source)
    estimates: list[int] = []

    def loads(steps: Schedule) -> Observation:
        observation = bench.attempt(bench.context_plan([deployed], steps, _NO_MEMORY))
        if _refusal(observation) is None or observation.verdict.outcome != "failed":
            observation.check()
        return observation

    def attempt(number: int) -> int:
        resident = schedule(number, "resident")
        observation = loads(Schedule(resident.moves[:number], resident.frees))
        estimates.extend(context_estimate(observation.run.transcript))
        return observation.loaded

    fits, refused_at = largest_that_fits(attempt, cap)

    def turns(number: int) -> int:
        in_turn = schedule(number, "sequential")
        moves = tuple(move for move in in_turn.moves if move.verb != "execute")
        return loads(Schedule(moves, in_turn.frees)).loaded

    loaded, tried = repeat_loads(turns, min(cap, (refused_at or cap) + 2))
    return SizePoint(
        label=str(source),
        bytes_per_context=max(estimates, default=deployed.context.memory_bytes),
        estimate_source="library" if estimates else "metadata",
        fits=fits,
        refused_at=refused_at,
        sequential_loads=loaded,
        sequential_tried=tried,
    )
