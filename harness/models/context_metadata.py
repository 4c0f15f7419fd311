"""Metadata of context binaries, read by libQnnSystem in the probe, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.containers.artefact import Piece, Tensor
from harness.core.error_codes import describe
from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.outgoing_text import counted
from harness.core.socs import HTP_ARCHS
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step, context_inspect, system_load
from harness.probe.plan_runner import run_plan_locally
from harness.probe.transcript import StepResult, damage, misfit

_TIMEOUT_S: Final = 60.0
_MOST_AT_ONCE: Final = 4000

Sizes = Mapping[str, int]
"""Bytes of each tensor of a model by name."""


@dataclass(frozen=True)
class Unreadable:
    """Reason why the library does not read a binary, and what it logged."""

    reason: str
    log: str = ""


def read_each(
    probes: ProbeBuilder, system_library: Path, pieces: Sequence[Piece]
) -> list[dict[str, Any] | Unreadable]:
    """Return the metadata of binaries on this host, as the probe reports it (native/inspect.c).

    A damaged binary can crash or hang the library; the others are then read in a new process.
    Raises ConfigError if the probe cannot be built, InfraError if it, or the library, does not
    work.
    """
    probe = probes.build("linux-x64")
    answers: list[dict[str, Any] | Unreadable] = []
    while len(answers) < len(pieces):
        answers += _read(probe, system_library, pieces[len(answers) :])
    return answers


def _read(
    probe: Path, system_library: Path, pieces: Sequence[Piece]
) -> list[dict[str, Any] | Unreadable]:
    """Read in one process: all, or those up to the first that ends it (at least one)."""
    # after a cleanup a step runs even if those before it failed
    plan_steps = [system_load(str(system_library)), Step("cleanup")]
    for piece in pieces[:_MOST_AT_ONCE]:
        plan_steps.append(context_inspect(str(piece.path), offset=piece.offset, size=piece.size))
    run = run_plan_locally(probe, Plan(tuple(plan_steps)), env={}, timeout_s=_TIMEOUT_S)
    steps = run.transcript.steps
    if steps and steps[0].ended and steps[0].failed:
        reason = steps[0].message or steps[0].error or f"code {steps[0].code}"
        raise InfraError(f"{system_library.name} cannot be loaded on this computer: {reason}")
    answers = [_answer(step) for step in steps[2:] if step.ended]
    culprit = run.transcript.last_begun
    is_whole = culprit is None or culprit.ended or culprit.verb != "context-inspect"
    problem = misfit(run.transcript, run.plan) if is_whole else damage(run.transcript)
    if problem:
        number = counted(len(pieces), "context")
        raise InfraError(f"the probe did not read all of {number}: {problem}")
    if is_whole:
        return answers
    ending = f"crashes with signal {run.signal}" if run.signal else f"ends with {run.exit_code}"
    if run.timed_out:
        ending = f"does not finish within {_TIMEOUT_S:g} s"
    return [*answers, Unreadable(f"{system_library.name} {ending}")]


def _answer(step: StepResult) -> dict[str, Any] | Unreadable:
    if not step.failed:
        return dict(step.data)
    known = describe(step.code).symbol if step.code else None
    reason = step.message or step.error or f"returned {step.code} ({known or 'unknown code'})"
    if known == "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY":
        reason += ": it is truncated or damaged, or of a newer QNN"
    log = "\n".join(line.text for line in step.logs)
    return Unreadable(f"{step.api or step.verb} {reason}", log)


def graphs_named(
    metadata: Mapping[str, Any], binary: Path, name: str | None
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the graph of this name, or all graphs of a binary, with their numbers (pure).

    Raises ConfigError, naming the graphs, if there is none.
    """
    graphs = list(enumerate(entries(metadata, "graphs")))
    names = [str(graph.get("name")) for _, graph in graphs]
    if name is not None and name in names:
        return [graphs[names.index(name)]]
    if name is None and graphs:
        return graphs
    problem = "has no graph" if name is None else f"has no graph {name!r}"
    raise ConfigError(problem, file=binary, field="graph", choices=names or None)


def tensors_of(
    graph: Mapping[str, Any], kind: Literal["inputs", "outputs"], binary: Path
) -> list[Tensor]:
    """Return the inputs or outputs of a graph, in its order (pure).

    Raises ConfigError for a tensor whose size is not known before it runs.
    """
    tensors = []
    for entry in entries(graph, kind):
        size, dimensions = _number(entry, "bytes"), entry.get("dimensions")
        shape = tuple(dimensions) if isinstance(dimensions, list) else None
        tensor = Tensor(str(entry.get("name")), size, str(entry.get("data_type")), shape)
        if tensor.size <= 0:
            problem = f"the size of {tensor.name} is unknown: {entry.get('dimensions')}"
            raise ConfigError(problem, file=binary, field=kind)
        tensors.append(tensor)
    return tensors


def named_build(metadata: Mapping[str, Any]) -> str | None:
    """Return the QNN build that a binary names as its compiler (pure)."""
    build = metadata.get("build_id")
    return build.removeprefix("v") if isinstance(build, str) and build else None


def check_arch(metadata: Mapping[str, Any], complaint: str, htp_arch: int) -> None:
    """Raise VersionError if the binary is for another HTP architecture than asked for (pure).

    For an architecture that it does not know, the compiler silently uses another.
    """
    actual = metadata.get("dsp_arch")
    if actual is not None and actual != htp_arch:
        raise VersionError(
            f"{complaint}: the compiler made one for HTP v{actual} instead of v{htp_arch}",
            field="htp_arch",
            choices=HTP_ARCHS,
        )


def needs(metadata: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the bytes that a context needs by its metadata; None if its format is too old (pure).

    Weights and I/O are sums over the graphs. Spill-fill and VTCM are used by one graph at a time,
    so the largest counts.
    """

    def of_all(key: str, combined: Callable[[list[int]], int]) -> int | None:
        known = [_number(graph, key) for graph in entries(metadata, "graphs") if key in graph]
        return combined(known) if known else None

    return {
        "weights_bytes": of_all("const_bytes", sum),
        "io_bytes": of_all("io_bytes", sum),
        "spill_fill_bytes": of_all("spill_fill_bytes", max),
        "vtcm_bytes": of_all("vtcm_bytes", max),
    }


def memory_bytes(metadata: Mapping[str, Any]) -> int:
    """Return the bytes of I/O, constants and spill-fill of a context by its metadata (pure).

    Spill-fill is shared by the graphs of a context, so the largest counts. If the binary's format
    is too old, the sizes of the tensors and of the binary are used.
    """
    figures = needs(metadata)
    if figures["io_bytes"] is not None:
        return sum(figures[key] or 0 for key in ("io_bytes", "weights_bytes", "spill_fill_bytes"))
    tensors = [
        tensor
        for graph in entries(metadata, "graphs")
        for tensor in (*entries(graph, "inputs"), *entries(graph, "outputs"))
    ]
    total = _number(metadata, "size") + sum(_number(tensor, "bytes") for tensor in tensors)
    return total + (figures["spill_fill_bytes"] or 0)


def entries(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return a list of the metadata, such as `graphs`; empty if there is none."""
    value = parent.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _number(parent: Mapping[str, Any], key: str) -> int:
    value = parent.get(key)
    return value if isinstance(value, int) else 0
