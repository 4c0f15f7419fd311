"""What a file of a user holds: the pieces that a runtime would load, where their bytes lie."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Self

from harness.core.errors import ConfigError
from harness.core.local_file import sha256_of_range
from harness.core.names_inside import NotInsideError, open_below

ArtefactKind = Literal["context", "pte", "epcontext", "tflite", "dlc", "onnx", "manifest", "bundle"]
PieceKind = Literal["context", "dlc", "empty"]


class PieceFormat(NamedTuple):
    """The first bytes of a piece, the end of its file's name, and why nothing is told of it."""

    magic: bytes
    suffix: str
    problem: str | None


PIECE_FORMATS: Final[dict[PieceKind, PieceFormat]] = {
    "context": PieceFormat(b"\x00\x00\x00\x02", ".bin", "nothing was read of it"),
    "dlc": PieceFormat(b"PK\x03\x04", ".dlc", None),  # a zip: a model that is compiled elsewhere
    "empty": PieceFormat(b"", "", "a cache without content"),
}


class ArtefactError(ConfigError):
    """A file that is not, or not wholly, what it says it is; `offset` is where (bytes)."""

    def __init__(self, problem: str, *, file: Path | str, offset: int | None = None) -> None:
        self.offset = offset
        where = "" if offset is None else f"at byte {offset}: "
        super().__init__(f"{where}{problem}", file=file)


def open_file(path: Path, within: Path | None) -> BinaryIO:
    """A file as it is. From `within` on no link is followed. Raises OSError."""
    if within is None:
        return path.open("rb")
    return open_below(within, path.relative_to(within).as_posix())


@dataclass(frozen=True)
class Blob:
    """Bytes inside a file; nothing of them is read yet.

    `path` is the file that holds them, from `offset` on `size` of them, which lie within the file.
    `origin` says where they belong inside the artefact ("forward/3", "node EPContext_1"; "" for a
    file that is one). `within` is a folder that nothing may lead out of. It is given for a file
    that only another file named, or that was found in a folder.
    """

    path: Path
    offset: int
    size: int
    origin: str
    within: Path | None = field(default=None, kw_only=True)

    def open(self) -> BinaryIO:
        """The file. Raises OSError, also for a link within `within`."""
        return open_file(self.path, self.within)


@dataclass(frozen=True)
class Piece(Blob):
    """What a runtime would load: a blob with what it is.

    `kind` is what the bytes are ("empty": a cache without content), `facts` what the container says
    of it. `inputs` and `expected` are raw files that came with it, one for each tensor.
    """

    kind: PieceKind
    facts: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Blob, ...] = ()
    expected: tuple[Blob, ...] = ()

    def sha256(self) -> str:
        """The hash of its bytes, in hex; they are read in small parts.

        Raises ArtefactError, also if its facts name another hash.
        """
        try:
            with self.open() as file:
                found = sha256_of_range(file, self.offset, self.size)
        except (OSError, EOFError) as error:
            raise ArtefactError(f"cannot be read: {error}", file=self.path) from error
        if self.facts.get("sha256") not in (None, found):
            problem = f"{self.origin or 'it'} is not what it was when it was extracted"
            raise ArtefactError(problem, file=self.path, offset=self.offset)
        return found


