"""Readers of artefacts, which are recognised by their content.

The attributes are those of microsoft/onnxruntime, docs/execution-providers/EP-Context-Design.md.

The library onnx reads a whole message into memory, gigabytes of a context included, without the
offsets of its parts. So the wire format is read here.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from harness.containers.artefact import (
    PIECE_MAGIC,
    Artefact,
    ArtefactError,
    ArtefactKind,
    FileBytes,
    Piece,
    blob,
    open_file,
    whole_file,
)
from harness.containers.manifest import MANIFEST, MANIFEST_HEAD, read_bundle, read_manifest
from harness.containers.pte import PTE_IDENTIFIER, read_pte
from harness.containers.tflite import TFLITE_IDENTIFIER, read_tflite
from harness.core.archive import ArchiveError, ArchiveLimits, open_archive
from harness.core.engine import ENGINES
from harness.core.paths_inside import NotInsideError, inside

_METADATA: Final = "dlc.metadata"
# a model may be as large as a disk, as nothing is unpacked
_LIMITS: Final = ArchiveLimits(
    archive_bytes=1 << 50, total_bytes=1 << 50, ratio=1 << 50, zip64=True
)


def read_dlc(data: FileBytes) -> Artefact:
    """Return one piece, the whole file. Raises ArtefactError for a zip that is no whole DLC."""
    try:
        with open_file(data.path, data.root) as file, open_archive(file, _LIMITS) as archive:
            if _METADATA not in archive.namelist():
                raise data.error(f"the zip has no {_METADATA}, so it is not a DLC", 0)
    except (ArchiveError, OSError) as error:
        raise data.error(f"the zip cannot be read: {error}", 0) from error
    return Artefact(data.path, "dlc", (whole_file(data),))


VARINT: Final = 0
LENGTH: Final = 2
_FIXED: Final = {1: 8, 5: 4}


@dataclass(frozen=True)
class WireField:
    """One field: its number in the schema and its wire type (`VARINT`, `LENGTH`, other).

    A varint has its `value`; anything else is `size` bytes from `offset` on.
    """

    number: int
    wire: int
    value: int
    offset: int
    size: int


def fields(data: FileBytes, offset: int, size: int, label: str) -> Iterator[WireField]:
    """Yield the fields of the message at this place, in order. Raises ArtefactError."""
    data.require(offset, size, label)
    end = offset + size
    while offset < end:
        begin = offset
        tag, offset = _varint(data, begin, end, label)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, offset = _varint(data, offset, end, label)
            yield WireField(number, wire, value, offset, 0)
            continue
        if wire == LENGTH:
            length, offset = _varint(data, offset, end, label)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise data.error(f"{label} is damaged: {wire} is not a wire type of protobuf", begin)
        if not number or length > end - offset:
            problem = f"a field of {label} has only {end - offset} of its {length} bytes"
            raise data.error(f"{problem}: the file is truncated or damaged", begin)
        yield WireField(number, wire, 0, offset, length)
        offset += length


def _varint(data: FileBytes, offset: int, end: int, label: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data.read(offset, min(10, end - offset), label)):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise data.error(f"{label} is truncated or damaged: a varint does not end", offset)


def nested(data: FileBytes, part: WireField, *numbers: int) -> Iterator[WireField]:
    """Yield the fields with the last of these numbers in messages with those before it."""
    for field in fields(data, part.offset, part.size, "a message"):
        if field.number == numbers[0] and field.wire in (LENGTH, VARINT):
            if len(numbers) == 1:
                yield field
            else:
                yield from nested(data, field, *numbers[1:])


def last_field(data: FileBytes, part: WireField, *numbers: int) -> WireField | None:
    """Return the last of the `nested` fields, which counts if a message has several."""
    return next(iter(deque(nested(data, part, *numbers), maxlen=1)), None)


def text_of(data: FileBytes, field: WireField | None) -> str:
    """Return the text of a field, "" without one. Raises ArtefactError."""
    if field is None:
        return ""
    return data.read(field.offset, field.size, "a text").decode("utf-8", "replace")


ONNX_HEAD: Final = b"\x08"
"""The first field of a model is its `ir_version`."""

_EPCONTEXT: Final = "EPContext"
_CACHE: Final = "ep_cache_context"
_MAX_PATH_BYTES: Final = 4096

# numbers of fields in onnx.proto
_GRAPH: Final = 7
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
        return text_of(data, self.texts.get(name))


def read_onnx(data: FileBytes) -> Artefact:
    """Return the contexts of EPContext nodes that hold one (`main_context`), in order.

    One without content is a piece of kind "empty". Without any such node the artefact is of kind
    "onnx": a model to be compiled. Raises ArtefactError, also for missing side files.
    """
    whole = WireField(0, LENGTH, 0, 0, data.size)
    if not any(nested(data, whole, _GRAPH)):
        raise data.error("the model has no graph, or the file is not an ONNX model", data.size)
    nodes, others = [], 0
    for item in nested(data, whole, _GRAPH, _NODE):
        if text_of(data, last_field(data, item, _OP_TYPE)) == _EPCONTEXT:
            nodes.append(_epcontext(data, item))
        else:
            others += 1
    weight_files = dict.fromkeys(
        text_of(data, last_field(data, entry, _VALUE))
        for entry in nested(data, whole, _GRAPH, _INITIALIZER, _EXTERNAL_DATA)
        if text_of(data, last_field(data, entry, _KEY)) == "location"
    )
    facts: dict[str, Any] = {"other_nodes": others, "weight_files": [*weight_files]}
    if not nodes:
        return Artefact(data.path, "onnx", (), facts)
    pieces = (_piece(data, node) for node in nodes if node.values.get("main_context", 1))
    return Artefact(data.path, "epcontext", tuple(pieces), facts)


def _epcontext(data: FileBytes, item: WireField) -> _Node:
    values: dict[str, int] = {}
    texts: dict[str, WireField] = {}
    for attribute in nested(data, item, _ATTRIBUTE):
        name = text_of(data, last_field(data, attribute, _ATTRIBUTE_NAME))
        if (integer := last_field(data, attribute, _INTEGER)) is not None:
            values[name] = integer.value
        if (text := last_field(data, attribute, _STRING)) is not None:
            texts[name] = text
    return _Node(text_of(data, last_field(data, item, _NODE_NAME)), values, texts)


def _piece(data: FileBytes, node: _Node) -> Piece:
    facts: dict[str, Any] = {}
    if version := node.text(data, "ep_sdk_version"):
        facts["sdk_version"] = version
    if "max_size" in node.values:
        facts["max_size"] = node.values["max_size"]
    origin = f"node {node.name or node.text(data, 'partition_name') or _EPCONTEXT}"
    cache = node.texts.get(_CACHE)
    if cache is None or not cache.size:
        return Piece(data.path, 0 if cache is None else cache.offset, 0, origin, "empty", facts)
    if node.values.get("embed_mode", 1):
        return blob(data, cache.offset, cache.size, origin, facts)
    side = _side_file(data, cache, origin)
    try:
        with FileBytes(side, data.path.parent) as content:
            piece = whole_file(content)
    except ArtefactError as error:
        raise data.error(f"{origin} refers to another file: {error}", cache.offset) from error
    return replace(piece, origin=origin, facts=facts)


def _side_file(data: FileBytes, cache: WireField, origin: str) -> Path:
    if cache.size > _MAX_PATH_BYTES:
        problem = f"{origin} names a file with a path of {cache.size} bytes, more than "
        raise data.error(f"{problem}{_MAX_PATH_BYTES}", cache.offset)
    named = text_of(data, cache)
    try:
        # models made on Windows have backslashes
        return inside(data.path.parent, named.replace("\\", "/").removeprefix("./"))
    except NotInsideError as error:
        why = f"it {error.strerror}, but must be in the folder of the model"
        raise data.error(f"{origin} names the file {named[:200]!r}: {why}", cache.offset) from error


_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 16


class UnknownFileError(ArtefactError):
    """A file of no known kind."""


class _Format(NamedTuple):
    """A kind of file: the `magic` bytes at an `offset`. `read` returns None for another kind."""

    title: str
    suffix: str
    offset: int
    magic: bytes
    read: Callable[[FileBytes], Artefact | None]


def _context(data: FileBytes) -> Artefact:
    return Artefact(data.path, "context", (whole_file(data),))


_CONTEXT, _ZIP = PIECE_MAGIC["context"], PIECE_MAGIC["dlc"]
_FORMATS: Final = (
    _Format("a QNN context binary", ".bin", 0, _CONTEXT, _context),
    _Format("an ExecuTorch .pte", ".pte", 4, PTE_IDENTIFIER, read_pte),
    _Format("a LiteRT .tflite", ".tflite", 4, TFLITE_IDENTIFIER, read_tflite),
    _Format("a bundle of `model bundle`", "", 0, _ZIP, read_bundle),
    _Format("a DLC", ".dlc", 0, _ZIP, read_dlc),
    _Format("an ONNX model", ".onnx", 0, ONNX_HEAD, read_onnx),
    _Format("the manifest.json of `model extract`", "", 0, MANIFEST_HEAD, read_manifest),
)
"""All kinds. The first whose `read` returns an artefact counts."""
_KNOWN: Final = ", ".join(kind.title for kind in _FORMATS[:-1]) + f" or {_FORMATS[-1].title}"

SUFFIXES: Final = tuple(kind.suffix for kind in _FORMATS if kind.suffix)
"""Suffixes of files that must be artefacts; the kind is decided by the content."""


def open_artefact(path: str | os.PathLike[str], root: Path | None = None) -> Artefact:
    """Read a file of any name; below `root` no link is followed.

    Raises ArtefactError for one that is damaged, and UnknownFileError for one of no known kind.
    """
    with FileBytes(Path(path), root) as data:
        head = data.read(0, min(_HEAD_BYTES, data.size), "the first bytes")
        for kind in _FORMATS:
            begins = head[kind.offset :].startswith(kind.magic)
            if begins and (artefact := kind.read(data)):
                return artefact
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in get_args(ArtefactKind) and any(suffix in e.kinds for e in ENGINES.values()):
        return Artefact(Path(path), suffix, ())
    begin = repr(head.decode()) if head.isascii() and b"\0" not in head else head[:8].hex(" ")
    problem = f"has no known format: it begins with {begin}" if head else "is empty"
    raise UnknownFileError(f"{problem}; expected {_KNOWN}", file=Path(path))


def open_artefacts(
    paths: Iterable[str | os.PathLike[str]], on_error: Callable[[ArtefactError], None] | None = None
) -> list[Artefact]:
    """Return the artefacts of files and folders.

    A folder stands for its files in the order of their names, without those that a model or a
    manifest.json among them names. A file there with one of `SUFFIXES` must be an artefact; others
    may be ignored, which is logged. Raises ArtefactError for a file that is damaged or no artefact,
    and if there is none. With `on_error` errors are passed to it, and the other files are still
    opened.
    """
    artefacts: list[Artefact] = []
    for source in map(Path, paths):
        try:
            if source.is_dir():
                artefacts += _open_folder(source, on_error)
            else:
                artefacts.append(open_artefact(source))
        except ArtefactError as error:
            _report(error, on_error)
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            _report(ArtefactError(problem, file=source), on_error)
    return artefacts


def _report(error: ArtefactError, on_error: Callable[[ArtefactError], None] | None) -> None:
    if on_error is None:
        raise error
    on_error(error)


def _open_folder(folder: Path, on_error: Callable[[ArtefactError], None] | None) -> list[Artefact]:
    artefacts: list[Artefact] = []
    problems: dict[Path, ArtefactError] = {}
    ignored: list[Path] = []
    for file in sorted(folder.iterdir()):
        try:
            artefacts.append(open_artefact(file, folder))
        except ArtefactError as error:
            must_be_one = file.suffix.lower() in SUFFIXES or file.name == MANIFEST
            # a file that cannot be read may be an artefact
            other = isinstance(error, UnknownFileError) or file.suffix.lower() == ".json"
            if not must_be_one and (other or not stat.S_ISREG(file.lstat().st_mode)):
                ignored.append(file)
            else:
                problems[file] = error
    pieces = [(artefact.path, piece) for artefact in artefacts for piece in artefact.pieces]
    sides = {
        blob.path
        for artefact_path, piece in pieces
        for blob in (piece, *piece.inputs, *piece.expected)
        if blob.path != artefact_path
    }
    for artefact in artefacts:
        sides |= {artefact.path.parent / name for name in artefact.facts.get("weight_files", ())}
    if names := ", ".join(path.name for path in ignored if not path.is_dir() and path not in sides):
        _log.info("%s: files of no known format are ignored: %s", folder, names)
    for file, problem in problems.items():
        if file not in sides:
            _report(problem, on_error)
    if not artefacts and not problems:
        raise ArtefactError(f"has no file of a known format; expected {_KNOWN}", file=folder)
    return [artefact for artefact in artefacts if artefact.path not in sides]
