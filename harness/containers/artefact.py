"""Artefacts: files of users, the pieces that a runtime would load, and where their bytes lie."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

from harness.core.errors import ConfigError
from harness.core.files import sha256_of_range
from harness.core.paths_inside import NotInsideError, open_below

ArtefactKind = Literal["context", "pte", "epcontext", "tflite", "dlc", "onnx", "manifest", "bundle"]
PieceKind = Literal["context", "dlc", "empty"]


PIECE_MAGIC: Final[dict[PieceKind, bytes]] = {
    "context": b"\x00\x00\x00\x02",
    "dlc": b"PK\x03\x04",  # a zip: a model that is compiled elsewhere
}
"""First bytes of a piece."""


class ArtefactError(ConfigError):
    """A file that is damaged, or of another kind; `offset` is the place of the error (bytes)."""

    def __init__(self, problem: str, *, file: Path | str, offset: int | None = None) -> None:
        self.offset = offset
        place = "" if offset is None else f"at byte {offset}: "
        super().__init__(f"{place}{problem}", file=file)


def open_file(path: Path, root: Path | None) -> BinaryIO:
    """Open a file. Below `root` no link is followed. Raises OSError."""
    if root is None:
        return path.open("rb")
    return open_below(root, path.relative_to(root).as_posix())


@dataclass(frozen=True)
class Blob:
    """Bytes inside a file, which are not read yet: `size` bytes of `path` from `offset` on.

    `origin` is their place inside the artefact ("forward/3", "node EPContext_1"; "" for a whole
    file). `root` is a folder that no link may lead out of; it is set for a file that another file
    names, or that was found in a folder.
    """

    path: Path
    offset: int
    size: int
    origin: str
    root: Path | None = field(default=None, kw_only=True)

    def open(self) -> BinaryIO:
        """Open the file. Raises OSError, also for a link below `root`."""
        return open_file(self.path, self.root)


@dataclass(frozen=True)
class Piece(Blob):
    """A blob that a runtime would load.

    `kind` is the kind of bytes ("empty": a cache without content), `facts` are those of the
    container. `inputs` and `expected` are raw files that came with it, one for each tensor.
    """

    kind: PieceKind
    facts: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Blob, ...] = ()
    expected: tuple[Blob, ...] = ()

    def sha256(self) -> str:
        """Return the hash of the bytes, in hex. Raises ArtefactError if facts have another."""
        try:
            with self.open() as file:
                digest = sha256_of_range(file, self.offset, self.size)
        except (OSError, EOFError) as error:
            raise ArtefactError(f"cannot be read: {error}", file=self.path) from error
        if self.facts.get("sha256") not in (None, digest):
            problem = f"{self.origin or 'it'} has changed since it was extracted"
            raise ArtefactError(problem, file=self.path, offset=self.offset)
        return digest


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph (size in bytes).

    `shape` is None if it is unknown, `data_type` is "" for one that no raw file can have.
    """

    name: str
    size: int
    data_type: str
    shape: tuple[int, ...] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.name} ({self.data_type}{shape}, {self.size} bytes)"


