"""Names of the marks that processes leave on a device while they use what is there."""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import Final

_MARK: Final = re.compile(r"([A-Za-z0-9_.]{1,60})-(\d{1,10})-([0-9a-f]{8})")


def own_mark() -> str:
    """A new mark for this process: host, process id, and something random."""
    return f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


def holder(mark: str) -> str:
    """Who left a mark, for people."""
    found = _MARK.fullmatch(mark)
    return f"process {found[2]} on {found[1]}" if found else mark


def is_dead(mark: str) -> bool:
    """Whether a mark is of a process of this host that is gone; of other hosts nobody can say."""
    found = _MARK.fullmatch(mark)
    if found is None or found[1] != _host():
        return False
    try:
        os.kill(int(found[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname()).lstrip(".")[:60] or "host"
