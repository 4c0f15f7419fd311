"""Who waits for a device: a queue that all processes and users of this computer see.

Each that waits has a file beside that of the lease, locked in the same way: a place in the queue
ends with its process, and so does that of one which stands still. The names of these files sort as
the queue goes: who asks for a device that runs have, runs that lent it, then by priority; of these
who came first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.device.lab.lease_files import (
    STALE_S,
    Held,
    LockedFile,
    device_file,
    locked_by,
    take_file,
)

ASKS: Final = 0
LENT: Final = 1
PRIORITIES: Final = range(-9, 10)
_MOST: Final = 1000
_MARK: Final = "~"


def rank_of(priority: int) -> int:
    """Where a run with one of `PRIORITIES` stands; the higher one is served first."""
    return LENT + 1 + PRIORITIES[-1] - priority


@dataclass(frozen=True)
class LeaseWaiter:
    """One that waits; `file` is the name of its file."""

    file: str
    held: Held

    @property
    def asks(self) -> bool:
        """Whether it asks whoever has the device to hand it over."""
        return self.file.partition(_MARK)[2].startswith(f"{ASKS:02}-")


class QueuePlace(LockedFile):
    """A place in the queue for the device `name`, until `close` or the end of this process."""

    def __init__(self, folder: Path, key: str, name: str, content: bytes, rank: int) -> None:
        """Stands behind all of the same rank. Raises InfraError."""
        now, token = time.monotonic_ns(), secrets.token_hex(4)
        self.file = f"{device_file(key)}{_MARK}{rank:02}-{now:020}-{token}"
        self.name = name
        descriptor = take_file(folder / self.file, content)
        assert isinstance(descriptor, int)
        super().__init__(descriptor, folder / self.file)


def waiting(folder: Path, key: str, before: QueuePlace | None = None) -> list[LeaseWaiter]:
    """Those who wait for a device, or those in front of a place, the first one first.

    What dead ones left is removed.
    """
    prefix = device_file(key) + _MARK
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(prefix))
    except OSError:
        return []
    found = []
    for name in names[:_MOST]:
        if before is not None and name >= before.file:
            break
        with contextlib.suppress(OSError):
            held = _who(folder / name)
            if held is not None and held.silent_s <= STALE_S:
                found.append(LeaseWaiter(name, held))
    return found


def _who(path: Path) -> Held | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        held = locked_by(descriptor)
        if held is None:
            os.unlink(path)
        return held
    finally:
        os.close(descriptor)
