"""The names of cases: where and with what one ran, told apart from what it is about (pure).

A case's node id ends in its parameters, [sim-v73-htp-2.51.0-by-2.47.0-io-heavy-56mb-resident-66]:
the text of its placement, and the rest, which the same case with other libraries shares.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

# the name of a source may stand in front; it must not reach back over a version
_VERSION: Final = r"(?:(?:(?!-ort-|-by-)[^\s:\[\]])+:)?\d[\w.+]*"
_PLACEMENT: Final = re.compile(
    rf"(?P<device>[a-z0-9._-]+)-(?P<backend>htp|gpu|cpu)-(?P<qnn>{_VERSION})"
    rf"(?:-ort-(?P<ort>{_VERSION}))?(?:-by-(?P<compiler>\d[\w.]*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class NamedPlacement:
    """What the text of a placement says; `compiler` is None for the runtime's own."""

    device: str
    backend: str
    qnn: str
    ort: str | None
    compiler: str | None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads the text of a placement, and nothing around it."""
        found = _PLACEMENT.fullmatch(text)
        return cls(**found.groupdict()) if found else None

    @classmethod
    def beginning(cls, parameters: str) -> Self | None:
        """The placement that parameters begin with, if they do."""
        found = _PLACEMENT.match(parameters)
        whole = found is not None and parameters[found.end() : found.end() + 1] in ("", "-")
        return cls(**found.groupdict()) if found and whole else None


def split_node_id(node_id: str) -> tuple[str, str | None]:
    """The test function of a node id, and its parameters if it has any."""
    base, bracket, rest = node_id.partition("[")
    return base, rest.removesuffix("]") if bracket else None


def without_placement(parameters: str, placement: str) -> str:
    """The parameters of a case without the text of its own placement, wherever that stands."""
    around = f"-{parameters}-"
    return around.replace(f"-{placement}-", "-", 1)[1:-1] if parameters != placement else ""


def rest_meant(given: str, rests: Collection[str]) -> str | None:
    """Which of the `rests` of a test's cases the parameters `given` mean; None if none.

    They may hold a placement, with whatever versions, or not. Where several fit, the longest is
    meant: a shorter one would leave a part unexplained.
    """
    if given in rests:
        return given
    fitting = [
        rest
        for rest in rests
        if (
            NamedPlacement.parse(given.removesuffix(f"-{rest}") if rest else given)
            and (not rest or given.endswith(f"-{rest}"))
        )
    ]
    return max(fitting, key=len, default=None)
