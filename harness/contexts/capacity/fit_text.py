"""What `qnn-harness contexts fit` tells: whether contexts fit, which does not, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.contexts.capacity.packing import Alternative, Room, Size, changes, forecast
from harness.contexts.context.schedule import Residency, schedule
from harness.ground import counted

_BAR_CHARS = 40


@dataclass(frozen=True)
class FitContext:
    """A context and the bytes that are reserved for it.

    `source`: `measured`, when the library loaded it alone, or `metadata`, where that failed with
    `problem`: then it takes so many bytes at least.
    """

    name: str
    bytes: int
    spill_fill_bytes: int
    source: Literal["measured", "metadata"]
    problem: str | None = None


@dataclass(frozen=True)
class FirstRefused:
    """The first load that fails (from 0), of which context, and by how many bytes."""

    load: int
    name: str
    bytes: int
    missing_bytes: int


@dataclass(frozen=True)
class FitDomain:
    """What one protection domain holds when nothing more fits, or when most is loaded."""

    contexts: tuple[int, ...]
    used_bytes: int


@dataclass(frozen=True)
class Fit:
    """The answer for one list of contexts, loaded in this order.

    Each of `sessions` protection domains has `budget_bytes`, None without a limit. So many `loads`
    succeed. `changes` tells what would come of other ways; it is empty where all fit.
    """

    schema: Literal[1]
    qnn: str
    residency: Residency
    budget_bytes: int | None
    sessions: int
    budget: Literal["given", "calibrated", "no limit"]
    fits: bool
    loads: int
    first_refused: FirstRefused | None
    contexts: tuple[FitContext, ...]
    domains: tuple[FitDomain, ...]
    changes: tuple[Alternative, ...]


def fit(
    qnn: str,
    contexts: Sequence[FitContext],
    room: Room | None,
    budget: Literal["given", "calibrated"],
    *,
    residency: Residency = "resident",
    window: int = 4,
) -> Fit:
    """Whether the contexts fit (pure); `room` is None for a library that refuses nothing."""
    sizes = [Size(one.bytes, one.spill_fill_bytes) for one in contexts]
    limit = room or Room(sum(size.total for size in sizes))
    found = forecast(sizes, schedule(len(sizes), residency, window).moves, limit)
    refused = None
    if found.refused is not None:
        name, size = contexts[found.refused.context].name, sizes[found.refused.context]
        refused = FirstRefused(found.refused.load, name, size.total, found.refused.missing)
    return Fit(
        schema=1,
        qnn=qnn,
        residency=residency,
        budget_bytes=room.budget if room else None,
        sessions=limit.sessions,
        budget=budget if room else "no limit",
        fits=found.fits,
        loads=found.loads,
        first_refused=refused,
        contexts=tuple(contexts),
        domains=tuple(map(FitDomain, found.domains, found.used)),
        changes=() if found.fits else tuple(changes(sizes, limit)),
    )


def fit_lines(told: Fit) -> Iterator[str]:
    """A `Fit` for people, each domain as a bar."""
    for context in told.contexts:
        if context.problem:
            yield f"{context.name}: {context.bytes:,} bytes at least; alone: {context.problem}"
    for number, domain in enumerate(told.domains):
        held = counted(len(domain.contexts), "context")
        if told.budget_bytes is None:
            yield f"no limit: {held} take {domain.used_bytes:,} bytes"
            continue
        filled = round(_BAR_CHARS * domain.used_bytes / told.budget_bytes)
        bar = "#" * filled + "." * (_BAR_CHARS - filled)
        yield f"PD {number} [{bar}] {domain.used_bytes:,} of {told.budget_bytes:,} bytes, {held}"
    how = f"QNN {told.qnn}, {told.residency}, budget {told.budget}"
    if told.first_refused is None:
        yield f"all fit: {counted(len(told.contexts), 'context')} ({how})"
        return
    refused = told.first_refused
    yield (
        f"context {refused.load} ({refused.name}, {refused.bytes:,} bytes) is the first that does "
        f"not fit: {refused.missing_bytes:,} bytes are missing ({how})"
    )
    for change in told.changes:
        answer = "all fit" if change.fits else f"{change.loads} fit"
        yield f"    {change.change}: {answer}"
