"""ExecuTorch programs (.pte): the contexts of their QNN delegates.

The layout is that of pytorch/executorch: schema/program.fbs and schema/extended_header.h.

The library `flatbuffers` trusts its input, and has no verifier for Python.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from harness.containers.artefact import Artefact, FileBytes, Piece, Tensor, delegate_blob
from harness.containers.graph_partitions import CPU, NPU, GraphNode, Placed


class FlatTable:
    """One table; fields are numbered as in the schema, from 0.

    All methods raise ArtefactError for data outside the file. `label` is the table's name in such
    an error.
    """

    def __init__(self, data: FileBytes, position: int, label: str) -> None:
        self._data = data
        self._position = position
        self.label = label
        fields = position - data.number("<i", position, label)
        size = data.number("<H", fields, f"the vtable of {label}")
        if size < 4 or size % 2:
            raise data.error(f"{label} is damaged: its vtable has {size} bytes", fields)
        self._fields = data.read(fields, size, f"the vtable of {label}")

    @classmethod
    def root(cls, data: FileBytes, label: str) -> FlatTable:
        """Return the table that the first four bytes of the file point to."""
        return cls(data, data.number("<I", 0, label), label)

    def number(self, field: int, form: str, default: Any = 0) -> Any:
        place = self._place(field)
        return default if place is None else self._data.number(form, place, self._named(field))

    def table(self, field: int, label: str) -> FlatTable | None:
        """Return the table that a field points to; None if it is missing."""
        target = self._target(field)
        return None if target is None else FlatTable(self._data, target, label)

    def text(self, field: int) -> str:
        """Return a text, "" if it is missing. Invalid UTF-8 is replaced."""
        offset, count = self.vector(field, 1)
        content = self._data.read(offset, count, self._named(field))
        return content.decode("utf-8", "replace")

    def vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return the offset of a field's items in the file, and their number."""
        target = self._target(field)
        if target is None:
            return 0, 0
        count = self._data.number("<I", target, self._named(field))
        self._data.require(target + 4, count * item_bytes, f"{self._named(field)}, {count} items,")
        return target + 4, int(count)

    def integers(self, field: int) -> tuple[int, ...]:
        """Return the 32-bit numbers that a field lists, at most 1 MiB of them."""
        offset, count = self.vector(field, 4)
        content = self._data.read(offset, 4 * count, self._named(field))
        return struct.unpack(f"<{count}i", content)

    def tables(self, field: int, label: str) -> Iterator[FlatTable]:
        """Yield the tables that a field lists, labelled with `label` and their number."""
        offset, count = self.vector(field, 4)
        for index in range(count):
            yield self._listed(offset, index, f"{label} {index}")

    def table_at(self, field: int, index: int, label: str) -> FlatTable:
        offset, count = self.vector(field, 4)
        if not 0 <= index < count:
            problem = f"{label} {index} does not exist: there are {count}"
            raise self._data.error(problem, self._position)
        return self._listed(offset, index, f"{label} {index}")

    def _listed(self, offset: int, index: int, label: str) -> FlatTable:
        place = offset + 4 * index
        return FlatTable(self._data, place + self._data.number("<I", place, label), label)

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
        return f"field {field} of {self.label}"


PTE_IDENTIFIER: Final = b"ET12"
"""At byte 4."""

_BACKEND: Final = "QnnBackend"
_HEADER_MAGIC: Final = b"eh00"
_HEADER_AT: Final = 8
_HEADER_BYTES: Final = 24
_HEADER_BYTES_WITH_SIZE: Final = 32

# numbers of fields in program.fbs
_PLANS, _INLINE, _SEGMENTS = 1, 3, 4
_NAME, _VALUES, _INPUTS, _OUTPUTS, _CHAINS, _OPERATORS, _DELEGATES = 0, 2, 3, 4, 5, 6, 7
_INSTRUCTIONS: Final = 2
_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_PORTABLE: Final = "a portable kernel of ExecuTorch: the export left it to the CPU"
_VALUE_TYPE, _VALUE = 0, 1
_TENSOR: Final = 5
_SCALAR_TYPE, _SIZES = 0, 2
# other values that have a size: integers, booleans, reals; by the number of their type
_NUMBERS: Final = {2: ("int64", 8), 3: ("bool8", 1), 4: ("float64", 8)}
_ID, _PROCESSED = 0, 1
_LOCATION, _INDEX = 0, 1
_IN_SEGMENT: Final = 1

