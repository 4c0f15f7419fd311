"""Artefacts that are made here with the libraries of their formats, small and of any layout."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import onnx
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from harness.containers.artefact import Blob

FIELD = Path(__file__).parents[2] / "field"
CONTEXT = min(FIELD.glob("add_add_1*.bin")).read_bytes()
OTHER = min(FIELD.glob("add_output*.bin")).read_bytes()
EXECUTORCH = 0x5678ABCD


def bytes_of(blob: Blob) -> bytes:
    return blob.path.read_bytes()[blob.offset : blob.offset + blob.size]


def wrapped(context: bytes, *, header: int = 256, size: int | None = None) -> bytes:
    """Wrap a context as ExecuTorch hands it to its backend."""
    head = struct.pack("<IqQ", EXECUTORCH, 7, len(context) if size is None else size)
    return head.ljust(header, b"\0") + context


@dataclass
class Pte:
    """A program; each delegate of a method is its backend, and which of the blobs it uses."""

    methods: Mapping[str, Sequence[tuple[str, int]]]
    blobs: Sequence[bytes]
    inline: bool = False
    header: bool = True
    base_shift: int = 0

    def content(self) -> bytes:
        head = self.head()
        return head if self.inline else head + b"".join(map(_padded, self.blobs))

    def head(self) -> bytes:
        program = self._program()
        if not self.header:
            return program
        # the header stands between the identifier and the tables, which are found relatively
        (root,) = struct.unpack_from("<I", program)
        size = len(program) + 32
        base = -(-size // 4096) * 4096 if not self.inline else 0
        total = sum(len(_padded(blob)) for blob in self.blobs) if not self.inline else 0
        extended = struct.pack("<4sIQQQ", b"eh00", 32, size, base + self.base_shift, total)
        return (struct.pack("<I", root + 32) + program[4:8] + extended + program[8:]).ljust(
            base, b"\0"
        )

    def _program(self) -> bytes:
        build = flatbuffers.Builder(1 << 16)
        inline = [build.CreateByteVector(content) for content in self.blobs] if self.inline else []
        datas = [_table(build, [("offset", 0, vector)]) for vector in inline]
        segments, offset = [], 0
        if not self.inline:
            for blob in self.blobs:
                segments.append(_table(build, [("<Q", 0, offset), ("<Q", 1, len(blob))]))
                offset += len(_padded(blob))
        plans = []
        for name, delegates in self.methods.items():
            methods = []
            for backend, index in delegates:
                place = [("<b", 0, 0 if self.inline else 1), ("<I", 1, index)]
                reference = _table(build, place)
                named = build.CreateString(backend)
                methods.append(_table(build, [("offset", 0, named), ("offset", 1, reference)]))
            listed = _tables(build, methods)
            called = build.CreateString(name)
            plans.append(_table(build, [("offset", 0, called), ("offset", 7, listed)]))
        lists = [_tables(build, tables) for tables in (plans, datas, segments)]
        parts = [
            ("offset", number, vector) for number, vector in zip((1, 3, 4), lists, strict=True)
        ]
        build.Finish(_table(build, parts), file_identifier=b"ET12")
        return bytes(build.Output())


def _padded(blob: bytes) -> bytes:
    return blob + bytes(-len(blob) % 16)


def tflite(
    operators: Sequence[tuple[str, bytes | None]], *, appended: bytes = b"", graphs: int = 1
) -> bytes:
    """A LiteRT model: its operators with their options; behind it, what they point to."""
    build = flatbuffers.Builder(1 << 12)
    codes = []
    for name in dict.fromkeys(name for name, _ in operators):
        text = build.CreateString(name)
        codes.append(_table(build, [("offset", 1, text)]))
    numbers = {name: index for index, name in enumerate(dict.fromkeys(n for n, _ in operators))}
    offsets = []
    for name, options in operators:
        fields = [("<I", 0, numbers[name])]
        if options is not None:
            fields.append(("offset", 5, build.CreateByteVector(options)))
        offsets.append(_table(build, fields))
    subgraph = _table(build, [("offset", 3, _tables(build, offsets))])
    lists = {1: _tables(build, codes), 2: _tables(build, [subgraph] * graphs)}
    build.Finish(
        _table(build, [("offset", number, vector) for number, vector in lists.items()]),
        file_identifier=b"TFL3",
    )
    return bytes(build.Output()) + appended


def dispatch(offset: int, size: int, name: str) -> bytes:
    build = flexbuffers.Builder()
    build.ForceTypeBitWidth = flexbuffers.BitWidth.W64
    with build.Map():
        build.Key("bytecode_size")
        build.UInt(size, 8)
        build.Key("bytecode_offset")
        build.UInt(offset, 8)
        build.Key("name")
        build.String(name)
    return bytes(build.Finish())


def epcontext(nodes: Sequence[Mapping[str, Any]], *, others: int = 0) -> bytes:
    """An ONNX model with a node EPContext of each set of attributes, and others before them."""
    nodes_made = [helper.make_node("Relu", [f"o{n}"], [f"o{n + 1}"]) for n in range(others)]
    for number, attributes in enumerate(nodes):
        node = helper.make_node("EPContext", ["x"], ["y"], f"n{number}", domain="com.microsoft")
        node.attribute.extend(helper.make_attribute(key, it) for key, it in attributes.items())
        nodes_made.append(node)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [256], [0.5] * 256)
    graph = helper.make_graph(nodes_made, "g", [], [], [weights])
    model: onnx.ModelProto = helper.make_model(graph, producer_name="made")
    return model.SerializeToString()


def _tables(build: flatbuffers.Builder, tables: Sequence[int]) -> int:
    build.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        build.PrependUOffsetTRelative(table)
    return int(build.EndVector())


def _table(build: flatbuffers.Builder, fields: Sequence[tuple[str, int, int]]) -> int:
    build.StartObject(12)
    for form, number, value in fields:
        if form == "offset":
            build.PrependUOffsetTRelativeSlot(number, value, 0)
        elif form == "<b":
            build.PrependInt8Slot(number, value, 0)
        elif form == "<I":
            build.PrependUint32Slot(number, value, 0)
        else:
            build.PrependUint64Slot(number, value, 0)
    return int(build.EndObject())
