"""Contexts of a case: where they come from, in which order they load, and the plan of a session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self, get_args, runtime_checkable

from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.models.metadata import entries, named_build, needs
from harness.probe.plan import (
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

# The ids that libQnnSystem gives them.
BACKENDS_BY_ID: Final[Mapping[object, str]] = MappingProxyType({4: "gpu", 6: "htp"})

ON_CPU: Final = "ONNX Runtime on the CPU"
GIVEN: Final = "the expected files"
"""What outputs are told against, in plain words."""

ANY_DISTANCE: Final = 1e299
"""The tolerance of outputs of which something else is asked: the probe takes less than 1e300."""


MADE_UP: Final = "made up"
IN_RANGE: Final = "made up in range"
READ: Final = "given"
"""What inputs are, in plain words."""

CONDITIONS: Final = "--max-error, --min-cosine, --min-sqnr"


@dataclass(frozen=True)
class ClosenessAsked:
    """What a user asks of every output; None: it is only told.

    `max_relative` is for the largest error as a part of the largest value. `original` is the .onnx
    whose outputs they are told against, where it is not the model itself.
    """

    max_error: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    original: Path | None = None
    max_relative: float | None = None

    def __post_init__(self) -> None:
        for option, value, least, most, valid in (
            ("--max-error", self.max_error, 0.0, math.inf, "0 or more"),
            ("--min-cosine", self.min_cosine, -1.0, 1.0, "from -1 to 1"),
            ("--min-sqnr", self.min_sqnr, -math.inf, math.inf, "a number of dB"),
        ):
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise ConfigError(f"{value} is not {valid}", field=option)

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return replace(self, original=None) != ClosenessAsked()


@runtime_checkable
class ContextSource(Protocol):
    """Something that tests take contexts of. Its `str` names it in cases, axes and reports.

    Sources are values: equal ones give the same contexts. A source that is `compiled` gives another
    binary for each QNN compiler and HTP architecture; any other has one binary. Outputs may differ
    from what is expected by `tolerance`, in units of the raw values.
    """

    @property
    def compiled(self) -> bool:
        """Whether a compiler is started here to make its contexts: a test has that axis then."""

    @property
    def tolerance(self) -> float:
        """By how much an output may differ from what is expected."""

    def seen_from(self, folder: Path) -> Self:
        """This source, with relative paths meant from a folder, which is that of the test."""


@dataclass(frozen=True)
class Context:
    """A context binary on the host, and what is known of it (size in bytes).

    `compiler` is the QNN version that was asked to make it, None for one that nobody made here.
    `inputs` and `expected` are raw files, one per tensor in the order of graph number `graph`;
    nothing is compared where `expected` is empty. `generated_inputs`: nobody gave any.
    `reference` are such files that outputs are told against, whatever comes of that; `against` says
    in plain words what they are. `memory_bytes` is what the metadata says a device needs for it:
    I/O, constants and spill-fill.
    `max_size` is what ORT's EPContext model says of its spill-fill (None: nothing). `others` are
    this binary once more for each other graph that is executed, with the files of that graph.
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
        """The graph's name where the binary has several, and may have it executed beside others."""
        graphs = entries(self.metadata, "graphs")
        return str(graphs[self.graph].get("name")) if len(graphs) > 1 else None

    @property
    def made_by(self) -> str | None:
        """The QNN version that made it: the compiler's, else the build that the binary names."""
        return self.compiler or named_build(self.metadata)

    @property
    def backend(self) -> str | None:
        """The backend that it is for, if it says so."""
        return BACKENDS_BY_ID.get(self.metadata.get("backend_id"))

    def facts(self) -> dict[str, object]:
        """What a record says of a context that nobody compiled here."""
        executed = (self, *self.others)
        return {
            "sha256": self.sha256,
            "bytes": self.size,
            "build_id": self.metadata.get("build_id"),
            "htp_arch": self.htp_arch,
            **needs(self.metadata),
            "inputs": "generated" if self.generated_inputs else "given",
            "outputs": "compared" if self.expected else "nothing expected",
            **({"graphs": [one.graph_name for one in executed]} if self.graph_name else {}),
        }


