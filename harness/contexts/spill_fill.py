"""Contexts that share one spill-fill buffer: in which order, of what size, and what it saves.

Pure. The subject of microsoft/onnxruntime#22853: the buffer of a group is as large as the first
context to join says, so whoever is loaded first must know the largest need of all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from harness.contexts.session_plan import DeployedContext, Libraries, session_start
from harness.errors import ConfigError
from harness.probe.memory_steps import (
    context_load_list,
    context_load_shared,
    io_bind,
    io_release,
    io_run,
    memory_sample,
)
from harness.probe.plan import Plan, Settings, Step, context_free, context_load

Strategy = Literal["none", "naive", "max", "list-async"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
MAX_ORDERS: Final = 6


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

    @property
    def head(self) -> int:
        """The context that begins the group."""
        return self.order[0]

    def lines(self) -> Iterator[str]:
        """The plan for a person."""
        order = ", ".join(f"{at} ({self.needs[at]} B)" for at in self.order)
        how = {
            "none": "each with a buffer of its own",
            "list-async": "in one call that shares resources",
        }.get(self.strategy, f"in one group of {self.group_bytes} B, begun by {self.head}")
        yield f"{self.strategy}: load {order}, {how}"
        yield (
            f"expected spill-fill {self.expected_bytes} B of {sum(self.needs)} B, "
            f"saving {self.expected_saving_bytes} B"
        )
        if self.undersized:
            named = ", ".join(map(str, self.undersized))
            yield f"too small for {named}: to be refused"


def spill_fill_bytes(metadata: Mapping[str, Any]) -> int:
    """What a context needs for spill-fill by its metadata: its graphs share it."""
    graphs = metadata.get("graphs", [])
    return max((int(graph.get("spill_fill_bytes", 0)) for graph in graphs), default=0)


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
    settings: Settings = Settings(memory="off"),  # noqa: B008 - it is frozen
) -> Plan:
    """Loads as planned, executes in turns, frees in the given order.

    Two rounds over all contexts, so that each executes behind every other; whenever one was freed,
    those that are left execute once more, but for the last of them.
    """

    def runs(which: Sequence[int]) -> Iterator[Step]:
        return (io_run(at, tolerance=contexts[at].context.tolerance) for at in which)

    binds = [
        io_bind(at, "raw", inputs=contexts[at].inputs, expected=contexts[at].expected)
        for at in sharing.order
    ]
    steps: list[Step] = [
        memory_sample("before"),
        *_loads(contexts, sharing),
        memory_sample("loaded"),
        *binds,
        *runs(sharing.order),
        *runs(sharing.order),
        memory_sample("executed"),
    ]
    left = list(sharing.order)
    for at in release:
        left.remove(at)
        steps += [io_release(at), context_free(at)]
        steps += runs(left) if len(left) > 1 else ()
    steps += [memory_sample("freed"), Step("cleanup")]
    # What a failure leaves behind; the probe skips what is free already.
    steps += [step for at in release for step in (io_release(at), context_free(at))]
    ends = (Step("device-free"), Step("backend-free"))
    return Plan((*session_start(libraries), *steps, *ends), settings)


def _loads(contexts: Sequence[DeployedContext], sharing: SharingPlan) -> Iterator[Step]:
    if sharing.strategy == "list-async":
        yield context_load_list(0, [contexts[at].binary for at in sharing.order])
        return
    for at in sharing.order:
        if sharing.group_bytes is None:
            yield context_load(at, contexts[at].binary)
        else:
            yield context_load_shared(
                at,
                contexts[at].binary,
                max_spill_fill_bytes=sharing.group_bytes,
                group=None if at == sharing.head else sharing.head,
            )
