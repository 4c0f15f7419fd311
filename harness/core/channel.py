"""The progress of workers, sent to their controller through a socket.

No worker ever waits for it: a message that cannot be sent at once is dropped. Each message has all
facts of a device, so the next one makes up for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.core.bounded_json import parse_json
from harness.core.facts import FACTS, Lines
from harness.core.platform import short_path

_NAME: Final = "live"
_MAX_BYTES: Final = 8192
_MOST_AT_ONCE: Final = 1000


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Yield the address of the socket in a folder, short even if the folder's path is long."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{short_path(directory, folder)}/{_NAME}"
    finally:
        os.close(directory)


def _socket(folder: Path, join: Callable[[socket.socket, str], None]) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    connected.setblocking(False)
    try:
        with _address(folder) as address:
            join(connected, address)
    except OSError:
        connected.close()
        raise
    return connected


class Listener:
    """The controller's socket, in a folder that only its user can enter. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._socket = _socket(folder, socket.socket.bind)

    def waiting(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield the waiting messages: devices and all of their facts.

        Facts that a message leaves out are None, which removes them (`notices.report_progress`).
        """
        for _ in range(_MOST_AT_ONCE):
            try:
                data, _, flags, _ = self._socket.recvmsg(_MAX_BYTES)
            except OSError:
                return
            with contextlib.suppress(ValueError):
                message = None if flags & socket.MSG_TRUNC else parse_json(data)
                if isinstance(message, list) and len(message) == 2 and isinstance(message[1], dict):
                    yield str(message[0]), dict.fromkeys(FACTS) | message[1]

    def close(self) -> None:
        """Close it; senders do not notice."""
        self._socket.close()


class Sender:
    """A worker's socket, a `Follower` (`core/notices.py`)."""

    def __init__(self, folder: Path) -> None:
        self._lines = Lines()
        self._socket = _socket(folder, socket.socket.connect)

    def __call__(self, device: str, facts: Mapping[str, object]) -> None:
        merged = self._lines.merge(device, facts)
        if merged is not None:
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps(merged, ensure_ascii=False).encode())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
