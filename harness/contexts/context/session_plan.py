"""The plan of one QNN session: set up, work through a schedule of contexts, take down (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.contexts.context.schedule import Move, Schedule
from harness.contexts.context.source import Context
from harness.ground.errors import ConfigError
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
            problem = f"{self.context.source} has {len(names)} graphs, and one is executed here"
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