def with_files(told: Mapping[str, Any], files: Iterable[Context]) -> dict[str, Any]:
    """What a record says of files by name, with these added (pure); a second name is `name (2)`."""
    found = dict(told)
    for file in files:
        name, facts, number = str(file.source), file.facts(), 1
        while found.setdefault(name, facts) != facts:
            number += 1
            name = f"{file.source} ({number})"
    return found


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


@dataclass(frozen=True)
class Libraries:
    """Paths on the device of the libraries that a session opens; `system` None: it opens none."""

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
        """The graph to execute, where a single one can be. Raises ConfigError for several."""
        if self.others:
            names = [str(one.context.graph_name) for one in (self, *self.others)]
            graphs = counted(len(names), "graph")
            problem = f"{self.context.source} has {graphs}, and one is executed here"
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
) -> Plan:
    """The plan for a schedule; context number i is made from `contexts[i % len(contexts)]`.

    Each context's outputs are saved once, below the folder `save_below` (`saved_output`). `rounds`
    is how often each graph is executed; all of them share its time.
    """
    graphs = [1 + len(one.others) for one in contexts]
    executed = [one.context % len(graphs) for one in steps.moves if one.verb == "execute"]
    each = rounds.shared(sum(graphs[at] for at in executed))
    moves = _steps(contexts, steps.moves, save_below, each)
    frees = _steps(contexts, steps.frees)
    return within_session(libraries, moves, frees, settings)


def within_session(
    libraries: Libraries, steps: Iterable[Step], frees: Iterable[Step], settings: Settings
) -> Plan:
    """These steps once the backend is open; `frees` come before it is closed, whatever failed."""
    ends = (Step("cleanup"), *frees, Step("device-free"), Step("backend-free"))
    return Plan((*session_start(libraries), *steps, *ends), settings)


def session_start(libraries: Libraries) -> Iterator[Step]:
    """The steps that come before the first context."""
    yield backend_load(libraries.backend)
    if libraries.system is not None:
        yield system_load(libraries.system)
    yield Step("log-create")
    yield Step("backend-create")
    yield device_create()


def graph_of(contexts: Sequence[DeployedContext], step: Step) -> str | None:
    """Which graph a step of a schedule executes, where its context has several of them."""
    if step.verb != "execute":
        return None
    deployed = contexts[int(step.fields["context"]) % len(contexts)]
    number = int(step.fields["graph"])
    graphs = (one.context for one in (deployed, *deployed.others))
    return next((one.graph_name for one in graphs if one.graph == number), None)


def saved_output(folder: str, context: int, graph: int, output: int) -> str:
    """Where an output of a context's graph is saved below a folder."""
    return f"{folder}/{context}.{graph}.{output}.raw"


def _steps(
    contexts: Sequence[DeployedContext],
    moves: Sequence[Move],
    save_below: str | None = None,
    rounds: Rounds = ONCE,
) -> Iterator[Step]:
    for move in moves:
        deployed = contexts[move.context % len(contexts)]
        if move.verb == "load":
            yield context_load(move.context, deployed.binary)
        elif move.verb == "free":
            yield context_free(move.context)
        else:
            folder = save_below if move.context < len(contexts) else None
            for one in (deployed, *deployed.others):
                # without expected outputs they are compared with each other
                for part in (rounds,) if one.expected else rounds.halves():
                    yield execute(
                        move.context,
                        graph=one.context.graph,
                        inputs=one.inputs,
                        expected=one.expected,
                        saved=_saved(one, move.context, folder),
                        tolerance=one.context.tolerance,
                        repeat=part,
                    )


def _saved(deployed: DeployedContext, number: int, folder: str | None) -> Sequence[str]:
    if folder is None:
        return ()
    outputs = deployed.context.metadata["graphs"][deployed.context.graph]["outputs"]
    return [saved_output(folder, number, deployed.context.graph, at) for at in range(len(outputs))]
