"""The plan of one QNN session: set up, work through a schedule of contexts, take down (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.contexts.compile import Context
from harness.contexts.schedule import Move, Schedule
from harness.probe.plan import (
    Plan,
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
    """A context binary on a device, with its inputs and expected outputs beside it (paths)."""

    context: Context
    binary: str
    inputs: tuple[str, ...]
    expected: tuple[str, ...]


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
) -> Plan:
    """The plan for a schedule; context number i is made from `contexts[i % len(contexts)]`."""
    return Plan(
        steps=(
            *session_start(libraries),
            *_steps(contexts, steps.moves),
            Step("cleanup"),
            *_steps(contexts, steps.frees),
            Step("device-free"),
            Step("backend-free"),
        ),
        settings=settings,
    )


def session_start(libraries: Libraries) -> Iterator[Step]:
    """The steps that come before the first context."""
    yield backend_load(libraries.backend)
    if libraries.system is not None:
        yield system_load(libraries.system)
    yield Step("log-create")
    yield Step("backend-create")
    yield device_create()


def _steps(contexts: Sequence[DeployedContext], moves: Sequence[Move]) -> Iterator[Step]:
    for move in moves:
        deployed = contexts[move.context % len(contexts)]
        if move.verb == "load":
            yield context_load(move.context, deployed.binary)
        elif move.verb == "free":
            yield context_free(move.context)
        else:
            yield execute(
                move.context,
                inputs=deployed.inputs,
                expected=deployed.expected,
                tolerance=deployed.context.tolerance,
            )
