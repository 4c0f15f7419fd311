"""Claims on a device: of persons who ask for it, and of runs that wait for it.

A claim is a file beside that of the lease, locked in the same way: it ends with its process, and
one that has not moved for long counts no more. While there are claims, nobody but the first
claimant takes the device. Their files sort in that order: persons come before runs, and of these
who came first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.device.lab.lease_files import (
    STALE_S,
    Held,
    LockedFile,
    device_file,
    locked_by,
    take_file,
)

ClaimKind = Literal["asks", "waits"]
_MOST: Final = 1000
_MARK: Final = "~"


@dataclass(frozen=True)
class Claimant:
    """A process with a claim; `file` is the name of its file."""

    file: str
    held: Held

    @property
    def asks(self) -> bool:
        return self.file.partition(_MARK)[2].startswith("asks-")


class Claim(LockedFile):
    """A claim on a device, until `close` or the end of this process."""

    def __init__(self, folder: Path, key: str, content: bytes, kind: ClaimKind) -> None:
        """Come behind all earlier claims of the same kind. Raise InfraError."""
        now, token = time.monotonic_ns(), secrets.token_hex(4)
        self.file = f"{device_file(key)}{_MARK}{kind}-{now:020}-{token}"
        descriptor = take_file(folder / self.file, content)
        assert isinstance(descriptor, int)
        super().__init__(descriptor, folder / self.file)


def claimants(folder: Path, key: str, before: Claim | None = None) -> list[Claimant]:
    """Return those with a claim on a device, or with one in front of `before`, the first one first.

    Remove what dead ones left.
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
            held = _holder_of(folder / name)
            if held is not None and held.silent_s <= STALE_S:
                found.append(Claimant(name, held))
    return found


def _holder_of(path: Path) -> Held | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        held = locked_by(descriptor)
        if held is None:
            os.unlink(path)
        return held
    finally:
        os.close(descriptor)
