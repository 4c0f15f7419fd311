"""Whether a server on another computer can be reached, as all processes of this account know it.

Whoever connects to a computer that is gone waits for nothing. So one process looks, and the others
are told at once what it found, until it is time to look again.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Hashable
from typing import Final

from filelock import FileLock

from harness.device.transport.faults import OutOfReachError
from harness.ground.files.whole_file import read_json
from harness.ground.host.socket_folder import host_file

_PAUSE_S: Final = (0.5, 15.0)
# whoever looks has so long before another one does
_LOOK_S: Final = 5.0
_LOCK_S: Final = 5.0
_MAX_BYTES: Final = 16 << 10


class Reach:
    """What is known of the way to one server."""

    def __init__(self, address: Hashable) -> None:
        self._file = host_file(address, "away")

    def require(self) -> None:
        """Raises OutOfReachError if the server was not reached and it is not time to look again."""
        if self._file.exists():
            with self._locked():
                why, until, pause_s = self._read()
                now = time.time()
                if now < until <= now + _PAUSE_S[1] + _LOOK_S:
                    raise OutOfReachError(why)
                self._write(why, now + _LOOK_S, pause_s)

    @property
    def is_lost(self) -> bool:
        return self._file.exists()

    def lost(self, why: str) -> None:
        """Somebody did not reach it."""
        with self._locked():
            _, _, pause_s = self._read()
            pause_s = min(max(_PAUSE_S[0], 2 * pause_s), _PAUSE_S[1])
            self._write(why, time.time() + pause_s, pause_s)

    def found(self) -> None:
        """Somebody reached it."""
        if self._file.exists():
            self._file.unlink(missing_ok=True)

    def _locked(self) -> FileLock:
        return FileLock(self._file.with_suffix(".look"), timeout=_LOCK_S)

    def _read(self) -> tuple[str, float, float]:
        with contextlib.suppress(OSError, ValueError, TypeError):
            why, until, pause_s = read_json(self._file, _MAX_BYTES)
            return str(why), float(until), float(pause_s)
        return "", 0.0, 0.0

    def _write(self, why: str, until: float, pause_s: float) -> None:
        self._file.write_text(json.dumps([why[:2000], until, pause_s]))
