"""Result of `qnn-harness model fit`: do the contexts fit, which does not, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, Literal

from harness.core.outgoing_text import counted
from harness.core.socs import limits_of_simulation
from harness.models.capacity_forecast import (
    Alternative,
    Domain,
    RefusedLoad,
    Room,
    Size,
    changes,
    forecast,
)
from harness.models.session_plan import Residency, schedule

MOST_CONTEXTS: Final = 8192
"""Most contexts of one forecast."""
_BAR_CHARS = 40


@dataclass(frozen=True)
class FitContext:
    """A context and the bytes that are reserved for it.

    `source`: `measured` if the library loaded it alone, or `metadata` if the library did not log
    its size: then `bytes` is a lower bound, and `problem` says why. `refused`: the library does not
    load it at all; `diagnosis` names the known kind of that failure.
    """

    name: str
    bytes: int
    spill_fill_bytes: int
    source: Literal["measured", "metadata"]
    problem: str | None = None
    refused: bool = False
    diagnosis: str | None = None


@dataclass(frozen=True)
class Fit:
    """The answer for one list of contexts, loaded in this order.

    Each of `sessions` protection domains has `budget_bytes`, None without a limit. So many `loads`
    succeed. `changes` are the outcomes of other ways to load them; empty if all fit. A context that
    is refused even alone never fits: nothing is packed then, and `loads` counts those before it.
    `fits` is None if it is unknown, as the library has no limit; `simulated` says what a limit
    measured on a simulator does not tell.
    `most` is how many such contexts, in turn, can be loaded together (up to 8192); None if there is
    no limit, or they do not all fit.
    """

    schema: Literal[1]
    qnn: str
    residency: Residency
    budget_bytes: int | None
    sessions: int
    budget: Literal["given", "calibrated", "no limit"]
    fits: bool | None
    loads: int
    first_refused: RefusedLoad | None
    contexts: tuple[FitContext, ...]
    domains: tuple[Domain, ...]
    changes: tuple[Alternative, ...]
    most: int | None = None
    simulated: str | None = None


def fit(
    qnn: str,
    contexts: Sequence[FitContext],
    room: Room | None,
    budget: Literal["given", "calibrated"],
    *,
    residency: Residency = "resident",
    window: int = 4,
) -> Fit:
    """Forecast if contexts fit (pure); `room` is None for a library that refuses nothing."""
    sizes = [Size(context.bytes, context.spill_fill_bytes) for context in contexts]
    limit = room or Room(sum(size.total for size in sizes))
    moves = schedule(len(sizes), residency, window).moves
    outcome, loads = forecast(sizes, moves, limit), None
    if any(context.refused for context in contexts):
        order = [move.context for move in moves if move.verb == "load"]
        loads = next(index for index, context in enumerate(order) if contexts[context].refused)
    most = None
    if room is not None and outcome.fits and loads is None:
        distinct = [Size(each.bytes, each.spill_fill_bytes) for each in dict.fromkeys(contexts)]
        in_turn = list(islice(cycle(distinct), MOST_CONTEXTS))
        most = forecast(in_turn, schedule(len(in_turn), "resident").moves, room).loads
    return Fit(
        schema=1,
        qnn=qnn,
        residency=residency,
        budget_bytes=room.budget if room else None,
        sessions=limit.sessions,
        budget=budget if room else "no limit",
        fits=loads is None and outcome.fits and (room is not None or None),
        loads=outcome.loads if loads is None else loads,
        first_refused=outcome.refused if loads is None else None,
        contexts=tuple(contexts),
        domains=outcome.domains if loads is None else (),
        changes=() if outcome.fits or loads is not None else tuple(changes(sizes, limit)),
        most=most,
        simulated=None
        if room is not None and budget == "given"
        else limits_of_simulation("capacity", "linux-x64", [qnn]),
    )


def fit_lines(answer: Fit) -> Iterator[str]:
    """Format a `Fit` as text, each domain as a bar."""
    yield from _problems(answer)
    # more than the lower bound of `model inspect`
    note = (
        "a context takes more than its weights and I/O: the library rounds them up, and adds VTCM "
        "and memory of its own"
    )
    is_measured = any(context.source == "measured" for context in answer.contexts)
    notes = [note if is_measured else "", answer.simulated or ""]
    source = "measured" if answer.budget == "calibrated" else answer.budget
    conditions = f"QNN {answer.qnn}, {answer.residency}, limit {source}"
    if any(context.refused for context in answer.contexts):
        refused_count = sum(context.refused for context in dict.fromkeys(answer.contexts))
        refuses = f"QNN {answer.qnn} refuses {counted(refused_count, 'context')} even alone"
        yield f"does not fit: {refuses}, whatever the budget"
        return
    for number, domain in enumerate(answer.domains):
        count = counted(len(domain.contexts), "context")
        if answer.budget_bytes is None:
            yield f"{count} take {domain.used_bytes:,} bytes"
            yield f"it is unknown whether they fit: {answer.simulated}"
            yield "set a limit with --budget BYTES"
            yield from filter(None, notes[:1])
            return
        filled = round(_BAR_CHARS * domain.used_bytes / answer.budget_bytes)
        bar = "#" * filled + "." * (_BAR_CHARS - filled)
        yield f"PD {number} [{bar}] {domain.used_bytes:,} of {answer.budget_bytes:,} bytes, {count}"
    if answer.first_refused is None:
        yield f"all fit: {counted(len(answer.contexts), 'context')} ({conditions})"
        if answer.most is not None:
            limit = "{} or more" if answer.most == MOST_CONTEXTS else "up to {}"
            yield f"with --copies, {limit.format(answer.most)} would fit"
        yield from filter(None, notes)
        return
    refused = answer.first_refused
    fitting = counted(refused.load, "context fits", "contexts fit")
    yield (
        f"{fitting}, the next does not ({answer.contexts[refused.context].name}, "
        f"{refused.bytes:,} bytes): {refused.missing_bytes:,} bytes are missing ({conditions})"
    )
    yield from filter(None, notes)
    for change in answer.changes:
        if change.fits or change.loads > answer.loads:
            outcome = "all fit" if change.fits else f"{change.loads} fit"
            yield f"    {change.change}: {outcome}"


def _problems(answer: Fit) -> Iterator[str]:
    """Yield the problems of contexts, each once, however many have it."""
    kinds: dict[tuple[str | None, ...], list[FitContext]] = {}
    for context in dict.fromkeys(answer.contexts):
        if context.problem:
            at_least = None if context.refused else f"at least {context.bytes:,} bytes"
            kinds.setdefault((at_least, context.problem, context.diagnosis), []).append(context)
    for (at_least, problem, diagnosis), contexts in kinds.items():
        more = f" and {len(contexts) - 1} more" if len(contexts) > 1 else ""
        size = f"refused by QNN {answer.qnn}" if at_least is None else at_least
        yield f"{contexts[0].name}{more}: {size}; loaded alone: {problem}"
        if diagnosis:
            yield f"    {diagnosis}"
