"""In which order contexts are loaded, executed and freed, for each residency (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from harness.ground.errors import ConfigError

Residency = Literal["resident", "sequential", "window"]
RESIDENCIES: tuple[Residency, ...] = get_args(Residency)


@dataclass(frozen=True)
class Move:
    """One thing done to one context, counted from 0."""

    verb: Literal["load", "execute", "free"]
    context: int


@dataclass(frozen=True)
class Schedule:
    """`moves` happen in order until one fails; `frees` happen at the end whatever came before."""

    moves: tuple[Move, ...]
    frees: tuple[Move, ...]


def schedule(contexts: int, residency: Residency, window: int = 4) -> Schedule:
    """The moves that run `contexts` contexts with the given residency.

    `resident` loads all of them before the first executes; `sequential` loads, executes and frees
    one at a time; `window` keeps at most `window` loaded, freeing the oldest first. These are the
    report of pytorch/executorch#14985, its workaround, and the ground between them.

    Raises ConfigError for a number of contexts or a window below 1.
    """
    for what, given in (("the number of contexts", contexts), ("the window", window)):
        if given < 1:
            raise ConfigError(f"{what} must be at least 1, is {given}")
    if residency == "resident":
        return Schedule(
            moves=(*_each("load", range(contexts)), *_each("execute", range(contexts))),
            frees=tuple(_each("free", range(contexts))),
        )
    span = 1 if residency == "sequential" else window
    moves: list[Move] = []
    for index in range(contexts):
        if index >= span:
            moves.append(Move("free", index - span))
        moves += [Move("load", index), Move("execute", index)]
    # What a failure leaves loaded is not known here, so every context is freed at the end; the
    # probe skips the ones that are not loaded.
    return Schedule(moves=tuple(moves), frees=tuple(_each("free", range(contexts))))


def _each(verb: Literal["load", "execute", "free"], contexts: range) -> Iterator[Move]:
    return (Move(verb, index) for index in contexts)
