"""Programs that ExecuTorch loads, made of any context binaries: they have nothing but delegates.

The layout is that of pytorch/executorch, schema/program.fbs; how delegates are compiled is taken
from a program that ExecuTorch itself lowered.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import flatbuffers

from harness.containers.artefact import FileBytes
from harness.containers.pte import FlatTable

LOWERED = Path(__file__).parents[2] / "field/executorch-3-contexts.pte"
HEADER_BYTES = 32
BLOB_BYTES = 256
_MAGIC = struct.pack("<I", 0x5678ABCD)

Field = tuple[str, int, int]


def write_program(path: Path, contexts: Sequence[bytes]) -> None:
    """A program of one method without inputs and outputs; its delegates hold these contexts."""
    blobs = [_wrapped(number, context) for number, context in enumerate(contexts)]
    program = _program([len(blob) for blob in blobs])
    size = len(program) + HEADER_BYTES
    base = -(-size // 4096) * 4096
    (root,) = struct.unpack_from("<I", program)
    extended = struct.pack("<4sIQQQ", b"eh00", HEADER_BYTES, size, base, sum(map(_room, blobs)))
    head = struct.pack("<I", root + HEADER_BYTES) + program[4:8] + extended + program[8:]
    with path.open("wb") as file:
        file.write(head.ljust(base, b"\0"))
        for blob in blobs:
            file.write(blob.ljust(_room(blob), b"\0"))


def write_damaged(folder: Path) -> None:
    """The lowered program with its second context damaged: unreadable.pte, and invalid.pte."""
    for name, offset, count in (("unreadable", 40, 4), ("invalid", -600, 500)):
        content = bytearray(LOWERED.read_bytes())
        blob = content.index(_MAGIC, content.index(_MAGIC) + 1)
        size = int.from_bytes(content[blob + 12 : blob + 20], "little")
        begin = blob + BLOB_BYTES + offset % size
        content[begin : begin + count] = b"\xff" * count
        (folder / f"{name}.pte").write_bytes(content)


def _wrapped(number: int, context: bytes) -> bytes:
    """ExecuTorch loads those with the same signature once, so that each has one of its own."""
    head = _MAGIC + struct.pack("<qQ", number + 1, len(context))
    return head.ljust(BLOB_BYTES, b"\0") + context


def _room(blob: bytes) -> int:
    return len(blob) + -len(blob) % 16


def _compile_spec() -> bytes:
    with FileBytes(LOWERED) as data:
        plan = FlatTable.root(data, "the program").table_at(1, 0, "method")
        spec = plan.table_at(7, 0, "delegate").table_at(2, 0, "compile spec")
        value = spec.vector(1, 1)
        return data.read(value.offset, value.count, "its value")


def _program(sizes: Sequence[int]) -> bytes:
    build = flatbuffers.Builder(1 << 16)
    specs = _compile_spec()
    build.Prep(16, len(specs))
    value = build.CreateByteVector(specs)
    spec = _tables(build, [_table(build, *_texts(build, "qnn_compile_spec"), ("offset", 1, value))])
    backend = build.CreateString("QnnBackend")
    delegates, segments, offset = [], [], 0
    for number, size in enumerate(sizes):
        place = _table(build, ("byte", 0, 1), ("int", 1, number))
        parts = (("offset", 0, backend), ("offset", 1, place), ("offset", 2, spec))
        delegates.append(_table(build, *parts))
        segments.append(_table(build, ("long", 0, offset), ("long", 1, size)))
        offset += size + -size % 16
    nothing = _tables(build, [])
    null = _table(build, ("byte", 0, 1), ("offset", 1, _table(build)))
    chain = _table(build, *(("offset", field, nothing) for field in range(3)))
    typed = _table(build, *_texts(build, "", ""))
    build.StartVector(8, 1, 8)
    build.PrependUint64(0)
    zero = build.EndVector()
    plan = _table(
        build,
        *_texts(build, "forward"),
        ("offset", 1, typed),
        ("offset", 2, _tables(build, [null])),
        *(("offset", field, nothing) for field in (3, 4, 6)),
        ("offset", 5, _tables(build, [chain])),
        ("offset", 7, _tables(build, delegates)),
        ("offset", 8, zero),
    )
    constants = _table(build, ("offset", 1, zero))
    root = _table(
        build,
        ("offset", 1, _tables(build, [plan])),
        ("offset", 3, nothing),
        ("offset", 4, _tables(build, segments)),
        ("offset", 5, constants),
    )
    build.Finish(root, file_identifier=b"ET12")
    return bytes(build.Output())


def _texts(build: flatbuffers.Builder, *texts: str) -> list[Field]:
    return [("offset", field, build.CreateString(text)) for field, text in enumerate(texts)]


def _tables(build: flatbuffers.Builder, tables: Sequence[int]) -> int:
    build.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        build.PrependUOffsetTRelative(table)
    return int(build.EndVector())


def _table(build: flatbuffers.Builder, *fields: Field) -> int:
    build.StartObject(9)
    for form, number, value in fields:
        prepend = {
            "offset": build.PrependUOffsetTRelativeSlot,
            "byte": build.PrependInt8Slot,
            "int": build.PrependUint32Slot,
            "long": build.PrependUint64Slot,
        }[form]
        prepend(number, value, 0)
    return int(build.EndObject())