@dataclass(frozen=True)
class Artefact:
    """A file of a known kind; its pieces are in the order in which a runtime loads them.

    A kind other than an `ArtefactKind` is the suffix of a file that only an engine of a plug-in
    reads.
    """

    path: Path
    kind: ArtefactKind | str
    pieces: tuple[Piece, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


_MAX_READ: Final = 1 << 20
# Bound of all reads of a file: the bytes read, and a cost for each read. The largest known models
# take a fifth of it; a file that was made to be endless fails after some 10 s.
_BUDGET: Final = 1 << 27
_COST_OF_A_READ: Final = 16


class FileBytes:
    """The bytes of one file, `size` of them, of which only small parts are in memory.

    Not a memory map: a file that is truncated meanwhile is an error, not a SIGBUS.
    """

    def __init__(self, path: Path, root: Path | None = None) -> None:
        """Open a regular file, below `root` without following links. Raises ArtefactError."""
        self.path, self.root = path, root
        try:
            # opening a FIFO would block
            if root is None and not stat.S_ISREG(path.stat().st_mode):
                raise ArtefactError("is not a file", file=path)
            self._file = open_file(path, root)
            self.size = os.fstat(self._file.fileno()).st_size
        except NotInsideError as error:
            raise ArtefactError(str(error.strerror), file=path) from error
        except OSError as error:
            raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error
        self._budget = _BUDGET

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def error(self, problem: str, offset: int) -> ArtefactError:
        return ArtefactError(problem, file=self.path, offset=offset)

    def require(self, offset: int, size: int, label: str) -> None:
        """Raise ArtefactError unless `size` bytes from `offset` on lie within the file."""
        if offset < 0 or size < 0 or offset + size > self.size:
            problem = f"{label} of {size} bytes ends outside the file of {self.size} bytes"
            if offset <= self.size:
                problem += ": the file is truncated or damaged"
            raise self.error(problem, offset)

    def read(self, offset: int, size: int, label: str) -> bytes:
        """Read bytes, at most 1 MiB. Raises ArtefactError."""
        self.require(offset, size, label)
        if size > _MAX_READ:
            raise self.error(f"{label} has {size} bytes, more than the {_MAX_READ} allowed", offset)
        self._budget -= size + _COST_OF_A_READ
        if self._budget < 0:
            raise self.error("the file has too many parts for a model file", offset)
        try:
            self._file.seek(offset)
            content = self._file.read(size)
        except OSError as error:
            raise self.error(f"{label} cannot be read: {error.strerror}", offset) from error
        if len(content) < size:
            raise self.error(f"the file was truncated while {label} was read", offset)
        return content

    def number(self, form: str, offset: int, label: str) -> Any:
        """Read a number in a format of `struct`, such as "<I". Raises ArtefactError."""
        return struct.unpack(form, self.read(offset, struct.calcsize(form), label))[0]


# In files of QNN 2.34 to 2.51 (100 were examined): the offset of the last part, and its size.
_MAGIC_WITH_SIZES: Final = b"\x00\x00\x00\x02\x00\x00\x00\x03"
_SIZES: Final = struct.Struct("<24xQQ")

_HEAD_BYTES: Final = 1 << 16
_BUILD: Final = re.compile(rb"v(2\.\d{1,3}\.\d{1,3})\.\d{12}\b")

# ExecuTorch's backends/qualcomm/runtime/backends/QnnCustomProtocol.h: magic, signature and size of
# the binary, which begins after padding to 256 bytes, in older versions without padding.
_WRAPPED: Final = b"\xcd\xab\x78\x56"
_WRAPPER: Final = struct.Struct("<4sqQ")
_WRAPPER_BYTES: Final = (256, _WRAPPER.size)
_GRAPH_MAGIC: Final = b"\xcd\xab\x34\x12"


def whole_file(data: FileBytes) -> Piece:
    """Return a whole file as a piece, even if it is truncated. Raises ArtefactError."""
    return _typed_piece(data, 0, data.size, "", {})


def blob(data: FileBytes, offset: int, size: int, origin: str, facts: Mapping[str, Any]) -> Piece:
    """Return a part of a container as a piece. Raises ArtefactError for unknown ones."""
    data.require(offset, size, origin)
    piece = _typed_piece(data, offset, size, origin, facts)
    head = data.read(offset, min(_SIZES.size, size), origin)
    if head.startswith(_MAGIC_WITH_SIZES) and len(head) == _SIZES.size:
        begin, length = _SIZES.unpack(head)
        if begin + length > size:
            problem = f"states a size of {begin + length} bytes, but has {size}: it is truncated"
            raise data.error(f"{origin} {problem}", offset)
    return piece


def _typed_piece(
    data: FileBytes, offset: int, size: int, origin: str, facts: Mapping[str, Any]
) -> Piece:
    label = origin or "the file"
    head = data.read(offset, min(4, size), label)
    kinds = {magic: kind for kind, magic in PIECE_MAGIC.items()}
    if head not in kinds:
        choices = ", ".join(f"{magic.hex(' ')} ({kind})" for magic, kind in kinds.items())
        problem = f"{label} begins with {head.hex(' ') or 'nothing'}, not with {choices}"
        raise data.error(problem, offset)
    return Piece(data.path, offset, size, origin, kinds[head], facts, root=data.root)


def named_version(path: Path) -> str | None:
    """Return the QNN version (2.49.40) that a context binary names near its beginning, if any.

    It is a guess, for choices before anything runs; only the metadata are reliable. Raises
    ArtefactError for a file that cannot be read.
    """
    with FileBytes(path) as data:
        head = data.read(0, min(_HEAD_BYTES, data.size), "the context")
    match = _BUILD.search(head)
    return match[1].decode() if match else None


def delegate_blob(data: FileBytes, offset: int, size: int, origin: str) -> Piece:
    """Return the piece inside the wrapper of ExecuTorch's QNN backend. Raises ArtefactError."""
    data.require(offset, size, origin)
    head = data.read(offset, min(_WRAPPER.size, size), origin)
    if head.startswith(_GRAPH_MAGIC):
        problem = f"{origin} has a graph that the device compiles, not a context binary"
        raise data.error(problem, offset)
    if not head.startswith(_WRAPPED):
        return blob(data, offset, size, origin, {})
    if len(head) < _WRAPPER.size:
        raise data.error(f"{origin} ends within its header", offset)
    _, signature, inner = _WRAPPER.unpack(head)
    for begin in _WRAPPER_BYTES:
        if begin + inner == size:
            return blob(data, offset + begin, inner, origin, {"signature": signature})
    problem = (
        f"{origin} states a context of {inner} bytes, but has {size} bytes, of which the header "
        f"takes {_WRAPPER_BYTES[0]} or {_WRAPPER_BYTES[1]}"
    )
    raise data.error(problem, offset)
