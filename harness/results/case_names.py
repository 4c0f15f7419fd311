"""Node ids taken apart (pure): a test and its parameters, and the placement that these begin with.

Records say both in fields of their own. They are read out of a name only where there is nothing
else: in what a user says with `--case`.
"""

from __future__ import annotations

import re
from typing import Final

from harness.core.axes import AXES, BACKENDS

NO_PLACEMENT: Final = "no-device"
"""What stands in the place of a placement where no device fits."""
# the name of a source may stand in front; it must not reach back over a version
_MARKED: Final = tuple(axis for axis in AXES.values() if axis.mark)
_SOURCE: Final = rf"(?:(?:(?!{'|'.join(f'-{axis.mark}-' for axis in _MARKED)})[^\s:\[\]])+:)?"
_VERSION: Final = rf"{_SOURCE}\d[\w.+]*"
_WORD: Final = r"[^\s:\[\]-]+"
_REST: Final = "".join(
    rf"(?:-{axis.mark}-(?P<{axis.name}>{_VERSION if axis.type == 'version' else _WORD}))?"
    for axis in _MARKED
)
_PLACEMENT: Final = re.compile(
    rf"(?P<device>[a-z0-9._-]+)-(?P<backend>{'|'.join(BACKENDS)})-(?P<qnn>{_VERSION}){_REST}"
    r"(?=-|\Z)",
    re.ASCII,
)


def split_node_id(node_id: str) -> tuple[str, str | None]:
    """The test function of a node id, and its parameters if it has any."""
    base, bracket, rest = node_id.partition("[")
    return base, rest.removesuffix("]") if bracket else None


def named(base: str, rest: str) -> str:
    """The node id of a test with these parameters of its own, if it has any."""
    return f"{base}[{rest}]" if rest else base


def placement_in(parameters: str) -> tuple[dict[str, str | None], str] | None:
    """The placement that parameters begin with, and the rest of them; None if they do not.

    Its keys are those of a `PlacementRecord`, without the engine, of which a name says nothing.
    Of several that fit it is the last, as devices may be called desk-htp-1.
    """
    found = _PLACEMENT.match(parameters)
    return found and (found.groupdict(), parameters[found.end() :].removeprefix("-"))
