"""Memory types of a context's tensors: how it was prepared, how it is executed (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.contexts.session_plan import DeployedContext, Libraries, session_start
from harness.errors import ConfigError
from harness.probe.memory_steps import (
    TENSOR_MEMORIES,
    TensorMemory,
    io_bind,
    io_release,
    io_run,
    memory_sample,
)
from harness.probe.plan import Plan, Settings, Step, context_free, context_load

STEADY_RUNS: Final = 30
WARM_RUNS: Final = 10
"""The first inference and nine more; what is timed as steady comes behind them."""


@dataclass(frozen=True)
class Pairing:
    """How a context's tensors were prepared, and how they are executed."""

    prepare: TensorMemory
    execute: TensorMemory

    def __post_init__(self) -> None:
        for field, value in (("prepare", self.prepare), ("execute", self.execute)):
            if value not in TENSOR_MEMORIES:
                raise ConfigError(f"no memory {value!r}", field=field, choices=TENSOR_MEMORIES)

    def __str__(self) -> str:
        return f"{self.prepare}-{self.execute}"

    @property
    def twin(self) -> Pairing:
        """What is prepared the other way and executed alike."""
        (other,) = (memory for memory in TENSOR_MEMORIES if memory != self.prepare)
        return Pairing(other, self.execute)


@dataclass(frozen=True)
class Documented:
    """What the QNN documentation says of a pairing: when I/O is allocated, and whether copied."""

    at_load: bool
    at_first_inference: bool
    copied: bool


DOCUMENTED: Final[Mapping[Pairing, Documented]] = MappingProxyType(
    {
        Pairing("raw", "raw"): Documented(at_load=True, at_first_inference=False, copied=True),
        Pairing("raw", "memhandle"): Documented(True, at_first_inference=False, copied=False),
        Pairing("memhandle", "raw"): Documented(False, at_first_inference=True, copied=True),
        Pairing("memhandle", "memhandle"): Documented(False, False, copied=False),
    }
)
PAIRINGS: Final = tuple(DOCUMENTED)


def prepared_memory(context: DeployedContext) -> str:
    """What the binary says its tensors were prepared for; "mixed" if they differ."""
    kinds = {
        tensor.get("memory_type")
        for graph in context.context.metadata.get("graphs", [])
        for kind in ("inputs", "outputs")
        for tensor in graph.get(kind, [])
    }
    return {frozenset({0}): "raw", frozenset({1}): "memhandle"}.get(frozenset(kinds), "mixed")


def pairing_plan(
    libraries: Libraries,
    deployed: DeployedContext,
    execute: TensorMemory,
    settings: Settings = Settings(memory="off"),  # noqa: B008 - it is frozen
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
        io_bind(0, execute, inputs=deployed.inputs, expected=deployed.expected),
        memory_sample("bound"),
        io_run(0, tolerance=tolerance),
        memory_sample("first"),
        io_run(0, tolerance=tolerance, repeat=WARM_RUNS - 1),
        memory_sample("tenth"),
        io_run(0, tolerance=tolerance, repeat=STEADY_RUNS),
        io_run(0, tolerance=tolerance, profile="detailed"),
        Step("cleanup"),
        io_release(0),
        context_free(0),
        memory_sample("freed"),
    )
    ends = (Step("device-free"), Step("backend-free"))
    return Plan((*session_start(libraries), *moves, *ends), settings)
