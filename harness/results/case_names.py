"""The names of cases: what a node id says of where and with what a case ran (pure).

It ends in the parameters, [sim-v73-htp-2.51.0-by-2.47.0-io-heavy-56mb-resident-66]: the text of its
placement, where and with what it ran, and the rest: what it is about, which cases of other versions
share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from harness.qnn.backends import BACKENDS

# the name of a source may stand in front; it must not reach back over a version
_VERSION: Final = r"(?:(?:(?!-ort-|-by-)[^\s:\[\]])+:)?\d[\w.+]*"
_PLACEMENT: Final = re.compile(
    rf"(?P<device>[a-z0-9._-]+)-(?P<backend>{'|'.join(BACKENDS)})-(?P<qnn>{_VERSION})"
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
        found = _beginning(parameters)
        return cls(**found.groupdict()) if found else None


def split_node_id(node_id: str) -> tuple[str, str | None]:
    """The test function of a node id, and its parameters if it has any."""
    base, bracket, rest = node_id.partition("[")
    return base, rest.removesuffix("]") if bracket else None


def without_versions(node_id: str) -> str:
    """A case's name without the versions of its placement, which it shares with those of others."""
    base, parameters = split_node_id(node_id)
    found = _beginning(parameters or "")
    if found is None:
        return node_id
    rest = found.string[found.end() :]
    return f"{base}[{found['device']}-{found['backend']}{rest}]"


def _beginning(parameters: str) -> re.Match[str] | None:
    found = _PLACEMENT.match(parameters)
    return found if found and parameters[found.end() :][:1] in ("", "-") else None
