"""Contexts of a case: their sources, the order in which they load, and the plan of a session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self, get_args, runtime_checkable

from harness.core.context_options import any_of
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.models.context_metadata import entries, named_build, needs
from harness.probe.ort_plan import context_load_list
from harness.probe.plan import (
    DEFAULT_WINDOW,
    LIMITS,
    ONCE,
    Plan,
    Rounds,
    Settings,
    Step,
    backend_load,
    context_free,
    context_load,
    device_create,
    execute,
    system_load,
)

# The ids of libQnnSystem.
BACKENDS_BY_ID: Final[Mapping[object, str]] = MappingProxyType({4: "gpu", 6: "htp"})

ON_CPU: Final = "ONNX Runtime on the CPU"
GIVEN: Final = "the expected files"
"""Origins of reference outputs, in plain words."""

ANY_DISTANCE: Final = 1e299
"""Tolerance of outputs with other conditions: the probe accepts less than 1e300."""


MADE_UP: Final = "made up"
IN_RANGE: Final = "made up in range"
READ: Final = "given"
"""Origins of inputs, in plain words."""

CONDITIONS: Final = "--limit max-error, min-cosine or min-sqnr"


@dataclass(frozen=True)
class ClosenessLimits:
    """A user's conditions for every output; None: the figure is only reported.

    `max_relative` limits the largest error relative to the largest value. `original` is the .onnx
    whose outputs are the reference, if it is not the model itself.
    """

    max_error: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    original: Path | None = None
    max_relative: float | None = None

    def __post_init__(self) -> None:
        for name, value, least, most, valid in (
            ("max-error", self.max_error, 0.0, math.inf, "0 or more"),
            ("min-cosine", self.min_cosine, -1.0, 1.0, "from -1 to 1"),
            ("min-sqnr", self.min_sqnr, -math.inf, math.inf, "a number of dB"),
        ):
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise ConfigError(f"{value} is not {valid}", field=f"--limit {name}")

    def __bool__(self) -> bool:
        """Return True if there is any condition."""
        return replace(self, original=None) != ClosenessLimits()


@runtime_checkable
class ContextSource(Protocol):
    """A source of contexts for tests. Its `str` names it in cases, axes and reports.

    Sources are values: equal ones have the same contexts. A source that is `compiled` has a binary
    for each QNN compiler and HTP architecture; any other has one binary. Outputs may differ from
    the expected ones by `tolerance`, in units of the raw values.
    """

    @property
    def compiled(self) -> bool:
        """True if contexts are compiled here: a test then has that axis."""

    @property
    def tolerance(self) -> float:
        """Largest difference of an output from the expected one."""

    def seen_from(self, folder: Path) -> Self:
        """Return this source with relative paths resolved against the folder of the test."""


@dataclass(frozen=True)
class Context:
    """A context binary on the host, with its files and facts (size in bytes).

    `compiler` is the QNN version that compiled it here, else None. `inputs` and `expected` are raw
    files, one per tensor in the order of graph number `graph`; with an empty `expected` nothing is
    compared. `generated_inputs`: the user gave none. `reference` are such files that outputs are
    compared with for the report only; `against` says in plain words what they are. `memory_bytes`
    are the bytes of I/O, constants and spill-fill by the metadata. `max_size` is the spill-fill
    size that ORT's EPContext model states, if any. `others` are this binary once more for each
    other graph that is executed, with the files of that graph.
    """

    path: Path
    sha256: str
    size: int
    source: ContextSource
    compiler: str | None
    htp_arch: int | None
    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
    tolerance: float
    metadata: Mapping[str, Any]
    memory_bytes: int
    max_size: int | None = None
    graph: int = 0
    generated_inputs: bool = False
    others: tuple[Context, ...] = ()
    reference: tuple[Path, ...] = ()
    against: str = ""

    @property
    def graph_name(self) -> str | None:
        """Name of the graph if the binary has several."""
        graphs = entries(self.metadata, "graphs")
        return str(graphs[self.graph].get("name")) if len(graphs) > 1 else None

    @property
    def made_by(self) -> str | None:
        """QNN version of the compiler, else the build that the binary names."""
        return self.compiler or named_build(self.metadata)

    @property
    def backend(self) -> str | None:
        """Backend that the binary is for, if it names one."""
        return BACKENDS_BY_ID.get(self.metadata.get("backend_id"))

    def facts(self) -> dict[str, object]:
        """Return the facts that a record has of a context that was not compiled here."""
        executed = (self, *self.others)
        return {
            "sha256": self.sha256,
            "bytes": self.size,
            "build_id": self.metadata.get("build_id"),
            "htp_arch": self.htp_arch,
            **needs(self.metadata),
            "inputs": "generated" if self.generated_inputs else "given",
            "outputs": "compared" if self.expected else "nothing expected",
            **({"graphs": [context.graph_name for context in executed]} if self.graph_name else {}),
        }


def add_context_facts(known: Mapping[str, Any], contexts: Iterable[Context]) -> dict[str, Any]:
    """Add the facts of context files, by name (pure); a second one of that name is `name (2)`."""
    merged = dict(known)
    for context in contexts:
        name, facts, number = str(context.source), context.facts(), 1
        while merged.setdefault(name, facts) != facts:
            number += 1
            name = f"{context.source} ({number})"
    return merged


@dataclass(frozen=True)
class Reference:
    """Raw files of a model's inputs and of ORT's outputs on the CPU, in the order of the model."""

    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]


Residency = Literal["resident", "sequential", "window"]
RESIDENCIES: tuple[Residency, ...] = get_args(Residency)


@dataclass(frozen=True)
class Move:
    """One thing done to one context, counted from 0."""

    verb: Literal["load", "execute", "free"]
    context: int


@dataclass(frozen=True)
class Schedule:
    """`moves` happen in order until one fails; `frees` happen at the end in any case."""

    moves: tuple[Move, ...]
    frees: tuple[Move, ...]


def schedule(contexts: int, residency: Residency, window: int = DEFAULT_WINDOW) -> Schedule:
    """Return the moves that run `contexts` contexts with the given residency.

    `resident` loads all of them before the first executes; `sequential` loads, executes and frees
    one at a time; `window` keeps at most `window` loaded, freeing the oldest first. The first two
    are the report of pytorch/executorch#14985 and its workaround.

    Raises ConfigError for a number of contexts or a window below 1.
    """
    for name, number in (("the number of contexts", contexts), ("the window", window)):
        if number < 1:
            raise ConfigError(f"{name} must be at least 1, is {number}")
    span = 1 if residency == "sequential" else window
    moves: list[Move] = []
    if residency == "resident":
        moves += [Move("load", index) for index in range(contexts)]
        moves += [Move("execute", index) for index in range(contexts)]
    else:
        for index in range(contexts):
            if index >= span:
                moves.append(Move("free", index - span))
            moves += [Move("load", index), Move("execute", index)]
    # A failure may leave any context loaded, so every one is freed at the end; the probe skips
    # those that are not loaded.
    return Schedule(tuple(moves), tuple(Move("free", index) for index in range(contexts)))


@dataclass(frozen=True)
class Libraries:
    """Paths on the device of the libraries that a session opens; `system` may be None."""

    backend: str
    system: str | None


@dataclass(frozen=True)
class DeployedContext:
    """A context binary on a device, with its inputs and expected outputs beside it (paths).

    `others` are such contexts, one for each other graph of the binary that is executed.
    """

    context: Context
    binary: str
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    others: tuple[DeployedContext, ...] = ()

    def only_graph(self) -> int:
        """Return the one graph to execute. Raises ConfigError if there are several."""
        if self.others:
            names = [str(deployed.context.graph_name) for deployed in (self, *self.others)]
            graphs = counted(len(names), "graph")
            problem = f"{self.context.source} has {graphs}; name the one to execute"
            raise ConfigError(problem, field="graph", choices=names)
        return self.context.graph


@dataclass(frozen=True)
class DeployedModel:
    """A model on a device: its ONNX file, inputs and the outputs of ORT's CPU provider (paths)."""

    file: str
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    tolerance: float


