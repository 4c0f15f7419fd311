"""How close outputs are to the reference, and how close each arithmetic must come (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from harness.verdict import Check, held

if TYPE_CHECKING:
    import numpy as np

Arithmetic = Literal["float32", "float16", "uint8"]
"""What a backend calculates in; the outputs themselves may have another type."""


@dataclass(frozen=True)
class Accuracy:
    """An output against its reference, as it stands in a record's measurements.

    `cosine` is the cosine of the angle between both, 1 if both are all zeros. `max_abs` is the
    largest difference, `relative_max_abs` that difference as a part of the reference's largest
    value. `not_finite` counts NaN and infinities, which make everything else meaningless.
    """

    output: str
    elements: int
    cosine: float
    max_abs: float
    relative_max_abs: float
    not_finite: int = 0


@dataclass(frozen=True)
class Closeness:
    """What is asked of an output: least cosine, largest difference as a part of its range."""

    cosine: float
    relative: float
    reason: str


CLOSENESS: Final[Mapping[Arithmetic, Closeness]] = MappingProxyType(
    {
        "float32": Closeness(
            0.999_999,
            0.0001,
            "24 bits, sums in another order: libQnnCpu.so 2.47.0 gave 1 - 1.4e-13 and 5e-7",
        ),
        "float16": Closeness(
            0.999_9,
            0.01,
            "11 bits over 53 layers: the HTP simulator gave 1 - 4.5e-7 and 9e-4 at most",
        ),
        "uint8": Closeness(
            0.998,
            0.08,
            "8 bits, where a tie may be rounded either way and 53 layers hand it on: the HTP "
            "simulator gave 0.99948 and 0.029, four steps of the output",
        ),
    }
)
"""More than twice as wide as what was measured on MobileNet-v2 (QNN 2.47.0 to 2.51.0)."""


def arithmetic(backend: str, data_type: str) -> Arithmetic:
    """What a backend calculates a model of this type in.

    HTP: half precision, which sessions and contexts of float models ask for. GPU: the driver may
    take half precision as well, so no more can be asked of it.
    """
    if data_type != "float32":
        return "uint8"
    return "float32" if backend == "cpu" else "float16"


def compare(output: str, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> Accuracy:
    """Compares two arrays of one shape. Raises ValueError if they differ in shape or are empty."""
    import numpy as np

    if got.shape != expected.shape or not got.size:
        raise ValueError(f"{output}: shape {got.shape} against {expected.shape}")
    one, other = got.astype("<f8").ravel(), expected.astype("<f8").ravel()
    not_finite = int(np.count_nonzero(~np.isfinite(one)))
    if not_finite:
        return Accuracy(output, got.size, 0.0, float("inf"), float("inf"), not_finite)
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    same = not np.any(one) and not np.any(other)
    cosine = float(one @ other) / lengths if lengths else float(same)
    max_abs = float(np.max(np.abs(one - other)))
    largest = float(np.max(np.abs(other)))
    relative = max_abs / largest if largest else (0.0 if max_abs == 0 else float("inf"))
    return Accuracy(output, got.size, min(cosine, 1.0), max_abs, relative)


def judge_accuracy(found: Accuracy, kind: Arithmetic) -> list[Check]:
    """Two checks for an output: its direction, and its furthest element."""
    asked = CLOSENESS[kind]
    bad = f", {found.not_finite} elements are not finite" if found.not_finite else ""
    return [
        held(
            f"cosine[{found.output}]",
            found.cosine >= asked.cosine,
            f"{found.cosine:.9f}, at least {asked.cosine} is asked of {kind}{bad}",
            cosine=found.cosine,
            least=asked.cosine,
        ),
        held(
            f"max_abs[{found.output}]",
            found.relative_max_abs <= asked.relative,
            f"{found.max_abs:.6g}, which is {found.relative_max_abs:.3%} of the largest value; at "
            f"most {asked.relative:.3%} is asked of {kind}{bad}",
            max_abs=found.max_abs,
            relative_max_abs=found.relative_max_abs,
            most=asked.relative,
        ),
    ]
