"""What to leave away of a case that fails: delta debugging over contexts and residency (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar, get_args

from harness.contexts.context.schedule import Residency
from harness.search.bisect.answers import Point

_SIMPLER: Final[tuple[Residency, ...]] = ("sequential", "window")
"""What is tried instead of `resident`: the fewer are loaded at once, the simpler."""

Element = TypeVar("Element")


@dataclass(frozen=True)
class Way:
    """A way to run contexts: which ones, by their numbers, in the order in which they are loaded.

    Contexts with one number are one binary with one set of inputs.
    """

    order: tuple[int, ...]
    residency: Residency

    @classmethod
    def at(cls, point: Point) -> Way:
        """The way that a search calls so. Raises ValueError for what is none."""
        residency, order = point
        known: dict[str, Residency] = {one: one for one in get_args(Residency)}
        if residency not in known:
            raise ValueError(f"{residency!r} is no residency")
        return cls(tuple(map(int, order.split(","))), known[residency])

    @property
    def point(self) -> Point:
        return self.residency, ",".join(map(str, self.order))

    @property
    def reversed(self) -> Way:
        return replace(self, order=self.order[::-1])


@dataclass(frozen=True)
class WayAnswer:
    """Whether a way fails as it is to; `context` is the place in its order where it does."""

    fails: bool
    context: int | None = None


Ask = Callable[[Way], WayAnswer]
"""Whether a way fails. It is asked again and again, and always answers alike for a way."""


def shrunk(start: Way, ask: Ask) -> Iterator[Way]:
    """Ever smaller ways that fail, beginning with `start`, which does.

    Nothing can be left away of the last one: it passes without any one of its contexts. Contexts
    keep their order. One context again and again, and a simpler residency, are tried first. The
    same answers lead to the same ways.
    """
    best = start
    yield best
    for step in (_cut, _one_kind, _cut, _simpler, _cut, _fewer_kinds, _fewer):
        for smaller in step(best, ask):
            best = smaller
            yield best


def without(
    items: Sequence[Element], fails: Callable[[Sequence[Element]], bool]
) -> Iterator[list[Element]]:
    """Ever fewer of the items, in their order, that still fail together; at least one is left.

    Of the last ones none can be left away alone. What is left away at once is doubled after each
    success. If most of n items are needed, n sets are asked for; if few matter, some log n for each
    of these.
    """
    left = list(items)
    while True:
        before, at, size = len(left), 0, 1
        while at < len(left):
            size = min(size, len(left) - at, len(left) - 1)
            fewer = left[:at] + left[at + size :]
            if size and fails(fewer):
                left = fewer
                yield left
                size *= 2
            elif size > 1:
                size //= 2
            else:
                at, size = at + 1, 1
        if len(left) == before:
            return


def _simpler(way: Way, ask: Ask) -> Iterator[Way]:
    for residency in _SIMPLER:
        if residency == way.residency or len(way.order) == 1:
            return
        if ask(found := replace(way, residency=residency)).fails:
            yield found
            return


def _cut(way: Way, ask: Ask) -> Iterator[Way]:
    context = ask(way).context
    if context is not None and context + 1 < len(way.order):
        found = replace(way, order=way.order[: context + 1])
        if ask(found).fails:
            yield found


def _fewer_kinds(way: Way, ask: Ask) -> Iterator[Way]:
    """Leaves away all equal contexts together: there are fewer such kinds to try."""
    kinds = list(dict.fromkeys(way.order))
    if len(kinds) == len(way.order):
        return

    def having(some: Sequence[int]) -> Way:
        return replace(way, order=tuple(one for one in way.order if one in some))

    for fewer in without(kinds, lambda some: ask(having(some)).fails):
        yield having(fewer)


def _fewer(way: Way, ask: Ask) -> Iterator[Way]:
    def having(some: Sequence[int]) -> Way:
        return replace(way, order=tuple(way.order[at] for at in some))

    for fewer in without(range(len(way.order)), lambda some: ask(having(some)).fails):
        yield having(fewer)


def _one_kind(way: Way, ask: Ask) -> Iterator[Way]:
    """Tries only the context that failed, or the one before it, instead of many different ones."""
    context = ask(way).context
    if context is None or len(set(way.order)) == 1:
        return
    for kind in dict.fromkeys(reversed(way.order[max(0, context - 1) : context + 1])):
        if ask(found := replace(way, order=(kind,) * len(way.order))).fails:
            yield found
            return
