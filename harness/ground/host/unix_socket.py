"""A connection to a Unix socket."""

from __future__ import annotations

import socket


def unix_connection(path: str, timeout_s: float) -> socket.socket:
    """A new connection, its timeout set. Raises OSError."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout_s)
        connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected
