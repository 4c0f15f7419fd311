"""Recognises what files are, by their content, and has them read.

The attributes are those of microsoft/onnxruntime, docs/execution-providers/EP-Context-Design.md.

The library reads a whole message into memory, gigabytes of a context included, and does not tell
where they lay.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.containers.artefact import (
    PIECE_FORMATS,
    Artefact,
    ArtefactError,
    FileBytes,
    Piece,
    blob,
    whole_file,
)
from harness.containers.manifest import (
    MANIFEST,
    MANIFEST_HEAD,
    read_bundle,
    read_manifest,
)
from harness.containers.pte import PTE_IDENTIFIER, read_pte
from harness.containers.tflite import TFLITE_IDENTIFIER, read_tflite
from harness.core.archive import ArchiveError, ArchiveLimits, opened_archive
from harness.core.names_inside import NotInsideError, inside

_METADATA: Final = "dlc.metadata"
_MAX_METADATA_BYTES: Final = 1 << 20
# a model may be as large as a disk, since only the metadata is unpacked
_LIMITS: Final = ArchiveLimits(
    archive_bytes=1 << 50, total_bytes=1 << 50, ratio=1 << 50, zip64=True
)


def read_dlc(data: FileBytes) -> Artefact:
    """One piece, the whole file; `records` and what the converter said of itself are facts.

    Raises ArtefactError for a zip that is damaged, or no DLC.
    """
    try:
        with data.open() as file, opened_archive(file, _LIMITS) as opened:
            records = {record.filename: record.file_size for record in opened.infolist()}
            if _METADATA not in records:
                raise data.error(f"the zip has no {_METADATA}, so it is no DLC", 0)
            with opened.open(_METADATA) as metadata:
                text = metadata.read(_MAX_METADATA_BYTES).decode("utf-8", "replace")
    except (ArchiveError, OSError) as error:
        raise data.error(f"the zip is damaged: {error}", 0) from error
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    facts: dict[str, Any] = {
        "records": records,
        "converter": said.get("converter-version", ""),
        "command": said.get("converter-command", ""),
    }
    return Artefact(data.path, "dlc", (whole_file(data),), facts)


VARINT: Final = 0
LENGTH: Final = 2
_FIXED: Final = {1: 8, 5: 4}


@dataclass(frozen=True)
class WireField:
    """One field: its number in the schema and how it is kept (`VARINT`, `LENGTH`, other).

    A varint has its `value`; anything else lies `size` bytes long from `offset` on.
    """

    number: int
    wire: int
    value: int
    offset: int
    size: int


def fields(data: FileBytes, offset: int, size: int, what: str) -> Iterator[WireField]:
    """The fields of the message that lies there, in their order. Raises ArtefactError."""
    data.require(offset, size, what)
    end = offset + size
    while offset < end:
        at = offset
        tag, offset = _varint(data, at, end, what)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, offset = _varint(data, offset, end, what)
            yield WireField(number, wire, value, offset, 0)
            continue
        if wire == LENGTH:
            length, offset = _varint(data, offset, end, what)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise data.error(f"{what} is damaged: no field is kept in way {wire}", at)
        if not number or length > end - offset:
            problem = f"{what} needs {length} bytes here, and has {end - offset}"
            raise data.error(f"{problem}: the file is cut off, or damaged", at)
        yield WireField(number, wire, 0, offset, length)
        offset += length


def _varint(data: FileBytes, offset: int, end: int, what: str) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    value = 0
    for index, byte in enumerate(data.at(offset, min(10, end - offset), what)):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + index + 1
    raise data.error(f"{what} is damaged: a number does not end", offset)


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


_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 16


class UnknownFileError(ArtefactError):
    """A file of no kind that is known."""


class _Format(NamedTuple):
    """A kind of file: which bytes stand where in it. `read` gives None for any other kind."""

    title: str
    suffix: str
    at: int
    magic: bytes
    read: Callable[[FileBytes], Artefact | None]


def _context(data: FileBytes) -> Artefact:
    return Artefact(data.path, "context", (whole_file(data),))


_CONTEXT, _ZIP = PIECE_FORMATS["context"].magic, PIECE_FORMATS["dlc"].magic
_FORMATS: Final = (
    _Format("a QNN context binary", ".bin", 0, _CONTEXT, _context),
    _Format("an ExecuTorch .pte", ".pte", 4, PTE_IDENTIFIER, read_pte),
    _Format("a LiteRT .tflite", ".tflite", 4, TFLITE_IDENTIFIER, read_tflite),
    _Format("a bundle of `contexts bundle`", "", 0, _ZIP, read_bundle),
    _Format("a DLC", ".dlc", 0, _ZIP, read_dlc),
    _Format("an ONNX model", ".onnx", 0, ONNX_HEAD, read_onnx),
    _Format("the manifest.json of `contexts extract`", "", 0, MANIFEST_HEAD, read_manifest),
)
"""All kinds. The first whose `read` gives an artefact counts."""
_KNOWN: Final = f"one of: {', '.join(one.title for one in _FORMATS)}"

SUFFIXES: Final = tuple(one.suffix for one in _FORMATS if one.suffix)
"""What files are called that people take for artefacts; what one is, its content tells."""


def open_artefact(path: str | os.PathLike[str], within: Path | None = None) -> Artefact:
    """What a file holds, whatever it is called; no link is followed below `within`.

    Raises ArtefactError for one that is damaged, and UnknownFileError for one of no known kind.
    """
    with FileBytes(Path(path), within) as data:
        head = data.at(0, min(_HEAD_BYTES, data.size), "the first bytes")
        for one in _FORMATS:
            if head[one.at :].startswith(one.magic) and (found := one.read(data)):
                return found
    begins = f"begins with {head.hex(' ')}" if head else "is empty (0 bytes)"
    problem = f"is no file of a known kind: it {begins}, and should be {_KNOWN}"
    raise UnknownFileError(problem, file=Path(path))


def open_artefacts(
    paths: Iterable[str | os.PathLike[str]],
    told: Callable[[ArtefactError], None] | None = None,
) -> list[Artefact]:
    """The artefacts of files, folders and patterns (`models/*.pte`, `**` for folders below).

    Of a folder: its files in the order of their names, without those that a model or a
    manifest.json among them names. A file there with one of `SUFFIXES` must be an artefact; any
    other that is none is passed by, and logged. Raises ArtefactError for what is no artefact, or
    damaged, and where nothing is found. With `told` each such error goes there, and the other files
    are still opened.
    """
    found: list[Artefact] = []
    for path in map(Path, paths):
        with _told(told, path):
            if path.is_dir():
                found += _recognised(sorted(path.iterdir()), path, path, told)
            elif path.exists() or not glob.has_magic(str(path)):
                found.append(open_artefact(path))
            else:
                named = list(itertools.takewhile(lambda one: not glob.has_magic(one), path.parts))
                folder, left = Path(*named), path.parts[len(named) :]
                matching = sorted(set(_matching(folder, left)))
                files = [one for one in matching if one.suffix in SUFFIXES or not one.is_dir()]
                if not files:
                    raise ArtefactError("no file is called so", file=path)
                found += _recognised(files, path, folder, told)
    return found


def _matching(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What is called like a pattern in a folder, as `glob` finds it; but it enters no link."""
    first, *rest = parts
    if first == "**" and rest:
        yield from _matching(folder, rest)
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if entry.name.startswith(".") and not first.startswith("."):
            continue
        path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
        if first == "**":
            if not rest:
                yield path
            if is_folder:
                yield from _matching(path, parts)
        elif fnmatch.fnmatchcase(entry.name, first):
            if not rest:
                yield path
            elif is_folder:
                yield from _matching(path, rest)


