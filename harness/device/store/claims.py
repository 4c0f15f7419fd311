"""Names of the claims that processes leave on a device while they use what is there."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from typing import Final

_CLAIM: Final = re.compile(r"([A-Za-z0-9_.]{1,60})-(\d{1,10})-([0-9a-f]{8})")


def own_claim(run: str = "") -> str:
    """A new claim for this process: host, process id, and its `run` or something random."""
    return f"{_host()}-{os.getpid()}-{_token(run) if run else secrets.token_hex(4)}"


def claims_of(claim: str) -> str:
    """A shell pattern for the claims of all processes of a run, one of which has this one."""
    return f"*-{claim.rpartition('-')[2]}"


def _token(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:8]


def holder(claim: str) -> str:
    """Who left a claim, for people."""
    found = _CLAIM.fullmatch(claim)
    return f"process {found[2]} on {found[1]}" if found else claim


def is_dead(claim: str) -> bool:
    """Whether a claim is of a process of this host that is gone; of other hosts nobody can say."""
    found = _CLAIM.fullmatch(claim)
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
