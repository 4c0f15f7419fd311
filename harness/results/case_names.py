"""Names of cases, made and parsed (pure): a test, and parameters that begin with a placement.

Records have fields for both. Names are only parsed where there is nothing else: in the user's
`--case`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from harness.core.matrix_axes import AXES, BACKENDS, LISTED

NO_PLACEMENT: Final = "no-device"
"""The text in place of a placement where no device fits."""
# the name of a source may come first; it must not reach back over a version
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
    """Split a node id into its test function and its parameters, None without any."""
    base, bracket, rest = node_id.partition("[")
    return base, rest.removesuffix("]") if bracket else None


def function_of(node_id: str) -> str:
    """Return the name of the test function of a node id."""
    return split_node_id(node_id)[0].rpartition("::")[2]


def named(base: str, rest: str) -> str:
    """Return the node id of a test with these parameters."""
    return f"{base}[{rest}]" if rest else base


def placement_text(placement: Mapping[str, str | None]) -> str:
    """Return the text of a placement, with the keys of `PlacementRecord`, in names of cases."""
    marked = ((axis.mark, placement[axis.name]) for axis in LISTED)
    return "-".join(f"{mark}-{value}" if mark else value for mark, value in marked if value)


def placement_in(parameters: str) -> tuple[dict[str, str | None], str] | None:
    """Return the placement that parameters begin with, and the rest; None if there is none.

    Its keys are those of `PlacementRecord` without the engine, which is not part of a name. If
    several placements fit, it is the last one, since devices may be called desk-htp-1.
    """
    match = _PLACEMENT.match(parameters)
    return match and (match.groupdict(), parameters[match.end() :].removeprefix("-"))


def without_placement(parameters: str, placement: str) -> str:
    """Return the parameters of a case without the text of its placement."""
    delimited = f"-{parameters}-"
    return delimited.replace(f"-{placement}-", "-", 1)[1:-1] if parameters != placement else ""


def matching_rest(text: str, rests: Collection[str]) -> str | None:
    """Return the one of `rests` that the parameters `text` end with; None if none matches.

    Before it `text` may have a placement, with any versions. Of several matches the longest is
    returned, because it explains most of the text.
    """
    if text in rests:
        return text
    fitting = []
    for rest in rests:
        if not rest or text.endswith(f"-{rest}"):
            match = placement_in(text.removesuffix(f"-{rest}") if rest else text)
            if match is not None and not match[1]:
                fitting.append(rest)
    return max(fitting, key=len, default=None)
