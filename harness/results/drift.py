"""Whether outputs of the same work differ between runtimes, devices or backends, and by how much.

Pure but for `read`, which gives the bytes of an output that a run has kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import JsonValue

from harness.core.outgoing_text import counted
from harness.diagnosis.error import Part
from harness.results.record import CaseRecord
from harness.runtimes.runtime import version_key

if TYPE_CHECKING:
    import numpy as np

Read = Callable[[str], bytes | None]


class Ran(Protocol):
    """What is needed of a record: where a case ran, and what it kept."""

    @property
    def axes(self) -> Mapping[str, JsonValue]: ...
    @property
    def device(self) -> object: ...
    @property
    def measurements(self) -> Mapping[str, JsonValue]: ...


_Key = tuple[str, str, str]
_Point = tuple[str, str, str]

KEPT: Final = "kept_outputs"
"""The measurement that tells of the outputs that a case has kept."""

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
"""What numpy calls the types of tensors."""


_STEPS: Final = re.compile(r"drift:([0-9]{1,9})")


def steps_of(text: str) -> int | None:
    """The STEPS of `drift:STEPS`; None if a text is not that (pure)."""
    found = _STEPS.fullmatch(text)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class OutputDifference:
    """How an output differs from another of the same tensor.

    `elements` of `total` differ. `max_steps` is by how many steps of its type at most, None for a
    type that has none (reals). `max_abs` is the largest difference of values: quantised ones are
    scaled if the scale is known. `cosine` is the cosine of the angle between both.
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
    """Where an output was seen: it was there the one of `differences` with the number `variant`."""

    device: str
    backend: str
    qnn: str
    variant: int
    deterministic: bool


class DriftedOutput(Part):
    """An output that was not the same everywhere.

    `differences` are those from the first one, null of one that was not kept.
    """

    context: str
    output: str
    points: list[DriftPoint]
    differences: list[OutputDifference | None]


@dataclass(frozen=True)
class Output:
    """One output of a context, and what it was wherever it was made.

    `points` tells by (device, backend, QNN version) which variants were seen there: numbers, 0 for
    that of the first point. Other bytes of the same values, as -0 and 0 have, are the same variant.
    More than one at a point means that it is not deterministic there.
    `differences` has for each variant how it differs from the first; None for what was not kept.
    """

    context: str
    name: str
    points: Mapping[tuple[str, str, str], tuple[int, ...]]
    differences: Sequence[OutputDifference | None]

    @property
    def drifts(self) -> bool:
        return len(self.differences) > 1

    def beyond(self, steps: int) -> bool:
        """Whether it differs by more than so many steps.

        What has no steps, or was not kept, is only beyond 0, if it differs at all.
        """
        others = self.differences[1:]
        return any(
            not steps if one is None or one.max_steps is None else one.max_steps > steps
            for one in others
        )

    def place(self, point: tuple[str, str, str]) -> str:
        """A point, by what it does not share with all others."""
        apart = [
            name for at, name in enumerate(point[:2]) if len({one[at] for one in self.points}) > 1
        ]
        return " ".join([*apart, point[2]])

    def said(self, point: tuple[str, str, str]) -> str:
        """What it was at a point, in words."""
        told = [
            str(self.differences[variant] or NOT_KEPT) if variant else "the first"
            for variant in self.points[point]
        ]
        return f"not deterministic: {'; '.join(told)}" if len(told) > 1 else told[0]

    def document(self) -> DriftedOutput:
        """Return the output as it is kept and printed."""
        return DriftedOutput(
            context=self.context,
            output=self.name,
            points=[
                DriftPoint(
                    device=device,
                    backend=backend,
                    qnn=qnn,
                    variant=seen[0],
                    deterministic=len(seen) == 1,
                )
                for (device, backend, qnn), seen in self.points.items()
            ],
            differences=list(self.differences),
        )


def drift(cases: Iterable[CaseRecord], read: Read) -> list[Output]:
    """All outputs that cases have kept, in the order of their first cases; versions in order."""
    points: dict[_Key, dict[_Point, dict[str, None]]] = {}
    told: dict[_Key, Mapping[str, Any]] = {}
    for record in cases:
        for key, output in _kept(record):
            told.setdefault(key, output)
            seen = points.setdefault(key, {}).setdefault(_point(record), {})
            seen[str(output.get("digest"))] = None
    return [_output(key, points[key], told[key], read) for key in points]