@contextlib.contextmanager
def _told(told: Callable[[ArtefactError], None] | None, path: Path) -> Iterator[None]:
    """Tell an error of the block, or raise it."""
    try:
        try:
            yield
        except OSError as error:
            raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error
    except ArtefactError as error:
        if told is None:
            raise
        told(error)


def _recognised(
    files: list[Path],
    where: Path,
    folder: Path,
    told: Callable[[ArtefactError], None] | None,
) -> list[Artefact]:
    """What was found in a folder, or below, by listing it."""
    found: list[Artefact] = []
    problems: dict[Path, ArtefactError] = {}
    passed: list[Path] = []
    for file in files:
        try:
            found.append(open_artefact(file, folder))
        except ArtefactError as error:
            if _is_passed_by(file, error):
                passed.append(file)
            else:
                problems[file] = error
    pieces = [(one.path, piece) for one in found for piece in one.pieces]
    sides = {
        blob.path
        for own, piece in pieces
        for blob in (piece, *piece.inputs, *piece.expected)
        if blob.path != own
    }
    sides |= {one.path.parent / name for one in found for name in one.facts.get("beside", ())}
    if names := ", ".join(one.name for one in passed if not one.is_dir() and one not in sides):
        _log.info("%s: of no known kind, passed by: %s", where, names)
    for file, problem in problems.items():
        if file not in sides:
            with _told(told, file):
                raise problem
    if len(passed) == len(files):
        raise ArtefactError(f"holds no file of a known kind, which would be {_KNOWN}", file=where)
    return [one for one in found if one.path not in sides]


def _is_passed_by(file: Path, error: ArtefactError) -> bool:
    """Whether something is no artefact, and not called like one: no file, of no known kind, or JSON
    about something else.

    What cannot be read may be one.
    """
    if file.suffix.lower() in SUFFIXES or file.name == MANIFEST:
        return False
    if isinstance(error, UnknownFileError) or file.suffix.lower() == ".json":
        return True
    return not stat.S_ISREG(file.lstat().st_mode)