@dataclass(frozen=True)
class Artefact:
    """A file that was recognised; its pieces are in the order in which a runtime loads them."""

    path: Path
    kind: ArtefactKind
    pieces: tuple[Piece, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


_MAX_READ: Final = 1 << 20
# What all reads of a file may cost: its bytes, and for each read some more. The largest models that
# people have come to a fifth of it; a file that was made to be endless ends here in some ten s.
_BUDGET: Final = 1 << 27
_COST_OF_A_READ: Final = 16


class FileBytes:
    """The bytes of one file, `size` of them. Little of it is in memory, however large it is.

    Not a memory map: a file that somebody cuts off meanwhile is an error, not a SIGBUS.
    """

    def __init__(self, path: Path, within: Path | None = None) -> None:
        """`within` is a folder that the file must lie in, with no link on the way.

        Raises ArtefactError for what is no readable, regular file.
        """
        self.path, self.within = path, within
        try:
            # a FIFO would have to be waited for
            if within is None and not stat.S_ISREG(path.stat().st_mode):
                raise ArtefactError("is not a file", file=path)
            self._file = open_file(path, within)
            self.size = os.fstat(self._file.fileno()).st_size
        except NotInsideError as error:
            raise ArtefactError(str(error.strerror), file=path) from error
        except OSError as error:
            raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error
        self._left = _BUDGET

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def open(self) -> BinaryIO:
        """The file once more, for what reads it in its own way. Raises OSError."""
        return open_file(self.path, self.within)

    def error(self, problem: str, offset: int) -> ArtefactError:
        """An error about this file at an offset."""
        return ArtefactError(problem, file=self.path, offset=offset)

    def require(self, offset: int, size: int, what: str) -> None:
        """Raises ArtefactError if `size` bytes from `offset` on do not lie within the file."""
        if offset < 0 or size < 0 or offset + size > self.size:
            problem = f"{what} of {size} bytes does not lie within the file of {self.size}"
            if offset <= self.size:
                problem += ": the file is cut off, or damaged"
            raise self.error(problem, offset)

    def at(self, offset: int, size: int, what: str) -> bytes:
        """So many bytes, at most 1 MiB of them. Raises ArtefactError."""
        self.require(offset, size, what)
        if size > _MAX_READ:
            raise self.error(f"{what} has {size} bytes, more than the {_MAX_READ} allowed", offset)
        self._left -= size + _COST_OF_A_READ
        if self._left < 0:
            raise self.error("the file has more parts than any artefact that is known", offset)
        try:
            self._file.seek(offset)
            content = self._file.read(size)
        except OSError as error:
            raise self.error(f"{what} cannot be read: {error.strerror}", offset) from error
        if len(content) < size:
            raise self.error(f"the file was cut off while {what} was read", offset)
        return content

    def number(self, form: str, offset: int, what: str) -> Any:
        """One number in a form of `struct`, such as "<I". Raises ArtefactError."""
        return struct.unpack(form, self.at(offset, struct.calcsize(form), what))[0]


# In what QNN 2.34 to 2.51 made (100 files looked at): where the last part begins, and its size.
_MAGIC_WITH_SIZES: Final = b"\x00\x00\x00\x02\x00\x00\x00\x03"
_SIZES: Final = struct.Struct("<24xQQ")

_HEAD_BYTES: Final = 1 << 16
_BUILD: Final = re.compile(rb"v(2\.\d{1,3}\.\d{1,3})\.\d{12}\b")

# Of ExecuTorch, backends/qualcomm/runtime/backends/QnnCustomProtocol.h: magic, signature and size
# of the binary; the binary begins behind padding to 256 bytes, in older versions at once.
_WRAPPED: Final = b"\xcd\xab\x78\x56"
_WRAPPER: Final = struct.Struct("<4sqQ")
_WRAPPER_BYTES: Final = (256, _WRAPPER.size)
_GRAPH_MAGIC: Final = b"\xcd\xab\x34\x12"


def whole_file(data: FileBytes) -> Piece:
    """A whole file as a piece. Raises ArtefactError.

    Whether it is whole, QNN's own library tells.
    """
    return _known(data, 0, data.size, "", {})


def blob(data: FileBytes, offset: int, size: int, origin: str, facts: Mapping[str, Any]) -> Piece:
    """The piece of these bytes of a container.

    Raises ArtefactError if QNN would not know what they are, or they are more than these.
    """
    data.require(offset, size, origin)
    piece = _known(data, offset, size, origin, facts)
    head = data.at(offset, min(_SIZES.size, size), origin)
    if head.startswith(_MAGIC_WITH_SIZES) and len(head) == _SIZES.size:
        begin, length = _SIZES.unpack(head)
        if begin + length > size:
            problem = f"says that it has {begin + length} bytes, but {size} are there"
            raise data.error(f"{origin} {problem}", offset)
    return piece


def _known(data: FileBytes, offset: int, size: int, origin: str, facts: Mapping[str, Any]) -> Piece:
    what = origin or "the file"
    head = data.at(offset, min(4, size), what)
    kinds = {one.magic: kind for kind, one in PIECE_FORMATS.items() if one.magic}
    if head not in kinds:
        known = ", ".join(f"{magic.hex(' ')} ({kind})" for magic, kind in kinds.items())
        problem = f"{what} begins with {head.hex(' ') or 'nothing'}; what QNN takes, with {known}"
        raise data.error(problem, offset)
    return Piece(data.path, offset, size, origin, kinds[head], facts, within=data.within)


def named_version(path: Path) -> str | None:
    """The QNN version (2.49.40) that a context binary names near its beginning, if it does.

    A look into the bytes, for what is chosen before anything runs. Only its metadata are sure.
    Raises ArtefactError for a file that cannot be read.
    """
    with FileBytes(path) as data:
        head = data.at(0, min(_HEAD_BYTES, data.size), "the context")
    found = _BUILD.search(head)
    return found[1].decode() if found else None


def delegate_blob(data: FileBytes, offset: int, size: int, origin: str) -> Piece:
    """The piece of what ExecuTorch hands to its QNN backend, out of what it is wrapped in.

    Raises ArtefactError.
    """
    data.require(offset, size, origin)
    head = data.at(offset, min(_WRAPPER.size, size), origin)
    if head.startswith(_GRAPH_MAGIC):
        problem = f"{origin} holds a graph for a compiler on the device, and no context binary"
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
        f"{origin} says that its context has {inner} bytes, but has {size} itself; a header of "
        f"{_WRAPPER_BYTES[0]} or {_WRAPPER_BYTES[1]} belongs before it"
    )
    raise data.error(problem, offset)
