"""Difference of two model files, as `qnn-harness model inspect` describes them (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import Any, Final, Literal

from harness.core.outgoing_text import counted
from harness.models.compiler_options import MAIN_OPTIONS
from harness.models.inspection_report import Inspection
from harness.runtimes.preflight_findings import Finding

_PARTS: Final = ("contexts", "models", "graphs", "inputs", "outputs")
_KINDS: Final = {name.removesuffix("s") for name in _PARTS}
_LEFT_OUT: Final = {"schema", "qnn", "file", "sha256", "signature", "socs"}
_FEW: Final = 8
"""So many compiler options that are not main ones are shown without -v."""
_OF_GRAPHS: Final = {"weights_bytes", "io_bytes", "spill_fill_bytes", "vtcm_bytes"}


@dataclass(frozen=True)
class Change:
    """A difference in a part of the files ("" for all of it); null where a side has no value.

    `field` is named as by inspect, with a dot inside of `container` and `compiler_options`. A part
    that only one side has is a change of a field that is its kind, such as `graph`. `sha256` stands
    for bytes that no other field describes, such as weights.
    """

    part: str
    field: str
    a: Any
    b: Any


@dataclass(frozen=True)
class ModelDiff:
    """Differences of the files `a` and `b`, read by `qnn`, and the number of `equal` values.

    `failures` are known ones of A or B on the device and with the runtime of the other.
    """

    schema: Literal[1]
    qnn: str
    a: str
    b: str
    equal: int
    changes: tuple[Change, ...]
    failures: tuple[Finding, ...]


def model_diff(
    files: tuple[str, str],
    inspections: tuple[Inspection, Inspection],
    contents: tuple[str, str],
    failures: Iterable[Finding] = (),
) -> ModelDiff:
    """Compare two files; `contents` are the hashes of all their bytes."""
    sides = [
        asdict(side) | {"other_nodes": sum(side.other_nodes.values()), "sha256": content}
        for side, content in zip(inspections, contents, strict=True)
    ]
    compared = _compared("", *sides)
    changes = tuple(filter(None, compared))
    equal = len(compared) - len(changes)
    return ModelDiff(1, inspections[0].qnn, *files, equal, changes, tuple(failures))


def _compared(part: str, *sides: Mapping[str, Any]) -> list[Change | None]:
    """Return each difference of two objects, and None for each equal value."""
    parts = {key: [side.get(key, ()) for side in sides] for key in _PARTS}
    # an ONNX model has texts there
    inner = {
        key: both for key, both in parts.items() if isinstance(next(iter(sum(both, ())), 0), dict)
    }
    left_out = {*_LEFT_OUT, *inner, *(_OF_GRAPHS if "graphs" in inner else ())}
    left_out |= {"offset"} if "graphs" in sides[0] else set()  # that of a context in its file
    a, b = (_flat(side, left_out) for side in sides)
    found = [
        None if a.get(key) == b.get(key) else Change(part, key, a.get(key), b.get(key))
        for key in dict.fromkeys((*a, *b))
    ]
    for key, both in inner.items():
        for number, pair in enumerate(_paired(*both)):
            kind, names = key[:-1], [side and (_name(side) or str(number)) for side in pair]
            label = names[0] or names[1] if "name" in (pair[0] or pair[1]) else number
            inside = f"{part}, {kind} {label}".removeprefix(", ")
            alone = None in pair
            found += [Change(inside, kind, *names)] if alone else _compared(inside, *pair)
    hashes = [side.get("sha256") for side in sides]
    if not any(found) and hashes[0] != hashes[1]:
        found.append(Change(part, "sha256", *hashes))
    return found


def _flat(side: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return the values of an object that are known, those of objects in it with a dot."""
    fields: dict[str, Any] = {}
    for key, value in side.items():
        if isinstance(value, dict):
            fields |= {f"{key}.{name}": each for name, each in _flat(value, left_out).items()}
        elif key not in left_out and value not in (None, "", ()):
            fields[key] = value
    return fields


def _paired(a: Sequence[Any], b: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Return parts of equal names as pairs, or all in their order if no name is in both."""
    left, right = ({_name(part): part for part in side} for side in (a, b))
    if left.keys().isdisjoint(right) or len(left) < len(a) or len(right) < len(b):
        return zip_longest(a, b)
    return [(left.get(name), right.get(name)) for name in dict.fromkeys((*left, *right))]


def _name(part: Mapping[str, Any]) -> str:
    return str(part.get("name") or ", ".join(graph["name"] for graph in part.get("graphs", ())))


def diff_lines(report: ModelDiff, *, whole: bool = False) -> Iterator[str]:
    """Yield a difference as text; of many compiler options only the main ones unless `whole`."""
    yield from (f"A {report.a}", f"B {report.b}")
    for part, changes in groupby(report.changes, lambda change: change.part):
        yield part or "file"
        others = []
        for change in changes:
            kind, _, name = change.field.rpartition("compiler_options.")
            line = f"    {kind}{name}: {_value(change.a)} -> {_value(change.b)}"
            if change.field in _KINDS and None in (change.a, change.b):
                line = f"    only in {'A' if change.b is None else 'B'}"
            if change.field != name and name not in MAIN_OPTIONS:
                others.append(line)
            else:
                yield line
        if whole or len(others) <= _FEW:
            yield from others
        else:
            yield f"    {len(others)} more compiler options; -v shows all"
    yield from map(str, report.failures)
    equal = counted(report.equal, "value is equal", "values are equal")
    yield f"{counted(len(report.changes), 'difference')}; {equal}"


def _value(value: object) -> str:
    if isinstance(value, str) or value is None:
        return value or "none"
    return f"{value:,}" if isinstance(value, int) else json.dumps(value)