def session_plan(
    libraries: Libraries,
    contexts: Sequence[DeployedContext],
    steps: Schedule,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    *,
    save_below: str | None = None,
    rounds: Rounds = ONCE,
    options: Mapping[str, object] | None = None,
) -> Plan:
    """Return the plan for a schedule; context number i is `contexts[i % len(contexts)]`.

    Each context's outputs are saved once, below the folder `save_below` (`saved_output`). Each
    graph is executed `rounds` times; all of them share its time budget. With `options` of a list,
    contexts that load one after another are loaded as lists.
    """
    graphs = [1 + len(deployed.others) for deployed in contexts]
    executed = [move.context % len(graphs) for move in steps.moves if move.verb == "execute"]
    each = rounds.shared(sum(graphs[context] for context in executed))
    moves = [*_steps(contexts, steps.moves, save_below, each, options)]
    if options and any_of(options, "list"):
        moves = [*_as_lists(moves, options)]
    return within_session(libraries, moves, _steps(contexts, steps.frees), settings)


def within_session(
    libraries: Libraries, steps: Iterable[Step], frees: Iterable[Step], settings: Settings
) -> Plan:
    """Return a plan of the steps in a session, with `frees` run before its end in any case."""
    ends = (Step("cleanup"), *frees, Step("device-free"), Step("backend-free"))
    return Plan((*session_start(libraries), *steps, *ends), settings)


