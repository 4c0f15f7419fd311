"""What a file of a user holds: the pieces that a runtime would load, where their bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from harness.ground.errors import ConfigError
from harness.ground.files.copy_range import sha256_of_range
from harness.ground.files.names_inside import open_below

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
