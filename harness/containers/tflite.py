"""LiteRT models (.tflite) that were compiled for QNN: the places of their byte code.

The layout is that of google-ai-edge/LiteRT: tflite/schema.fbs, litert/core/build_stamp.h, and
litert/core/dispatch_op_schema.cc: each operator DISPATCH_OP names an offset and a size in the file.
"""

from __future__ import annotations

from typing import Any, Final

from harness.containers.artefact import Artefact, FileBytes, Piece, blob
from harness.containers.pte import FlatTable

TFLITE_IDENTIFIER: Final = b"TFL3"
"""At byte 4."""

DISPATCH: Final = "DISPATCH_OP"
_STAMP: Final = "LiteRtStamp"
_MAX_STAMP_BYTES: Final = 1024

# numbers of fields in schema.fbs
_CODES, _SUBGRAPHS, _BUFFERS, _METADATA = 1, 2, 4, 6
_CUSTOM_CODE: Final = 1
_OPERATORS: Final = 3
_OPCODE_INDEX, _CUSTOM_OPTIONS = 0, 5
_NAME, _BUFFER = 0, 1


def read_tflite(data: FileBytes) -> Artefact:
    """Return one piece for each byte code, however many operators (graphs of it) use it.

    A model that was not compiled has none. Raises ArtefactError.
    """
    model = FlatTable.root(data, "the model")
    codes = [code.text(_CUSTOM_CODE) for code in model.tables(_CODES, "operator code")]
    graphs: dict[tuple[int, int], list[str]] = {}
    others = 0
    for subgraph in model.tables(_SUBGRAPHS, "subgraph"):
        for operator in subgraph.tables(_OPERATORS, f"{subgraph.label}: operator"):
            index = operator.number(_OPCODE_INDEX, "<I")
            if index >= len(codes):
                raise data.error(f"{operator.label} has code {index} of {len(codes)}", 0)
            if codes[index] == DISPATCH:
                offset, size, name = dispatched(data, operator)
                graphs.setdefault((offset, size), []).append(name)
            else:
                others += 1
    facts = {"other_nodes": others, **_stamp(data, model)}
    pieces = tuple(_piece(data, place, names) for place, names in graphs.items())
    return Artefact(data.path, "tflite", pieces, facts)


def _piece(data: FileBytes, place: tuple[int, int], names: list[str]) -> Piece:
    return blob(data, *place, names[0], {"partitions": names})


def dispatched(data: FileBytes, operator: FlatTable) -> tuple[int, int, str]:
    """Return offset, size and graph of the byte code of an operator. Raises ArtefactError."""
    from flatbuffers import flexbuffers  # with numpy, for which no other suite should wait

    options = operator.vector(_CUSTOM_OPTIONS, 1)
    content = data.read(options.offset, options.count, f"the options of {operator.label}")
    try:
        fields = flexbuffers.GetRoot(content).AsMap
        offset, size = fields["bytecode_offset"].AsInt, fields["bytecode_size"].AsInt
        name = fields["name"].AsString
    except Exception as error:  # the library trusts its input, and may raise anything
        problem = f"the options of {operator.label} are damaged: {error or type(error).__name__}"
        raise data.error(problem, options.offset) from error
    if not offset or not size:
        problem = f"{operator.label} has no byte code in this file (byte {offset}, {size} bytes)"
        raise data.error(problem, options.offset)
    return offset, size, name


def _stamp(data: FileBytes, model: FlatTable) -> dict[str, Any]:
    """Return vendor and SoC that the model was compiled for, if it has them."""
    for entry in model.tables(_METADATA, "metadata"):
        if entry.text(_NAME) != _STAMP:
            continue
        content = model.table_at(_BUFFERS, entry.number(_BUFFER, "<I"), "buffer").vector(0, 1)
        texts = data.read(content.offset, min(content.count, _MAX_STAMP_BYTES), "the stamp")
        # two texts, each padded with zeros
        texts_found = [text.decode("utf-8", "replace") for text in texts.split(b"\0") if text]
        return dict(zip(("vendor", "soc"), texts_found, strict=False))
    return {}
