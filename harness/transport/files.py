"""Files on their way to and from a device: what is sent, what a device says of one, what comes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from harness.core.errors import DeviceError, DeviceRefused, InfraError
from harness.core.whole_file import open_regular
from harness.transport.faults import reason

MAX_PATH_BYTES: Final = 1024
"""adbd refuses longer paths."""

PSEUDO_FOLDERS: Final = ("/proc/", "/sys/", "/dev/")
"""Sizes there say nothing about content."""

BLOCK_BYTES: Final = 256 << 10
"""So much of a local file is read at a time."""

_LATEST_S: Final = 1 << 33
"""The latest time of a file: a device may say anything."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class PushItem:
    """One file to send: content or a local path, where to, permission bits.

    The modification time is the local file's, or now for content from memory. `size` is what a
    local file had when it was looked at; if that has changed, it is not sent.
    """

    source: Path | bytes
    remote: str
    mode: int = 0o644
    size: int | None = None


@dataclass(frozen=True)
class RemoteStat:
    """What a device says about a file; `mtime_s` is seconds since 1970.

    `error` is the device's errno, 0 if there was none.
    """

    mode: int
    size: int
    mtime_s: int
    error: int = 0

    @property
    def is_missing(self) -> bool:
        return self.error in (errno.ENOENT, errno.ENOTDIR)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


def path_bytes(path: str) -> bytes:
    """A path as a device takes it. Raises InfraError for one that none can."""
    encoded = path.encode("utf-8", "surrogateescape")
    if not encoded.startswith(b"/") or b"\0" in encoded or len(encoded) > MAX_PATH_BYTES:
        raise InfraError(f"not a path for a device: {path[:80]!r} ({len(encoded)} bytes)")
    return encoded


@contextlib.contextmanager
def local_faults(path: Path) -> Iterator[None]:
    """Turns the host's own refusal (no such file, disk full) into InfraError naming the file."""
    try:
        yield
    except OSError as error:
        raise InfraError(f"{path} on this host: {error.strerror or reason(error)}") from error


@dataclass(frozen=True)
class Content:
    """What a `PushItem` sends: its size, its modification time, and the blocks it comes in."""

    size: int
    mtime_s: float
    blocks: Iterator[bytes]


@contextlib.contextmanager
def opened(item: PushItem) -> Iterator[Content]:
    """The content of a file to be sent.

    Raises InfraError where it cannot be read, also in the midst of it.
    """
    if isinstance(item.source, bytes):
        whole = item.source
        pieces = (whole[n : n + BLOCK_BYTES] for n in range(0, len(whole), BLOCK_BYTES))
        yield Content(len(whole), time.time(), pieces)
        return
    with local_faults(item.source):
        source = open_regular(item.source, item.size)
    with source:
        status = os.fstat(source.fileno())
        blocks = _blocks(source, item.source, status.st_size)
        yield Content(status.st_size, status.st_mtime, blocks)


def _blocks(source: io.FileIO, path: Path, size: int) -> Iterator[bytes]:
    while size:
        with local_faults(path):
            block = source.read(min(BLOCK_BYTES, size))
        if not block:
            raise InfraError(f"{path} on this host became shorter meanwhile")
        size -= len(block)
        yield block


def is_sized(found: RemoteStat | None, remote: str, max_bytes: int, *, serial: str) -> bool:
    """Whether a file to be fetched has the size that the device tells; others have any (pure).

    Raises DeviceRefused where there is no such file, DeviceError for one of more than `max_bytes`.
    """
    told: dict[str, Any] = {"serial": serial, "command": f"pull {remote}"}
    if found is None:
        raise DeviceRefused("No such file or directory", **told)
    if not found.is_file:
        raise DeviceRefused("not a regular file", **told)
    sized = not remote.startswith(PSEUDO_FOLDERS)
    if sized and found.size > max_bytes:
        raise DeviceError(f"{found.size} bytes, more than the {max_bytes} allowed", **told)
    return sized


def take_file(
    remote: str,
    local: Path,
    max_bytes: int,
    found: RemoteStat | None,
    fetch: Callable[[Callable[[bytes], None]], None],
    *,
    serial: str,
) -> None:
    """Takes a file that a device was asked for: `fetch` hands on its content, piece by piece.

    It is written beside `local`, which appears only when it is complete. `found` is what the device
    says of it. Raises DeviceError for more than `max_bytes`, or less than the device said.
    """
    sized = is_sized(found, remote, max_bytes, serial=serial)
    assert found is not None
    with IncomingFile(local) as file:

        def take(data: bytes) -> None:
            if file.size + len(data) > max_bytes:
                raise _wrong(f"more than the {max_bytes} bytes allowed")
            file.write(data)

        def _wrong(problem: str) -> DeviceError:
            return DeviceError(problem, serial=serial, command=f"pull {remote}")

        fetch(take)
        if sized and found.size != file.size:
            raise _wrong(f"{file.size} bytes came, not {found.size}")
        file.keep(found)


class IncomingFile:
    """A file that comes piece by piece: it stands beside its place until all of it is there."""

    def __init__(self, local: Path) -> None:
        self._local = local
        self._partial = local.with_name(f".pull-{secrets.token_hex(8)}.partial")
        self.size = 0

    def __enter__(self) -> Self:
        with local_faults(self._partial):
            self._file = self._partial.open("xb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Takes the next piece. Raises InfraError if the disk does not."""
        self.size += len(data)
        with local_faults(self._partial):
            self._file.write(data)

    def keep(self, found: RemoteStat) -> None:
        """Gives it its name, and modification time and permission bits as on the device."""
        with local_faults(self._local):
            self._partial.chmod(stat.S_IMODE(found.mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            mtime_s = min(max(0, found.mtime_s), _LATEST_S)
            os.utime(self._partial, (mtime_s, mtime_s))
            self._partial.replace(self._local)
