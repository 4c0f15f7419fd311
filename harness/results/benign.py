"""Lines that look like errors and are none: they are no failure, and explain none (pure)."""

from __future__ import annotations

import re
from typing import Final

BENIGN: Final[dict[str, str]] = {
    r"expected magic number: 0x5678abcd but get: 0x2000000\b": (
        "ExecuTorch's parser says it of a blob that it has unwrapped already "
        "(https://github.com/pytorch/executorch/issues/18862 shows it in a log of many loads)"
    ),
}
"""A pattern of each, and who says it why."""

_MAX_CHARS: Final = 500


def is_benign(line: str) -> bool:
    """Whether a line of a log tells of nothing wrong."""
    return any(re.search(pattern, line[:_MAX_CHARS], re.I) for pattern in BENIGN)
