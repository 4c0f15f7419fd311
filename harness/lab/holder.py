"""Who holds a device: what a lease's file says, and names of files that belong to a device (pure).

Such a file can be written by any user of the computer: it is read without trust.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Final

MAX_BYTES: Final = 8 << 10
_MAX_CHARS: Final = 200


@dataclass(frozen=True)
class Holder:
    """The process that holds a device; `since` is RFC 3339, UTC."""

    user: str
    host: str
    pid: int
    since: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.user}, process {self.pid} ({self.purpose}), since {self.since}"

    def content(self) -> bytes:
        """One line for the lease's file."""
        return json.dumps(asdict(self)).encode()[: MAX_BYTES - 1] + b"\n"


def parse_holder(content: bytes) -> Holder | None:
    """Reads a lease's file; None if it is empty, half-written or nonsense."""
    try:
        said = json.loads(content[:MAX_BYTES])
        return Holder(
            user=_word(said["user"]),
            host=_word(said["host"]),
            pid=int(said["pid"]),
            since=_word(said["since"]),
            purpose=_word(said["purpose"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def device_file(key: str) -> str:
    """A file's name for what makes a device unique: readable, and never that of another device."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key)[-60:].strip("._-")
    return f"{readable}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return "".join(char if char.isprintable() else "?" for char in value)[:_MAX_CHARS]