def changes(record: Ran, good: Ran, read: Read) -> list[Output] | None:
    """Each output of a case beside that of another run of it, which comes first.

    None if they have not kept outputs of the same contexts: there is nothing to compare.
    """
    before, after = dict(_kept(good)), dict(_kept(record))
    if not after or before.keys() != after.keys():
        return None
    found = []
    for key, output in after.items():
        digests = (str(one.get("digest")) for one in (before[key], output))
        # one place for both: a run may be repeated, with the same version
        found.append(_output(key, {_point(record): dict.fromkeys(digests)}, output, read))
    return found


def drift_lines(outputs: Sequence[Output]) -> Iterator[str]:
    """What drifts, for a person."""
    for one in outputs:
        if one.drifts:
            yield f"{one.context}, output {one.name} is not the same everywhere:"
            places: dict[str, list[str]] = {}
            for point in one.points:
                places.setdefault(one.said(point), []).append(one.place(point))
            for said, where in places.items():
                yield f"  {', '.join(where)}: {said}"


def difference(
    one: bytes, first: bytes, data_type: str, scale: float | None, offset: int = 0
) -> OutputDifference | None:
    """How the bytes of a tensor differ from others of it; None for a type without numbers here.

    A quantised value stands for `scale` times the sum of itself and `offset`.
    """
    import numpy as np

    kind = NUMPY_TYPES.get(data_type)
    if kind is None or len(one) != len(first) or not one or len(one) % np.dtype(kind).itemsize:
        return None
    a, b = np.frombuffer(one, kind), np.frombuffer(first, kind)
    # NaN is as good as NaN, and -0 is another value than 0 to nobody
    differs = (a != b) & ~((a != a) & (b != b))
    steps = None
    if np.dtype(kind).kind in "iu":
        steps = int(np.max(np.abs(a.astype(np.int64) - b.astype(np.int64))))
    shift = offset if steps is not None else 0
    wide_a, wide_b = (np.nan_to_num(values.astype(np.float64)) + shift for values in (a, b))
    unit = scale if scale and steps is not None else 1.0
    return OutputDifference(
        elements=int(np.count_nonzero(differs)),
        total=a.size,
        max_steps=steps,
        max_abs=min(float(np.max(np.abs(wide_a - wide_b))) * unit, sys.float_info.max),
        cosine=_cosine(wide_a, wide_b),
    )


def _cosine(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    import numpy as np

    a, b = (values / (np.max(np.abs(values)) or 1.0) for values in (a, b))
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return min(1.0, float(a @ b) / lengths) if lengths else float(not np.any(a) and not np.any(b))


def _point(record: Ran) -> _Point:
    return (
        str(getattr(record.device, "name", record.device) or "?"),
        str(record.axes.get("backend")),
        str(record.axes.get("qnn")),
    )


def _kept(record: Ran) -> Iterator[tuple[_Key, Mapping[str, Any]]]:
    """Context, its hash and name of each output, as far as the measurement has its proper form."""
    kept = record.measurements.get(KEPT)
    for context, found in (kept if isinstance(kept, dict) else {}).items():
        outputs = found.get("outputs") if isinstance(found, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(found, dict) and isinstance(output, dict):
                yield (context, str(found.get("sha256")), str(output.get("name"))), output


def _output(
    key: _Key,
    points: Mapping[_Point, Mapping[str, None]],
    told: Mapping[str, Any],
    read: Read,
) -> Output:
    ordered = sorted(points, key=lambda point: (*point[:2], version_key(point[2])))
    variants = {digest: None for point in ordered for digest in points[point]}
    scale, offset = told.get("scale"), told.get("offset")
    unit = float(scale) if isinstance(scale, int | float) else None
    shift = offset if isinstance(offset, int) else 0
    kind = str(told.get("data_type"))
    first = read(next(iter(variants))) if len(variants) > 1 else None
    found: list[OutputDifference | None] = []
    numbers: dict[str, int] = {}
    for digest in variants:
        other = None if first is None else read(digest)
        far = difference(other, first, kind, unit, shift) if first and other else None
        if found and far is not None and not far.elements:  # other bytes of the same values
            numbers[digest] = 0
        else:
            numbers[digest] = len(found)
            found.append(far)
    seen = {
        point: tuple(dict.fromkeys(numbers[digest] for digest in points[point]))
        for point in ordered
    }
    return Output(key[0], key[2], seen, found)
