"""Result of `qnn-harness model inspect`, made of the metadata of context binaries (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from harness.containers.artefact import Artefact, ArtefactKind, Piece, PieceKind
from harness.core.outgoing_text import counted
from harness.core.socs import SOCS
from harness.models.compiler_options import MAIN_OPTIONS
from harness.models.context_metadata import Unreadable, entries, memory_bytes, needs
from harness.models.onnx_model import OnnxNodes
from harness.models.session_plan import BACKENDS_BY_ID

# Qnn_TensorMemType_t
_MEMORY_TYPES: Final = {0: "raw", 1: "memhandle", 2: "retrieve-raw"}

_MAX_DETAILED: Final = 8


@dataclass(frozen=True)
class TensorReport:
    """An input or output; `bytes` is None if its size is not known before it runs.

    `data_type` is the number of QNN's type, as in 0x0304, if it has no name here. A quantised value
    v stands for `scale` * (v + `offset`). Each of `channels` along `axis` has its own encoding.
    """

    name: str
    data_type: str
    dimensions: tuple[int, ...]
    bytes: int | None
    memory_type: str
    encoding: str | None = None
    scale: float | None = None
    offset: int | None = None
    axis: int | None = None
    channels: int | None = None


@dataclass(frozen=True)
class GraphReport:
    """A graph of a binary; sizes are None if the binary's format is too old to have them."""

    name: str
    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    weights_bytes: int | None
    shared_weights_bytes: int | None
    io_bytes: int | None
    spill_fill_bytes: int | None
    vtcm_bytes: int | None


@dataclass(frozen=True)
class ContextReport:
    """A context binary: its place, the facts of its container and its metadata (sizes in bytes).

    `problem` says why the rest is missing; a DLC has no context yet, which is no problem. `socs`
    are those that `soc_model` is the id of. `io_bytes` and `weights_bytes` are sums over the
    graphs, `spill_fill_bytes` and `vtcm_bytes` the largest; `memory_bytes` is what a device needs
    at least. `compiler_options` are those that the compiler noted in it, which have no public
    names.
    """

    file: str
    artefact: ArtefactKind
    origin: str
    kind: PieceKind
    offset: int
    size: int
    sha256: str
    container: dict[str, Any]
    problem: str | None = None
    build_id: str | None = None
    backend: str | None = None
    soc_model: int | None = None
    socs: tuple[str, ...] = ()
    htp_arch: int | None = None
    vtcm_bytes: int | None = None
    weights_bytes: int | None = None
    io_bytes: int | None = None
    spill_fill_bytes: int | None = None
    memory_bytes: int | None = None
    graphs: tuple[GraphReport, ...] = ()
    compiler_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelReport:
    """An ONNX model without contexts: its number of nodes, their types, its inputs and outputs."""

    file: str
    nodes: int
    op_types: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """Result of one inspection; `qnn` is the version that read, `problems` what it cannot read.

    `other_nodes` is the number of nodes of each file that are in none of its contexts.
    """

    schema: Literal[1]
    qnn: str
    contexts: tuple[ContextReport, ...]
    problems: tuple[str, ...]
    models: tuple[ModelReport, ...] = ()
    other_nodes: dict[str, int] = field(default_factory=dict)


def names_of(contexts: Sequence[ContextReport]) -> list[str]:
    """Return the contexts' names in runs, with their numbers, and their origins in the files."""
    counts = Counter(context.file for context in contexts if context.kind != "empty")
    before: Counter[str] = Counter()
    names = []
    for context in contexts:
        file, loads = context.file, context.kind != "empty"
        number = f"#{before[file]}" if loads and counts[file] > 1 else ""
        before[file] += loads
        names.append(f"{file}{number}" + (f" ({context.origin})" if context.origin else ""))
    return names


def model_report(path: Path) -> ModelReport:
    """Return the report of an ONNX model. Raises ConfigError for a file that is no model."""
    model = OnnxNodes.of(path)
    nodes = [node for node in model.nodes if node.parent is None]
    types = Counter(node.op_type for node in nodes)
    return ModelReport(
        str(path),
        len(nodes),
        ", ".join(f"{number} {name}" for name, number in types.most_common()),
        tuple(f"{name}: {model.kinds[name]}" for name in model.inputs),
        tuple(f"{name}: {model.kinds[name]}" for name in model.outputs),
    )


def context_report(
    artefact: Artefact, piece: Piece, sha256: str, metadata: Mapping[str, Any] | Unreadable | None
) -> ContextReport:
    """Return the report of a piece; `metadata` is None for one that is no context."""
    if metadata is None:
        problem = "the node has no context" if piece.kind == "empty" else None
        fields: dict[str, Any] = {"problem": problem}
    elif isinstance(metadata, Unreadable):
        fields = {"problem": metadata.reason}
    else:
        soc_model = metadata.get("soc_model")
        fields = {
            "build_id": metadata.get("build_id"),
            "backend": BACKENDS_BY_ID.get(metadata.get("backend_id")),
            "soc_model": soc_model,
            "socs": tuple(soc.name for soc in SOCS.values() if soc.soc_model == soc_model),
            "htp_arch": metadata.get("dsp_arch"),
            **needs(metadata),
            "memory_bytes": memory_bytes(metadata),
            "graphs": tuple(map(_graph, entries(metadata, "graphs"))),
        }
    return ContextReport(
        file=str(artefact.path),
        artefact=cast(ArtefactKind, artefact.kind),  # a plug-in's file has no pieces
        origin=piece.origin,
        kind=piece.kind,
        offset=piece.offset,
        size=piece.size,
        sha256=sha256,
        container=dict(piece.facts),
        **fields,
    )


