"""What a context binary says about itself: read by libQnnSystem in the probe, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.contexts.compiler import CompileError
from harness.errors import InfraError, VersionError
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, context_inspect, system_load
from harness.probe.run import run_plan_locally
from harness.qnn.socs import HTP_ARCHS

_TIMEOUT_S: Final = 60.0

Sizes = Mapping[str, int]
"""Bytes of each tensor of a model by name."""


def read_metadata(
    probes: ProbeBuilder, system_library: Path, binaries: Sequence[Path]
) -> list[dict[str, Any]]:
    """The metadata of binaries on this host, as the probe reports it (see native/inspect.c).

    Raises CompileError if the library does not read one of them, ConfigError if the probe cannot
    be built, InfraError if it does not run.
    """
    probe = probes.build("linux-x64")
    steps = [system_load(str(system_library))]
    steps += [context_inspect(str(path), context=at) for at, path in enumerate(binaries)]
    run = run_plan_locally(probe, Plan(tuple(steps)), env={}, timeout_s=_TIMEOUT_S)
    failure = run.transcript.first_failure
    if failure is not None:
        reason = failure.message or failure.error or f"code {failure.code}"
        said = "\n".join(line.text for line in failure.logs)
        if failure.verb == "system-load":
            raise InfraError(f"{system_library.name} does not load on this computer: {reason}")
        raise CompileError(
            f"{system_library.name} cannot read a context that its own compiler made",
            chain=[f"{failure.api or failure.verb}: {reason}"],
            output=said,
        )
    found = [dict(step.data) for step in run.transcript.steps if step.verb == "context-inspect"]
    if len(found) != len(binaries):
        raise InfraError(f"the probe read {len(found)} of {len(binaries)} contexts")
    return found


def tensor_order(
    metadata: Mapping[str, Any], what: str, inputs: Sizes, outputs: Sizes
) -> tuple[list[str], list[str]]:
    """The names of the graph's inputs and outputs in the binary's order (pure).

    Raises CompileError, whose text begins with `what`, unless the binary holds one graph with
    exactly these tensors, of these sizes.
    """
    graphs = _list(metadata, "graphs")
    if len(graphs) != 1:
        raise CompileError(what, chain=[f"it has {len(graphs)} graphs instead of one"])
    found = []
    for kind, expected in (("inputs", inputs), ("outputs", outputs)):
        sizes = {str(one.get("name")): one.get("bytes") for one in _list(graphs[0], kind)}
        if sizes != dict(expected):
            raise CompileError(what, chain=[f"its {kind} are {sizes}, the model's {expected}"])
        found.append(list(sizes))
    return found[0], found[1]


def check_arch(metadata: Mapping[str, Any], what: str, asked: int) -> None:
    """Raises ConfigError if the binary is for another HTP architecture than asked for (pure).

    The compiler takes any number in silence and makes something else of those it does not know.
    """
    made = metadata.get("dsp_arch")
    if made is not None and made != asked:
        raise VersionError(
            f"{what}: asked for HTP v{asked}, the compiler made one for v{made}",
            field="htp_arch",
            choices=HTP_ARCHS,
        )


def memory_bytes(metadata: Mapping[str, Any]) -> int:
    """What a device needs for a context by its metadata: I/O, constants, spill-fill (pure).

    Spill-fill is shared by the graphs of a context, so the largest counts. Where the binary's
    format is too old to say, the sizes of the tensors and of the binary stand for it.
    """
    graphs = _list(metadata, "graphs")
    spill = max((_number(graph, "spill_fill_bytes") for graph in graphs), default=0)
    total = spill
    for graph in graphs:
        if "io_bytes" in graph:
            total += _number(graph, "io_bytes") + _number(graph, "const_bytes")
        else:
            tensors = [*_list(graph, "inputs"), *_list(graph, "outputs")]
            total += sum(_number(tensor, "bytes") for tensor in tensors)
    if not any("io_bytes" in graph for graph in graphs):
        total += _number(metadata, "size")
    return total


def _list(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = parent.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _number(parent: Mapping[str, Any], key: str) -> int:
    value = parent.get(key)
    return value if isinstance(value, int) else 0
