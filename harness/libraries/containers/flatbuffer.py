"""FlatBuffers of unknown origin: each offset and each size is checked before it is followed.

The library `flatbuffers` reads what it trusts, and has no verifier for Python.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.libraries.containers.file_bytes import FileBytes


@dataclass(frozen=True)
class Vector:
    """Where the items of a vector lie: offset of the first one in the file, and their number."""

    offset: int
    count: int


class FlatTable:
    """One table; fields are named by their number in the schema, from 0.

    Everything raises ArtefactError for what does not lie within the file. `what` is what the table
    is called in such an error.
    """

    def __init__(self, data: FileBytes, position: int, what: str) -> None:
        self._data = data
        self._position = position
        self.what = what
        fields = position - data.number("<i", position, what)
        size = data.number("<H", fields, f"the list of fields of {what}")
        if size < 4 or size % 2:
            raise data.error(f"{what} is no table: its list of fields has {size} bytes", fields)
        self._fields = data.at(fields, size, f"the list of fields of {what}")

    @classmethod
    def root(cls, data: FileBytes, what: str) -> FlatTable:
        """The table that the first four bytes of the file point to."""
        return cls(data, data.number("<I", 0, what), what)

    def number(self, field: int, form: str, default: Any = 0) -> Any:
        """A number in a form of `struct`."""
        place = self._place(field)
        return default if place is None else self._data.number(form, place, self._named(field))

    def table(self, field: int, what: str) -> FlatTable | None:
        """The table that a field points to; None if it is not there."""
        target = self._target(field)
        return None if target is None else FlatTable(self._data, target, what)

    def text(self, field: int) -> str:
        """A text; "" if it is not there. What is no UTF-8 in it is replaced."""
        vector = self.vector(field, 1)
        content = self._data.at(vector.offset, vector.count, self._named(field))
        return content.decode("utf-8", "replace")

    def vector(self, field: int, item_bytes: int) -> Vector:
        """The items of a field; none if it is not there."""
        target = self._target(field)
        if target is None:
            return Vector(0, 0)
        count = self._data.number("<I", target, self._named(field))
        self._data.require(target + 4, count * item_bytes, f"{self._named(field)}, {count} items,")
        return Vector(target + 4, count)

    def integers(self, field: int) -> tuple[int, ...]:
        """The numbers of 32 bits that a field lists, at most 1 MiB of them."""
        vector = self.vector(field, 4)
        content = self._data.at(vector.offset, 4 * vector.count, self._named(field))
        return struct.unpack(f"<{vector.count}i", content)

    def tables(self, field: int, what: str) -> Iterator[FlatTable]:
        """The tables that a field lists, called `what` and their number."""
        vector = self.vector(field, 4)
        for index in range(vector.count):
            yield self._listed(vector, index, f"{what} {index}")

    def table_at(self, field: int, index: int, what: str) -> FlatTable:
        """One of the tables that a field lists."""
        vector = self.vector(field, 4)
        if not 0 <= index < vector.count:
            problem = f"{what} {index} is asked for, but there are {vector.count}"
            raise self._data.error(problem, self._position)
        return self._listed(vector, index, f"{what} {index}")

    def _listed(self, vector: Vector, index: int, what: str) -> FlatTable:
        place = vector.offset + 4 * index
        return FlatTable(self._data, place + self._data.number("<I", place, what), what)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > len(self._fields):
            return None
        (distance,) = struct.unpack_from("<H", self._fields, entry)
        return self._position + distance if distance else None

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        if place is None:
            return None
        return place + int(self._data.number("<I", place, self._named(field)))

    def _named(self, field: int) -> str:
        return f"field {field} of {self.what}"
