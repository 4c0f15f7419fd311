"""What cases of one test differ in beside the test's own parameters: one entry for each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from harness.ground.facts.backends import BACKENDS
from harness.ground.facts.engines import ENGINES


@dataclass(frozen=True)
class Axis:
    """One axis. `name` is what records, conditions of known issues and `--axis` call it.

    `option` of pytest chooses its values, None: they follow from another axis. `type` says how a
    value is read. A "version" is looked for among those that there are, and its commas may be of a
    range. A "name" stands for itself, and lists of names are split at commas. `values` are all
    names that there are, empty where only the lab or the catalog knows.

    `in_axes`: a record has it among its `axes`, null where the case takes none of it. The others
    stand in fields of their own. `mark` stands before its value in the name of a case, which tells
    it only where it is not the usual one.
    """

    name: str
    type: Literal["version", "name"]
    option: str | None = None
    values: tuple[str, ...] = ()
    in_axes: bool = False
    mark: str | None = None


AXES: Final[Mapping[str, Axis]] = MappingProxyType(
    {
        axis.name: axis
        for axis in (
            Axis("device", "name", "--qnn-device"),
            Axis("soc", "name"),
            Axis("engine", "name", "--qnn-engine", tuple(ENGINES)),
            Axis("backend", "name", "--qnn-backend", BACKENDS, in_axes=True),
            Axis("qnn", "version", "--qnn-version", in_axes=True),
            Axis("ort", "version", "--qnn-ort", in_axes=True, mark="ort"),
            Axis("compiler", "version", "--qnn-compiler", in_axes=True, mark="by"),
        )
    }
)
"""All axes by name. No parameter of a test is called like one."""

VERSIONS: Final = tuple(axis.name for axis in AXES.values() if axis.type == "version")
"""The axes whose values are versions: a bisection searches along these."""

IN_AXES: Final = tuple(axis.name for axis in AXES.values() if axis.in_axes)
"""The axes that stand among the `axes` of every record."""


if TYPE_CHECKING:
    AxisName = str
else:  # for models and their schemas, which name the values
    AxisName = Literal[VERSIONS]
