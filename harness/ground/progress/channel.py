"""What a worker of pytest-xdist is at, told to its controller: datagrams, which may get lost.

No worker ever waits for it: what cannot be sent at once is dropped. Each message has all that is
known of a device, so that the next one makes up for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.ground.files.bounded_json import parse_json
from harness.ground.host.platform import short_path
from harness.ground.progress.facts import FACTS, Lines

_NAME: Final = "live"
_MAX_BYTES: Final = 8192
_MOST_AT_ONCE: Final = 1000


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """The socket in a folder, however long the folder's path is: addresses are short."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{short_path(held, folder)}/{_NAME}"
    finally:
        os.close(held)


def _socket(folder: Path, join: Callable[[socket.socket, str], None]) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    try:
        with _address(folder) as address:
            join(made, address)
    except OSError:
        made.close()
        raise
    return made


class Listener:
    """The controller's end, in a folder that only its user can enter. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._socket = _socket(folder, socket.socket.bind)

    def waiting(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The messages that are there: devices and all of their facts.

        What a message leaves out is None, as for `at_work` (files/notices.py): it is over.
        """
        for _ in range(_MOST_AT_ONCE):
            try:
                data, _, flags, _ = self._socket.recvmsg(_MAX_BYTES)
            except OSError:
                return
            with contextlib.suppress(ValueError):
                said = None if flags & socket.MSG_TRUNC else parse_json(data)
                if isinstance(said, list) and len(said) == 2 and isinstance(said[1], dict):
                    yield str(said[0]), dict.fromkeys(FACTS) | said[1]

    def close(self) -> None:
        """Closes it, which whoever still sends does not notice."""
        self._socket.close()


class Sender:
    """A worker's end, a `Follower` (`files/notices.py`)."""

    def __init__(self, folder: Path) -> None:
        self._lines = Lines()
        self._socket = _socket(folder, socket.socket.connect)

    def __call__(self, device: str, facts: Mapping[str, object]) -> None:
        merged = self._lines.merge(device, facts)
        if merged is not None:
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps(merged, ensure_ascii=False).encode())

    def close(self) -> None:
        """Sends no more."""
        self._socket.close()