def _graph(graph: Mapping[str, Any]) -> GraphReport:
    sizes = ("shared_weights_bytes", "io_bytes", "spill_fill_bytes", "vtcm_bytes")
    return GraphReport(
        name=str(graph.get("name")),
        inputs=tuple(map(_tensor, entries(graph, "inputs"))),
        outputs=tuple(map(_tensor, entries(graph, "outputs"))),
        weights_bytes=graph.get("const_bytes"),
        **{key: graph.get(key) for key in sizes},
    )


def _tensor(tensor: Mapping[str, Any]) -> TensorReport:
    memory_type = tensor.get("memory_type", 0)
    return TensorReport(
        name=str(tensor.get("name")),
        data_type=tensor.get("data_type") or f"0x{tensor.get('data_type_code', 0):04x}",
        dimensions=tuple(tensor.get("dimensions", ())),
        bytes=tensor.get("bytes") or None,
        memory_type=_MEMORY_TYPES.get(memory_type, f"type {memory_type}"),
        **{key: tensor.get(key) for key in ("encoding", "scale", "offset", "axis", "channels")},
    )


def inspection_lines(report: Inspection, *, whole: bool = False) -> Iterator[str]:
    """Yield an inspection as text: a few lines for each context; for 8 at most unless `whole`."""
    for model in report.models:
        yield f"{model.file}: an ONNX model; `run` and `model compile` compile it"
        yield f"    {counted(model.nodes, 'node')}: {model.op_types}"
        yield from (f"    in  {tensor}" for tensor in model.inputs)
        yield from (f"    out {tensor}" for tensor in model.outputs)
    shown = report.contexts if whole else report.contexts[:_MAX_DETAILED]
    for name, context in zip(names_of(report.contexts), shown, strict=False):
        yield f"{name}: {size(context.size)}, sha256 {context.sha256[:12]}"
        if context.problem:
            unread = "cannot be read: " if context.kind == "context" else ""
            yield f"    {unread}{context.problem}"
            continue
        if context.kind != "context":
            yield f"    a {context.kind.upper()}: a model that is compiled on the device"
            continue
        yield f"    {_made_for_text(context)}"
        yield f"    {_needs_text(context)}"
        if options := context.compiler_options:
            main = ", ".join(f"{name}={options[name]}" for name in MAIN_OPTIONS if name in options)
            yield f"    {counted(len(options), 'compiler option')}: {main}"
        for graph in context.graphs:
            yield f"    graph {graph.name}"
            for kind, tensors in (("in", graph.inputs), ("out", graph.outputs)):
                for tensor in tensors:
                    yield f"        {kind:<4}{_tensor_text(tensor)}"
    for file, count in report.other_nodes.items():
        yield f"{file}: {counted(count, 'node')} outside of its contexts"
    binaries = [each for each in report.contexts if each.kind == "context"]
    if binaries or not (report.problems or report.models or report.contexts):
        more = "; -v shows all" if len(shown) < len(report.contexts) else ""
        read = sum(each.problem is None for each in binaries)
        part = f"{read} of " if read < len(binaries) else ""
        yield f"{part}{counted(len(binaries), 'context')} read by QNN {report.qnn}{more}"


def _made_for_text(context: ContextReport) -> str:
    htp = f"HTP v{context.htp_arch}" if context.htp_arch else "an unknown HTP architecture"
    target = context.backend if context.backend != "htp" else htp
    model = f", SoC model {context.soc_model}" if context.soc_model else ""
    socs = f" ({', '.join(context.socs)})" if context.socs else ""
    return f"made by QNN {context.build_id or '(build unknown)'} for {target}{model}{socs}"


def _needs_text(context: ContextReport) -> str:
    figures = (
        ("weights", context.weights_bytes),
        ("I/O", context.io_bytes),
        ("spill-fill", context.spill_fill_bytes),
        ("VTCM", context.vtcm_bytes),
    )
    details = ", ".join(f"{name} {size(value)}" for name, value in figures if value is not None)
    return f"needs at least {size(context.memory_bytes or 0)}" + (f": {details}" if details else "")


def _tensor_text(tensor: TensorReport) -> str:
    shape = " x ".join(map(str, tensor.dimensions)) or "scalar"
    size_text = "unknown size" if tensor.bytes is None else size(tensor.bytes)
    text = f"{tensor.name}: {tensor.data_type} [{shape}], {size_text}, {tensor.memory_type}"
    if tensor.scale is not None and tensor.offset is not None:
        return f"{text}, {tensor.scale:g} * (value {tensor.offset:+d})"
    along = f" of {tensor.channels} along axis {tensor.axis}" if tensor.channels else ""
    return f"{text}, {tensor.encoding}{along}" if tensor.encoding else text


def size(count: int) -> str:
    """Format a number of bytes."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{f'{count / factor:.2f}'.removesuffix('.00')} {unit}"
    return f"{count} bytes"
