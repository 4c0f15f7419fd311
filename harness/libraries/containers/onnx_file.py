"""ONNX models: those with nodes EPContext, and where their context binaries lie.

The attributes are those of microsoft/onnxruntime, docs/execution-providers/EP-Context-Design.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.ground.files.names_inside import NotInsideError, inside
from harness.libraries.containers.artefact import Artefact, ArtefactError, Piece
from harness.libraries.containers.blobs import blob, whole_file
from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.protobuf import LENGTH, VARINT, WireField, fields

ONNX_HEAD: Final = b"\x08"
"""The first field of a model is its `ir_version`."""

_EPCONTEXT: Final = "EPContext"
_CACHE: Final = "ep_cache_context"
_MAX_PATH_BYTES: Final = 4096

# numbers of fields in onnx.proto
_IR_VERSION, _PRODUCER, _GRAPH = 1, 2, 7
_NODE, _INITIALIZER = 1, 5
_EXTERNAL_DATA: Final = 13
_KEY, _VALUE = 1, 2
_NODE_NAME, _OP_TYPE, _ATTRIBUTE = 3, 4, 5
_ATTRIBUTE_NAME, _INTEGER, _STRING = 1, 3, 4


@dataclass(frozen=True)
class _Node:
    name: str
    values: Mapping[str, int]
    texts: Mapping[str, WireField]

    def text(self, data: FileBytes, name: str) -> str:
        held = self.texts.get(name)
        return "" if held is None else _text(data, held, f"{name} of node {self.name}")


def read_onnx(data: FileBytes) -> Artefact:
    """The contexts of the nodes EPContext that hold one (`main_context`), in their order.

    One without content is a piece of kind "empty". Without any such node the artefact is of kind
    "onnx": a model to be compiled. Raises ArtefactError, also for side files that are not there.
    """
    nodes, others, producer, graphs = [], 0, "", 0
    beside: dict[str, None] = {}
    for part in fields(data, 0, data.size, "the model"):
        if part.number == _PRODUCER and part.wire == LENGTH:
            producer = _text(data, part, "the producer")
        if part.number != _GRAPH or part.wire != LENGTH:
            continue
        graphs += 1
        for item in fields(data, part.offset, part.size, "the graph"):
            if item.number == _NODE and item.wire == LENGTH:
                node = _epcontext(data, item)
                others += node is None
                nodes += [node] if node is not None else []
            elif item.number == _INITIALIZER and item.wire == LENGTH:
                beside |= dict.fromkeys(_locations(data, item))
    if not graphs:
        raise data.error("the model has no graph, or the file is no ONNX model", data.size)
    facts: dict[str, Any] = {"producer": producer, "other_nodes": others, "beside": [*beside]}
    if not nodes:
        return Artefact(data.path, "onnx", (), facts)
    pieces = [_piece(data, node) for node in nodes if node.values.get("main_context", 1)]
    if len(pieces) == 1:
        # the graphs of all nodes are in the one binary
        named = [one.text(data, "partition_name") or one.name for one in nodes]
        pieces = [replace(pieces[0], facts={**pieces[0].facts, "partitions": named})]
    return Artefact(data.path, "epcontext", tuple(pieces), facts)


def _locations(data: FileBytes, item: WireField) -> Iterator[str]:
    """The file that the weights of an initializer lie in, if they are not in the model."""
    for part in fields(data, item.offset, item.size, "an initializer"):
        if part.number == _EXTERNAL_DATA and part.wire == LENGTH:
            said = {
                one.number: _text(data, one, "what is told of weights")
                for one in fields(data, part.offset, part.size, "what is told of weights")
                if one.wire == LENGTH
            }
            if said.get(_KEY) == "location":
                yield said.get(_VALUE, "")


def _epcontext(data: FileBytes, item: WireField) -> _Node | None:
    """The node, if it is an EPContext."""
    name = op_type = ""
    values: dict[str, int] = {}
    texts: dict[str, WireField] = {}
    for part in fields(data, item.offset, item.size, "a node"):
        if part.wire != LENGTH:
            continue
        if part.number == _NODE_NAME:
            name = _text(data, part, "the name of a node")
        elif part.number == _OP_TYPE:
            op_type = _text(data, part, "the type of a node")
        elif part.number == _ATTRIBUTE:
            _attribute(data, part, values, texts)
    if op_type == _EPCONTEXT:
        return _Node(name, values, texts)
    if _CACHE in texts:
        problem = f"node {name} has an {_CACHE}, and is of type {op_type} instead of {_EPCONTEXT}"
        raise data.error(problem, item.offset)
    return None


def _attribute(
    data: FileBytes, part: WireField, values: dict[str, int], texts: dict[str, WireField]
) -> None:
    name, value, text = "", None, None
    for one in fields(data, part.offset, part.size, "an attribute"):
        if one.number == _ATTRIBUTE_NAME and one.wire == LENGTH:
            name = _text(data, one, "the name of an attribute")
        elif one.number == _INTEGER and one.wire == VARINT:
            value = one.value
        elif one.number == _STRING and one.wire == LENGTH:
            text = one
    if value is not None:
        values[name] = value
    if text is not None:
        texts[name] = text


def _piece(data: FileBytes, node: _Node) -> Piece:
    said = {"partition_name": "partition", "source": "source", "ep_sdk_version": "sdk_version"}
    facts: dict[str, Any] = {
        key: text for name, key in said.items() if (text := node.text(data, name))
    }
    if "max_size" in node.values:
        facts["max_size"] = node.values["max_size"]
    origin = f"node {node.name or facts.get('partition', _EPCONTEXT)}"
    cache = node.texts.get(_CACHE)
    if cache is None or not cache.size:
        return Piece(data.path, 0 if cache is None else cache.offset, 0, origin, "empty", facts)
    if node.values.get("embed_mode", 1):
        return blob(data, cache.offset, cache.size, origin, facts)
    side = _side_file(data, cache, origin)
    try:
        with FileBytes(side, data.path.parent) as content:
            found = whole_file(content)
    except ArtefactError as error:
        raise data.error(f"{origin} names another file: {error}", cache.offset) from error
    return replace(found, origin=origin, facts={**facts, "file": side.name})


def _side_file(data: FileBytes, cache: WireField, origin: str) -> Path:
    """The file that a node names, in the folder of the model or below."""
    if cache.size > _MAX_PATH_BYTES:
        problem = f"{origin} names a file with {cache.size} bytes; a name has {_MAX_PATH_BYTES}"
        raise data.error(f"{problem} at most", cache.offset)
    named = _text(data, cache, f"the file of {origin}")
    try:
        # one that was made on Windows
        return inside(data.path.parent, named.replace("\\", "/").removeprefix("./"))
    except NotInsideError as error:
        why = f"it {error.strerror}, and must lie in the folder of the model"
        raise data.error(f"{origin} names the file {named[:200]!r}: {why}", cache.offset) from error


def _text(data: FileBytes, part: WireField, what: str) -> str:
    return data.at(part.offset, part.size, what).decode("utf-8", "replace")
