"""How long something may take, as options say it."""

from __future__ import annotations

import re
from typing import Final

from harness.ground.errors import ConfigError

_TIME: Final = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_MOST_S: Final = 7 * 24 * 3600


def seconds_of(text: str, field: str) -> float:
    """Seconds that the option `field` says: 4h, 90m, 1h30m. Raises ConfigError."""
    found = _TIME.fullmatch(text.strip())
    hours, minutes, seconds = (int(part or 0) for part in (found.groups() if found else ("",) * 3))
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total <= _MOST_S:
        most = f"longer than {_MOST_S // 3600}h"
        problem = f"{text!r} is {'no time' if not total else most}"
        raise ConfigError(problem, field=field, choices=["4h", "90m", "1h30m"])
    return float(total)