# name and bytes of an element, by the numbers of schema/scalar_type.fbs
_ELEMENTS: Final = dict(
    [
        *enumerate([("uint8", 1), ("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8)]),
        *enumerate([("float16", 2), ("float32", 4), ("float64", 8)], start=5),
        (11, ("bool8", 1)),
        *enumerate([("uint16", 2), ("uint32", 4), ("uint64", 8)], start=27),
    ]
)
_MOST_DIMENSIONS: Final = 16


def read_pte(data: FileBytes) -> Artefact:
    """Return the contexts in the order in which the runtime loads them: by method and delegate.

    A context that several delegates share is one piece, as ExecuTorch loads it once; `also` in its
    facts names the others. Raises ArtefactError.
    """
    base, end = _segments_of(data)
    program = FlatTable.root(data, "the program")
    pieces: dict[tuple[int, int], Piece] = {}
    shared: dict[tuple[int, int], list[str]] = {}
    methods, others = [], 0
    for number, plan in enumerate(program.tables(_PLANS, "method")):
        methods.append(plan.text(_NAME) or str(number))
        others += sum(backend_name != _BACKEND for _, backend_name, _, _ in _calls(plan))
        for index, delegate in enumerate(plan.tables(_DELEGATES, f"{methods[-1]}: delegate")):
            if delegate.text(_ID) == _BACKEND:
                origin = f"{methods[-1]}/{index}"
                place = _place(data, program, delegate, base, end)
                if place in pieces:
                    shared[place].append(origin)
                else:
                    pieces[place] = delegate_blob(data, *place, origin)
                    shared[place] = []
    for segment in program.tables(_SEGMENTS, "segment"):
        _segment(data, segment, base, end)  # also one that nobody uses must lie within the file
    all_pieces = tuple(
        replace(piece, facts={**piece.facts, "also": also}) if (also := shared[place]) else piece
        for place, piece in pieces.items()
    )
    return Artefact(data.path, "pte", all_pieces, {"methods": methods, "other_nodes": others})


def method_nodes(data: FileBytes, method: str) -> tuple[list[Placed], dict[str, int]]:
    """Return the nodes of a method, calls of delegates and portable kernels, and bytes of tensors.

    The nodes of a delegate are not in the file, so each call of one is a node. Raises ArtefactError
    as `method_tensors`.
    """
    plan = _plan(data, method)
    values = enumerate(plan.tables(_VALUES, "value"))
    tensors = {
        index: value.table(_VALUE, value.label)
        for index, value in values
        if value.number(_VALUE_TYPE, "<B") == _TENSOR
    }
    known_tensors, placed = set(plan.integers(_INPUTS)), list[Placed]()
    for kind, op, index, call in _calls(plan):
        used = [i for i in call.integers(1) if i in tensors]
        writes = [str(i) for i in used if i not in known_tensors]
        reads = [str(i) for i in used if i in known_tensors]
        known_tensors |= {*used}
        node = GraphNode(f"{len(placed)}", op, tuple(reads), tuple(writes))
        if kind == _DELEGATE_CALL:
            node = replace(node, name=f"{method}/{index}")
            on, reason = (NPU, None) if op == _BACKEND else (CPU, "another delegate")
            placed.append(Placed(node, on, str(index), reason))
        else:
            placed.append(Placed(node, CPU, None, _PORTABLE))
    described = [_tensor(str(i), tensor) for i, tensor in tensors.items() if tensor is not None]
    return placed, {tensor.name: tensor.size for tensor in described if tensor is not None}


def _calls(plan: FlatTable) -> Iterator[tuple[int, str, int, FlatTable]]:
    """Yield the calls of a method, in order: kind, name and number of the callee, and the call."""
    names = {
        _KERNEL_CALL: [
            f"{operator.text(0)}.{operator.text(1)}".rstrip(".")
            for operator in plan.tables(_OPERATORS, "operator")
        ],
        _DELEGATE_CALL: [delegate.text(_ID) for delegate in plan.tables(_DELEGATES, "delegate")],
    }
    for chain in plan.tables(_CHAINS, "chain"):
        for step in chain.tables(_INSTRUCTIONS, "instruction"):
            kind, call = step.number(_VALUE_TYPE, "<B"), step.table(_VALUE, step.label)
            if call is None or kind not in names:
                continue
            named, index = names[kind], call.number(0, "<i")
            known = 0 <= index < len(named)
            op = named[index] if known else f"unknown op {index} (of {len(named)})"
            yield kind, op, index, call


def _plan(data: FileBytes, method: str) -> FlatTable:
    for plan in FlatTable.root(data, "the program").tables(_PLANS, "method"):
        if plan.text(_NAME) == method:
            return plan
    raise data.error(f"the program has no method {method!r}", 0)


def method_tensors(data: FileBytes, method: str) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return inputs and outputs of a method by their index; None for one of a type without a name.

    Only tensors are inputs: other values keep those that they were exported with. Numbers are
    outputs, too; values without a size (None, texts, lists) are not. Raises ArtefactError, also for
    a program without such a method.
    """
    plan = _plan(data, method)
    return _tensors(plan, _INPUTS, "input", {}), _tensors(plan, _OUTPUTS, "output", _NUMBERS)


def _tensors(
    plan: FlatTable, field: int, label: str, numbers: Mapping[int, tuple[str, int]]
) -> list[Tensor | None]:
    tensors: list[Tensor | None] = []
    for index in plan.integers(field):
        value = plan.table_at(_VALUES, index, "value")
        kind, name = value.number(_VALUE_TYPE, "<B"), f"{label}_{len(tensors)}"
        if kind == _TENSOR:
            tensor = value.table(_VALUE, value.label)
            tensors.append(None if tensor is None else _tensor(name, tensor))
        elif kind in numbers:
            data_type, size = numbers[kind]
            tensors.append(Tensor(name, size, data_type, ()))
    return tensors


def _tensor(name: str, tensor: FlatTable) -> Tensor | None:
    element = _ELEMENTS.get(tensor.number(_SCALAR_TYPE, "<b"))
    if element is None or tensor.vector(_SIZES, 4)[1] > _MOST_DIMENSIONS:
        return None
    data_type, size = element
    shape = tuple(max(0, side) for side in tensor.integers(_SIZES))
    return Tensor(name, size * math.prod(shape), data_type, shape)


def _segments_of(data: FileBytes) -> tuple[int, int]:
    """Return begin and end of the segments after the program; without a header there are none."""
    if data.size < _HEADER_AT + _HEADER_BYTES:
        raise data.error("the file ends within its program", data.size)
    if data.read(_HEADER_AT, 4, "the extended header") != _HEADER_MAGIC:
        return data.size, data.size
    length = data.number("<I", _HEADER_AT + 4, "the length of the extended header")
    if length < _HEADER_BYTES:
        problem = f"the extended header states a size of {length} bytes, less than "
        raise data.error(f"{problem}{_HEADER_BYTES}", _HEADER_AT + 4)
    program = data.number("<Q", _HEADER_AT + 8, "the size of the program")
    data.require(0, program, "the program")
    base = data.number("<Q", _HEADER_AT + 16, "where segments begin")
    if base and base < program:
        problem = f"segments begin at {base}, within the program of {program} bytes"
        raise data.error(problem, _HEADER_AT + 16)
    if length < _HEADER_BYTES_WITH_SIZE or not base:
        return base or data.size, data.size
    size = data.number("<Q", _HEADER_AT + 24, "the size of all segments")
    data.require(base, size, "the data of all segments")
    return base, base + size


def _segment(data: FileBytes, segment: FlatTable, base: int, end: int) -> tuple[int, int]:
    offset, size = base + segment.number(0, "<Q"), segment.number(1, "<Q")
    if offset + size > end:
        problem = f"{segment.label} of {size} bytes ends after byte {end}, the end of all segments"
        raise data.error(problem, offset)
    return offset, size


def _place(
    data: FileBytes, program: FlatTable, delegate: FlatTable, base: int, end: int
) -> tuple[int, int]:
    reference = delegate.table(_PROCESSED, f"the data of {delegate.label}")
    if reference is None:
        return 0, 0
    index = reference.number(_INDEX, "<I")
    if reference.number(_LOCATION, "<b") == _IN_SEGMENT:
        return _segment(data, program.table_at(_SEGMENTS, index, "segment"), base, end)
    return program.table_at(_INLINE, index, "inline data").vector(0, 1)
