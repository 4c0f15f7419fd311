"""The unit that the name of a figure ends with, and how finely such a figure is known (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_UNIT: Final = re.compile(r"_(s|ms|us|ns|bytes)(?:\.(?!count\b)\w+)*$", re.ASCII)
# clocks are read to a microsecond, whatever unit is told; bytes and what has no unit are whole
_STEPS: Final[Mapping[str | None, float]] = {"s": 1e-6, "ms": 1e-3}


def unit_of(name: str) -> str | None:
    """The unit of a time or a size of memory, or of a part of one; None of anything else."""
    found = _UNIT.search(name)
    return found[1] if found else None


def known_to(name: str) -> float:
    """The smallest step of a figure of this name, in the figure's own unit."""
    return _STEPS.get(unit_of(name), 1.0)
