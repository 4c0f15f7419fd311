"""Durations as users write them: 30s, 5m, 1h30m."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_MOST_S: Final = 7 * 24 * 3600


def parse_duration(text: str) -> float:
    """Return the seconds of a duration from 0s to 168h. Raises ValueError with what is valid."""
    match = _PARTS.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        advice = "write 30s, 5m or 1h30m"
        if text.strip().isdecimal() and len(text) < 10:
            advice = f"write {text.strip()}s, {text.strip()}m or {text.strip()}h"
        raise ValueError(f"{text[:40]!r} is not a duration; {advice}")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total > _MOST_S:
        raise ValueError(f"{text[:40]!r} is longer than {_MOST_S // 3600}h")
    return float(total)
