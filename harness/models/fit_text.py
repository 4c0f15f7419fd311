"""What `qnn-harness contexts fit` tells: whether contexts fit, which does not, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, Literal

from harness.core.outgoing_text import counted
from harness.core.socs import limits_of_simulation
from harness.models.packing import Alternative, Room, Size, changes, forecast
from harness.models.source import Residency, schedule

MOST_CONTEXTS: Final = 8192
"""How many contexts can be asked about."""
_BAR_CHARS = 40


@dataclass(frozen=True)
class FitContext:
    """A context and the bytes that are reserved for it.

    `source`: `measured`, when the library loaded it alone, or `metadata`, where it did not say what
    it takes: then that is so many bytes at least, and `problem` says why. `refused`: it does not
    load it at all; `diagnosis` says of which known kind that is.
    """

    name: str
    bytes: int
    spill_fill_bytes: int
    source: Literal["measured", "metadata"]
    problem: str | None = None
    refused: bool = False
    diagnosis: str | None = None


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
    succeed. `changes` tells what would come of other ways; it is empty where all fit. A context
    that is refused even alone never fits: nothing is packed then, and `loads` counts those before.
    `fits` is None where nobody knows, as the library has no limit; `simulated` says what a limit
    that was measured on a simulator leaves open.
    `most` is how many of such contexts, in turn, can be loaded together (up to 8192); None where
    there is no limit, or they do not all fit.
    """

    schema: Literal[1]
    qnn: str
    residency: Residency
    budget_bytes: int | None
    sessions: int
    budget: Literal["given", "calibrated", "no limit"]
    fits: bool | None
    loads: int
    first_refused: FirstRefused | None
    contexts: tuple[FitContext, ...]
    domains: tuple[FitDomain, ...]
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
    """Whether the contexts fit (pure); `room` is None for a library that refuses nothing."""
    sizes = [Size(one.bytes, one.spill_fill_bytes) for one in contexts]
    limit = room or Room(sum(size.total for size in sizes))
    moves = schedule(len(sizes), residency, window).moves
    found, refused, loads = forecast(sizes, moves, limit), None, None
    if any(one.refused for one in contexts):
        order = [move.context for move in moves if move.verb == "load"]
        loads = next(at for at, context in enumerate(order) if contexts[context].refused)
    elif found.refused is not None:
        name, size = contexts[found.refused.context].name, sizes[found.refused.context]
        refused = FirstRefused(found.refused.load, name, size.total, found.refused.missing)
    return Fit(
        schema=1,
        qnn=qnn,
        residency=residency,
        budget_bytes=room.budget if room else None,
        sessions=limit.sessions,
        budget=budget if room else "no limit",
        fits=loads is None and found.fits and (room is not None or None),
        loads=found.loads if loads is None else loads,
        first_refused=refused,
        contexts=tuple(contexts),
        domains=tuple(map(FitDomain, found.domains, found.used)) if loads is None else (),
        changes=() if found.fits or loads is not None else tuple(changes(sizes, limit)),
        most=_most(contexts, room) if found.fits and loads is None else None,
        simulated=None
        if room is not None and budget == "given"
        else limits_of_simulation("capacity", "linux-x64", [qnn]),
    )


def _most(contexts: Sequence[FitContext], room: Room | None) -> int | None:
    if room is None:
        return None
    different = [Size(one.bytes, one.spill_fill_bytes) for one in dict.fromkeys(contexts)]
    sizes = list(islice(cycle(different), MOST_CONTEXTS))
    return forecast(sizes, schedule(len(sizes), "resident", 1).moves, room).loads


def fit_lines(told: Fit) -> Iterator[str]:
    """A `Fit` for people, each domain as a bar."""
    yield from _problems(told)
    how = f"QNN {told.qnn}, {told.residency}, budget {told.budget}"
    if any(one.refused for one in told.contexts):
        refused_ones = sum(one.refused for one in dict.fromkeys(told.contexts))
        refuses = f"QNN {told.qnn} refuses {counted(refused_ones, 'context')} even alone"
        yield f"does not fit: {refuses}; no budget changes that"
        return
    for number, domain in enumerate(told.domains):
        held = counted(len(domain.contexts), "context")
        if told.budget_bytes is None:
            yield f"{held} take {domain.used_bytes:,} bytes"
            yield f"not known whether they fit: {told.simulated}"
            yield "--budget BYTES gives a limit"
            yield from _what_counts(told)
            return
        filled = round(_BAR_CHARS * domain.used_bytes / told.budget_bytes)
        bar = "#" * filled + "." * (_BAR_CHARS - filled)
        yield f"PD {number} [{bar}] {domain.used_bytes:,} of {told.budget_bytes:,} bytes, {held}"
    if told.first_refused is None:
        yield f"all fit: {counted(len(told.contexts), 'context')} ({how})"
        if told.most is not None:
            more = " or more" if told.most == MOST_CONTEXTS else ""
            yield f"at most, taken in turn and kept loaded: {told.most}{more}"
        yield from _what_counts(told)
        yield from filter(None, [told.simulated])
        return
    refused = told.first_refused
    fitting = counted(refused.load, "context fits", "contexts fit")
    yield (
        f"{fitting}, the next does not ({refused.name}, "
        f"{refused.bytes:,} bytes): {refused.missing_bytes:,} bytes are missing ({how})"
    )
    yield from _what_counts(told)
    yield from filter(None, [told.simulated])
    for change in told.changes:
        if change.fits or change.loads > told.loads:
            answer = "all fit" if change.fits else f"{change.loads} fit"
            yield f"    {change.change}: {answer}"


def _what_counts(told: Fit) -> Iterator[str]:
    """Why a context takes more than `contexts inspect` says that it needs at least."""
    if any(one.source == "measured" for one in told.contexts):
        yield (
            "a context takes more than its data: weights are rounded up, and the VTCM and what the "
            "library adds count, too"
        )


def _problems(told: Fit) -> Iterator[str]:
    """What is wrong with contexts, each problem once, however many have it."""
    kinds: dict[tuple[str | None, ...], list[FitContext]] = {}
    for one in dict.fromkeys(told.contexts):
        if one.problem:
            at_least = None if one.refused else f"at least {one.bytes:,} bytes"
            kinds.setdefault((at_least, one.problem, one.diagnosis), []).append(one)
    for (at_least, problem, diagnosis), alike in kinds.items():
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        what = f"refused by QNN {told.qnn}" if at_least is None else at_least
        yield f"{alike[0].name}{more}: {what}; loaded alone: {problem}"
        if diagnosis:
            yield f"    {diagnosis}"
