"""What `qnn-harness contexts inspect` tells of context binaries: made of their metadata (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.containers.artefact import (
    PIECE_FORMATS,
    Artefact,
    ArtefactKind,
    Piece,
    PieceKind,
)
from harness.core.socs import SOCS
from harness.models.metadata import Unreadable, entries, memory_bytes, needs
from harness.models.onnx_model import OnnxNodes
from harness.models.source import BACKENDS_BY_ID

# Qnn_TensorMemType_t
_MEMORY_TYPES: Final = {0: "raw", 1: "memhandle", 2: "retrieve-raw"}


@dataclass(frozen=True)
class TensorReport:
    """An input or output; `bytes` is None where nobody knows its size before it runs.

    `data_type` is the number of QNN's type, as in 0x0304, where it has no name here. A quantised
    value v stands for `scale` * (v + `offset`). Each of `channels` along `axis` has its own.
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
    """A graph of a binary; sizes are None where the binary's format is too old to tell them."""

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
    """A context binary: where it lies, what its container and what it itself says (sizes in bytes).

    `problem` tells why the rest is missing; a DLC has no context yet, which is no problem. `socs`
    are those that `soc_model` is the id of. `io_bytes` and `weights_bytes` are sums over the
    graphs, `spill_fill_bytes` and `vtcm_bytes` the largest; `memory_bytes` is what a device needs
    at least.
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


@dataclass(frozen=True)
class ModelReport:
    """An ONNX model without contexts: how many nodes, of which types, what it takes and gives."""

    file: str
    nodes: int
    op_types: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """All that one call told; `qnn` is the version that read, `problems` what it could not read."""

    schema: Literal[1]
    qnn: str
    contexts: tuple[ContextReport, ...]
    problems: tuple[str, ...]
    models: tuple[ModelReport, ...] = ()


def names_of(contexts: Sequence[ContextReport]) -> list[str]:
    """Each as runs call it, by its number in its file; behind that what the file calls it."""
    held = Counter(one.file for one in contexts if one.kind != "empty")
    before: Counter[str] = Counter()
    names = []
    for one in contexts:
        number = f"#{before[one.file]}" if one.kind != "empty" and held[one.file] > 1 else ""
        before[one.file] += one.kind != "empty"
        names.append(f"{one.file}{number}" + (f" ({one.origin})" if one.origin else ""))
    return names


def model_report(path: Path) -> ModelReport:
    """What an ONNX model says of itself. Raises ConfigError for what is no model."""
    model = OnnxNodes.of(path)
    nodes = [one for one in model.nodes if one.within is None]
    types = Counter(one.op_type for one in nodes)
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
    """What is known of a piece; None for metadata that nobody asked for: it is no context."""
    told: dict[str, Any] = {}
    if metadata is None:
        told["problem"] = PIECE_FORMATS[piece.kind].problem
    elif isinstance(metadata, Unreadable):
        told["problem"] = metadata.reason
    else:
        told = _told(metadata)
    return ContextReport(
        file=str(artefact.path),
        artefact=artefact.kind,
        origin=piece.origin,
        kind=piece.kind,
        offset=piece.offset,
        size=piece.size,
        sha256=sha256,
        container=dict(piece.facts),
        **told,
    )


def _told(metadata: Mapping[str, Any]) -> dict[str, Any]:
    graphs = tuple(_graph(one) for one in entries(metadata, "graphs"))
    soc_model = metadata.get("soc_model")
    return {
        "build_id": metadata.get("build_id"),
        "backend": BACKENDS_BY_ID.get(metadata.get("backend_id")),
        "soc_model": soc_model,
        "socs": tuple(soc.name for soc in SOCS.values() if soc.soc_model == soc_model),
        "htp_arch": metadata.get("dsp_arch"),
        **needs(metadata),
        "memory_bytes": memory_bytes(metadata),
        "graphs": graphs,
    }


def _graph(told: Mapping[str, Any]) -> GraphReport:
    return GraphReport(
        name=str(told.get("name")),
        inputs=tuple(_tensor(one) for one in entries(told, "inputs")),
        outputs=tuple(_tensor(one) for one in entries(told, "outputs")),
        weights_bytes=told.get("const_bytes"),
        shared_weights_bytes=told.get("shared_weights_bytes"),
        io_bytes=told.get("io_bytes"),
        spill_fill_bytes=told.get("spill_fill_bytes"),
        vtcm_bytes=told.get("vtcm_bytes"),
    )


def _tensor(told: Mapping[str, Any]) -> TensorReport:
    memory_type = told.get("memory_type", 0)
    return TensorReport(
        name=str(told.get("name")),
        data_type=told.get("data_type") or f"0x{told.get('data_type_code', 0):04x}",
        dimensions=tuple(told.get("dimensions", ())),
        bytes=told.get("bytes") or None,
        memory_type=_MEMORY_TYPES.get(memory_type, f"type {memory_type}"),
        **{key: told.get(key) for key in ("encoding", "scale", "offset", "axis", "channels")},
    )
