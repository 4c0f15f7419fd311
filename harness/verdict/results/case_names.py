"""Node ids taken apart (pure): a test and its parameters, and the placement that these begin with.

Records say both in fields of their own. They are read out of a name only where there is nothing
else: in records of schema 1 (`schema_1.py`), and in what a user says with `--case`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.ground.facts.axes import AXES
from harness.ground.facts.backends import BACKENDS

NO_PLACEMENT: Final = "no-device"
"""What stands in the place of a placement where no device fits."""
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
# the name of a source may stand in front; it must not reach back over a version
_MARKED: Final = tuple(axis for axis in AXES.values() if axis.mark)
_SOURCE: Final = rf"(?:(?:(?!{'|'.join(f'-{axis.mark}-' for axis in _MARKED)})[^\s:\[\]])+:)?"
_VERSION: Final = rf"{_SOURCE}\d[\w.+]*"


def split_node_id(node_id: str) -> tuple[str, str | None]:
    """The test function of a node id, and its parameters if it has any."""
    base, bracket, rest = node_id.partition("[")
    return base, rest.removesuffix("]") if bracket else None


def named(base: str, rest: str) -> str:
    """The node id of a test with these parameters of its own, if it has any."""
    return f"{base}[{rest}]" if rest else base


def placement_in(
    parameters: str, axes: Mapping[str, object] = _NOTHING
) -> tuple[dict[str, str | None], str] | None:
    """The placement that parameters begin with, and the rest of them; None if they do not.

    Its keys are those of a `PlacementRecord`, without the engine, of which a name says nothing.
    Parameters may look like another placement, or like its end. So the `axes` that the case ran
    with decide, as far as they are known.
    """
    known = {name: re.escape(said) for name, said in axes.items() if isinstance(said, str)}
    # the first that fits; where no version is known the last, as devices may be called desk-htp-1
    anything = r"[a-z0-9._-]+?" if "qnn" in known else r"[a-z0-9._-]+"
    device = "|".join([*(known[name] for name in ("device", "soc") if name in known), anything])
    backend = known.get("backend", "|".join(BACKENDS))
    qnn = _SOURCE + known["qnn"] if "qnn" in known else _VERSION
    rest = ""
    for axis in _MARKED:
        value = _VERSION if axis.type == "version" else r"[^\s:\[\]-]+"
        if axis.name == "ort":  # a record has the one there was, a name the one asked for
            value = "(?!)" if axes.get("ort", ...) is None else value
        else:
            value = known.get(axis.name, value)
        rest += rf"(?:-{axis.mark}-(?P<{axis.name}>{value}))?"
    found = re.match(
        rf"(?P<device>{device})-(?P<backend>{backend})-(?P<qnn>{qnn}){rest}(?=-|\Z)",
        parameters,
        re.ASCII,
    )
    return found and (found.groupdict(), parameters[found.end() :].removeprefix("-"))
