"""Reports of context binaries by their metadata, graph by graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.containers.artefact import Artefact, Piece, PieceKind
from harness.models.context_metadata import Unreadable
from harness.models.inspection_report import (
    ContextReport,
    Inspection,
    context_report,
    inspection_lines,
    names_of,
)
from tests.snapshots import Snapshot

X: dict[str, Any] = {
    "name": "x",
    "data_type": "ufixed8",
    "data_type_code": 0x0408,
    "dimensions": [1, 4],
    "bytes": 4,
    "memory_type": 1,
    "encoding": "scale-offset",
    "scale": 0.5,
    "offset": -3,
}
Y = X | {"name": "y", "data_type": None, "data_type_code": 0x0304, "bytes": 0, "memory_type": 9}
SIZES = {"const_bytes": 30, "io_bytes": 20, "spill_fill_bytes": 100, "vtcm_bytes": 4 << 20}
PREFILL = {"name": "prefill", "inputs": [X], "outputs": [Y], **SIZES}
DECODE = PREFILL | {"name": "decode", "spill_fill_bytes": 300, "const_bytes": 5}
METADATA = {
    "build_id": "v2.51.0.1",
    "backend_id": 6,
    "soc_model": 43,
    "dsp_arch": 73,
    "size": 5000,
    "graphs": [PREFILL, DECODE],
}


def report(metadata: Any, kind: PieceKind = "context") -> ContextReport:
    piece = Piece(Path("m.pte"), 256, 5000, "forward/1", kind, {"id": "QnnBackend"})
    return context_report(Artefact(piece.path, "pte", (piece,)), piece, "ab" * 32, metadata)


def shown(report: ContextReport) -> str:
    return "\n".join(inspection_lines(Inspection(1, "2.51.0", (report,), ())))


def test_each_graph_and_the_sums(snapshot: Snapshot) -> None:
    context = report(METADATA)
    assert (context.file, context.artefact, context.origin) == ("m.pte", "pte", "forward/1")
    assert (context.offset, context.size, context.container) == (256, 5000, {"id": "QnnBackend"})
    assert (context.build_id, context.backend, context.htp_arch) == ("v2.51.0.1", "htp", 73)
    assert context.socs == ("SM8550", "QCS8550")
    assert (context.weights_bytes, context.io_bytes, context.spill_fill_bytes) == (35, 40, 300)
    assert (context.vtcm_bytes, context.memory_bytes) == (4 << 20, 375)
    assert [graph.name for graph in context.graphs] == ["prefill", "decode"]
    assert shown(context) == snapshot
    assert context.graphs[0].outputs[0].bytes is None
    optioned = replace(context, compiler_options={"O": "3", "tile": "8", "vtcm_mb": "4"})
    assert "    3 compiler options: O=3, vtcm_mb=4\n" in shown(optioned)
    of_more = Inspection(1, "2.51.0", (context,), (), other_nodes={"m.pte": 3})
    assert "m.pte: 3 nodes outside of its contexts" in [*inspection_lines(of_more)]


def test_an_old_format_leaves_out_what_it_does_not_tell() -> None:
    graph = {"name": "g", "inputs": [X], "outputs": [X | {"name": "y"}]}
    context = report({"build_id": None, "size": 5000, "graphs": [graph]})
    assert {context.weights_bytes, context.io_bytes, context.vtcm_bytes} == {None}
    assert (context.memory_bytes, context.htp_arch, context.socs) == (5008, None, ())


@pytest.mark.parametrize(
    ("fields", "memory_type", "data_type"),
    [
        ({}, "raw", "0x0000"),
        ({"memory_type": 0, "data_type": "float32"}, "raw", "float32"),
        ({"memory_type": 1, "data_type_code": 0x1234}, "memhandle", "0x1234"),
        ({"memory_type": 2}, "retrieve-raw", "0x0000"),
        ({"memory_type": 3}, "type 3", "0x0000"),
    ],
)
def test_numbers_of_qnn_have_their_names(
    fields: dict[str, Any], memory_type: str, data_type: str
) -> None:
    (graph,) = report({"size": 5, "graphs": [{"name": "g", "outputs": [fields]}]}).graphs
    (tensor,) = graph.outputs
    assert (tensor.memory_type, tensor.data_type) == (memory_type, data_type)
    assert (tensor.dimensions, tensor.bytes, graph.inputs) == ((), None, ())


def test_values_of_each_channel() -> None:
    weights = X | {"encoding": "axis-scale-offset", "scale": None, "axis": 3, "channels": 8}
    context = report(METADATA | {"graphs": [PREFILL | {"inputs": [weights]}]})
    assert context.graphs[0].inputs[0].channels == 8


def test_what_has_no_metadata(snapshot: Snapshot) -> None:
    damaged = report(Unreadable("getMetadata: 30010"))
    assert (damaged.problem, damaged.graphs) == ("getMetadata: 30010", ())
    assert "    cannot be read: getMetadata: 30010" in shown(damaged)
    assert report(None, "empty").problem
    dlc = report(None, "dlc")
    assert dlc.problem is None
    assert shown(dlc) == snapshot


def test_contexts_are_called_as_runs_call_them() -> None:
    context = report(METADATA)
    other, whole = replace(context, origin="forward/2"), replace(context, file="a.bin", origin="")
    assert names_of([context, whole, other]) == [
        "m.pte#0 (forward/1)",
        "a.bin",
        "m.pte#1 (forward/2)",
    ]
    assert names_of([replace(context, kind="empty"), other]) == [
        "m.pte (forward/1)",
        "m.pte (forward/2)",
    ]
