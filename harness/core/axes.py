"""Tables of the axes of a matrix, and of backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

Backend = Literal["htp", "gpu", "cpu"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

BACKEND_LIBRARIES: Final[Mapping[str, str]] = MappingProxyType(
    {"htp": "libQnnHtp.so", "gpu": "libQnnGpu.so", "cpu": "libQnnCpu.so"}
)
RPC_LIBRARY: Final = "libcdsprpc.so"
"""The library by which the HTP's stubs reach the DSP: the device's own, which is never pushed."""


def backend_of(name: str) -> Backend | None:
    """Return the backend of that name, None if there is none."""
    return next((backend for backend in BACKENDS if backend == name), None)


@dataclass(frozen=True)
class Axis:
    """One axis; `name` is its name in records, conditions of known issues and `--axis`.

    `option` is the pytest option for its values; None if they follow from another axis. A value of
    `type` "version" is matched against the available versions, and may be a range with commas; a
    "name" stands for itself, and lists of names are split at commas.

    `in_axes`: records have it among their `axes`, null for a case without it; other axes are fields
    of their own. `mark` precedes its value in the name of a case, which has only values other than
    the default.
    """

    name: str
    type: Literal["version", "name"]
    option: str | None = None
    in_axes: bool = False
    mark: str | None = None


AXES: Final[Mapping[str, Axis]] = MappingProxyType(
    {
        axis.name: axis
        for axis in (
            Axis("device", "name", "--qnn-device"),
            Axis("soc", "name"),
            Axis("engine", "name", "--qnn-engine"),
            Axis("backend", "name", "--qnn-backend", in_axes=True),
            Axis("qnn", "version", "--qnn-version", in_axes=True),
            Axis("ort", "version", "--qnn-ort", in_axes=True, mark="ort"),
            Axis("compiler", "version", "--qnn-compiler", in_axes=True, mark="by"),
        )
    }
)
"""All axes by name. No parameter of a test has the name of an axis."""

VERSIONS: Final = tuple(axis.name for axis in AXES.values() if axis.type == "version")
"""The axes whose values are versions: a bisection searches along these."""

IN_AXES: Final = tuple(axis.name for axis in AXES.values() if axis.in_axes)
"""The axes that are among the `axes` of every record."""


if TYPE_CHECKING:
    AxisName = str
else:  # for models and their schemas, which name the values
    AxisName = Literal[VERSIONS]
