"""Differences in the outputs of the same work between runtimes, devices and backends.

Pure but for `read`, which returns the bytes of an output that a run has kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import JsonValue

from harness.core.json_record import Part
from harness.core.outgoing_text import counted
from harness.results.record import CaseRecord
from harness.runtimes.runtime import version_key

Read = Callable[[str], bytes | None]


class Ran(Protocol):
    """The fields of a record that are needed here."""

    @property
    def axes(self) -> Mapping[str, JsonValue]: ...
    @property
    def device(self) -> object: ...
    @property
    def measurements(self) -> Mapping[str, JsonValue]: ...


_Key = tuple[str, str, str]
_Point = tuple[str, str, str]

KEPT: Final = "kept_outputs"
"""The measurement that lists the outputs kept by a case."""

NOT_KEPT: Final = "differs, and was not kept"
NUMPY_TYPES: Final[Mapping[str, str]] = {
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "bool8": "u1",
    **{f"{kind}{bits}": f"<u{bits // 8}" for kind in ("uint", "ufixed") for bits in (8, 16, 32)},
    "uint64": "<u8",
    "int64": "<i8",
    **{f"{kind}{bits}": f"<i{bits // 8}" for kind in ("int", "sfixed") for bits in (8, 16, 32)},
}
"""The numpy types of tensor types."""


_STEPS: Final = re.compile(r"drift:([0-9]{1,9})")


def steps_of(text: str) -> int | None:
    """Return the STEPS of `drift:STEPS`; None for any other text (pure)."""
    match = _STEPS.fullmatch(text)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class OutputDifference:
    """The difference between an output and another of the same tensor.

    `elements` of `total` differ. `max_steps` is the largest difference in steps of its type, None
    for floats. `max_abs` is the largest difference of values, scaled for quantised ones if the
    scale is known. `cosine` is the cosine of the angle between both.
    """

    elements: int
    total: int
    max_steps: int | None
    max_abs: float
    cosine: float

    def __str__(self) -> str:
        steps = "" if self.max_steps is None else f", {counted(self.max_steps, 'step')} at most"
        figures = f"max abs {self.max_abs:.4g}, cosine {self.cosine:.7f}"
        return f"{self.elements} of {counted(self.total, 'element')}{steps}, {figures}"


class DriftPoint(Part):
    """A place where an output was seen; `variants` are indexes in `differences`.

    Several variants at one point mean that it is not deterministic there.
    """

    device: str
    backend: str
    qnn: str
    variants: tuple[int, ...]


class Output(Part):
    """One output of a context, with its variants.

    Variant 0 is that of the first point. Other bytes of the same values, as for -0 and 0, are the
    same variant. `differences` has the difference of each variant from the first; null for one that
    was not kept.
    """

    context: str
    output: str
    points: tuple[DriftPoint, ...]
    differences: tuple[OutputDifference | None, ...]

    @property
    def drifts(self) -> bool:
        return len(self.differences) > 1

    def beyond(self, steps: int) -> bool:
        """Return whether it differs by more than so many steps.

        A variant without steps, or that was not kept, is beyond 0 only.
        """
        others = self.differences[1:]
        return any(
            not steps if other is None or other.max_steps is None else other.max_steps > steps
            for other in others
        )

    def place(self, point: DriftPoint) -> str:
        """Return the name of a point, without what all points share."""
        names = ("device", "backend")
        apart = [name for name in names if len({getattr(other, name) for other in self.points}) > 1]
        return " ".join([*(getattr(point, name) for name in apart), point.qnn])

    def describe(self, point: DriftPoint) -> str:
        """Return the variants seen at a point, in words."""
        variants = [
            str(self.differences[variant] or NOT_KEPT) if variant else "the first"
            for variant in point.variants
        ]
        return f"not deterministic: {'; '.join(variants)}" if len(variants) > 1 else variants[0]


def drift(cases: Iterable[CaseRecord], read: Read) -> list[Output]:
    """Return all outputs that cases kept, in the order of their first cases, by version."""
    points: dict[_Key, dict[_Point, dict[str, None]]] = {}
    outputs: dict[_Key, Mapping[str, Any]] = {}
    for record in cases:
        for key, output in _kept_outputs(record):
            outputs.setdefault(key, output)
            digests = points.setdefault(key, {}).setdefault(_point(record), {})
            digests[str(output.get("digest"))] = None
    return [_output(key, points[key], outputs[key], read) for key in points]


def changes(record: Ran, good: Ran, read: Read) -> list[Output] | None:
    """Compare each output of a case with that of the same case in another run, `good`.

    Return None if they did not keep the outputs of the same contexts.
    """
    before, after = dict(_kept_outputs(good)), dict(_kept_outputs(record))
    if not after or before.keys() != after.keys():
        return None
    changed = []
    for key, output in after.items():
        digests = (str(side.get("digest")) for side in (before[key], output))
        # one point for both: a run may be repeated with the same version
        changed.append(_output(key, {_point(record): dict.fromkeys(digests)}, output, read))
    return changed


def drift_lines(outputs: Sequence[Output]) -> Iterator[str]:
    """Yield lines on the outputs that drift."""
    for output in outputs:
        if output.drifts:
            name = f"{output.context}, output {output.output}"
            yield f"{name} differs between versions, devices or backends:"
            places: dict[str, list[str]] = {}
            for point in output.points:
                places.setdefault(output.describe(point), []).append(output.place(point))
            for description, names in places.items():
                yield f"  {', '.join(names)}: {description}"


def difference(
    data: bytes, first: bytes, data_type: str, scale: float | None, offset: int = 0
) -> OutputDifference | None:
    """Return the difference between the bytes of two tensors; None for unknown types.

    A quantised value q stands for `scale` * (q + `offset`).
    """
    import numpy as np

    kind = NUMPY_TYPES.get(data_type)
    if kind is None or len(data) != len(first) or not data or len(data) % np.dtype(kind).itemsize:
        return None
    a, b = np.frombuffer(data, kind), np.frombuffer(first, kind)
    # NaN equals NaN, and -0 equals 0
    differs = (a != b) & ~((a != a) & (b != b))
    steps = None
    if np.dtype(kind).kind in "iu":
        steps = int(np.max(np.abs(a.astype(np.int64) - b.astype(np.int64))))
    shift = offset if steps is not None else 0
    wide_a, wide_b = (np.nan_to_num(values.astype(np.float64)) + shift for values in (a, b))
    unit = scale if scale and steps is not None else 1.0
    scaled_a, scaled_b = (values / (np.max(np.abs(values)) or 1.0) for values in (wide_a, wide_b))
    lengths = float(np.linalg.norm(scaled_a) * np.linalg.norm(scaled_b))
    is_zero = not np.any(scaled_a) and not np.any(scaled_b)
    return OutputDifference(
        elements=int(np.count_nonzero(differs)),
        total=a.size,
        max_steps=steps,
        max_abs=min(float(np.max(np.abs(wide_a - wide_b))) * unit, sys.float_info.max),
        cosine=min(1.0, float(scaled_a @ scaled_b) / lengths) if lengths else float(is_zero),
    )


def _point(record: Ran) -> _Point:
    return (
        str(getattr(record.device, "name", record.device) or "?"),
        str(record.axes.get("backend")),
        str(record.axes.get("qnn")),
    )


def _kept_outputs(record: Ran) -> Iterator[tuple[_Key, Mapping[str, Any]]]:
    """Yield (context, its hash, output name) and the entry of each well-formed output."""
    by_context = record.measurements.get(KEPT)
    for context, entry in (by_context if isinstance(by_context, dict) else {}).items():
        outputs = entry.get("outputs") if isinstance(entry, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(entry, dict) and isinstance(output, dict):
                yield (context, str(entry.get("sha256")), str(output.get("name"))), output


def _output(
    key: _Key, points: Mapping[_Point, Mapping[str, None]], output: Mapping[str, Any], read: Read
) -> Output:
    ordered = sorted(points, key=lambda point: (*point[:2], version_key(point[2])))
    variants = {digest: None for point in ordered for digest in points[point]}
    scale, offset = output.get("scale"), output.get("offset")
    unit = float(scale) if isinstance(scale, int | float) else None
    shift = offset if isinstance(offset, int) else 0
    kind = str(output.get("data_type"))
    first = read(next(iter(variants))) if len(variants) > 1 else None
    differences: list[OutputDifference | None] = []
    numbers: dict[str, int] = {}
    for digest in variants:
        other = None if first is None else read(digest)
        far = difference(other, first, kind, unit, shift) if first and other else None
        if differences and far is not None and not far.elements:  # other bytes of the same values
            numbers[digest] = 0
        else:
            numbers[digest] = len(differences)
            differences.append(far)
    seen = (
        DriftPoint(
            device=point[0],
            backend=point[1],
            qnn=point[2],
            variants=tuple(dict.fromkeys(numbers[digest] for digest in points[point])),
        )
        for point in ordered
    )
    return Output(context=key[0], output=key[2], points=tuple(seen), differences=tuple(differences))