def session_start(libraries: Libraries) -> Iterator[Step]:
    """Yield the steps before the first context."""
    yield backend_load(libraries.backend)
    if libraries.system is not None:
        yield system_load(libraries.system)
    yield Step("log-create")
    yield Step("backend-create")
    yield device_create()


def graph_of(contexts: Sequence[DeployedContext], step: Step) -> str | None:
    """Return the graph that a step of a schedule executes, if its context has several."""
    if step.verb != "execute":
        return None
    deployed = contexts[int(step.fields["context"]) % len(contexts)]
    names = {
        other.context.graph: other.context.graph_name for other in (deployed, *deployed.others)
    }
    return names.get(int(step.fields["graph"]))


def saved_output(folder: str, context: int, graph: int, output: int) -> str:
    """Return the path of a saved output of a context's graph below a folder."""
    return f"{folder}/{context}.{graph}.{output}.raw"


def _steps(
    contexts: Sequence[DeployedContext],
    moves: Sequence[Move],
    save_below: str | None = None,
    rounds: Rounds = ONCE,
    options: Mapping[str, object] | None = None,
) -> Iterator[Step]:
    for move in moves:
        deployed = contexts[move.context % len(contexts)]
        if move.verb == "load":
            yield context_load(move.context, deployed.binary, options=options)
        elif move.verb == "free":
            yield context_free(move.context)
        else:
            folder = save_below if move.context < len(contexts) else None
            for other in (deployed, *deployed.others):
                graph = other.context.graph
                outputs = other.context.metadata["graphs"][graph]["outputs"] if folder else ()
                saved = [
                    saved_output(folder or "", move.context, graph, index)
                    for index in range(len(outputs))
                ]
                # without expected outputs they are compared with each other
                for share in (rounds,) if other.expected else rounds.halves():
                    yield execute(
                        move.context,
                        graph=graph,
                        inputs=other.inputs,
                        expected=other.expected,
                        saved=saved,
                        tolerance=other.context.tolerance,
                        repeat=share,
                    )


def _as_lists(steps: Iterable[Step], options: Mapping[str, object]) -> Iterator[Step]:
    for is_load, group in groupby(steps, lambda step: step.verb == "context-load"):
        if not is_load:
            yield from group
            continue
        loads, most = list(group), LIMITS["LIST_MAX"]
        for part in (loads[start : start + most] for start in range(0, len(loads), most)):
            files = [step.fields["file"] for step in part]
            yield context_load_list(int(part[0].fields["context"]), files, options=options)
