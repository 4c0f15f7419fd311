"""What the bytes are that a container hands to QNN."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.libraries.containers.artefact import PIECE_FORMATS, Piece
from harness.libraries.containers.file_bytes import FileBytes

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
