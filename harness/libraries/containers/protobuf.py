"""Protocol buffers without reading them whole: where the fields of a message lie in a file.

The library reads a whole message into memory, gigabytes of a context included, and does not tell
where they lay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.libraries.containers.file_bytes import FileBytes

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
