"""Files that are sent to a device and fetched from it, and their attributes."""

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
from typing import Final

from harness.core.errors import DeviceError, DeviceRefused, InfraError
from harness.core.files import open_regular
from harness.transport.transport_errors import reason

MAX_PATH_BYTES: Final = 1024
"""adbd refuses longer paths."""

PSEUDO_FOLDERS: Final = ("/proc/", "/sys/", "/dev/")
"""Folders whose files report sizes that are not those of their content."""

BLOCK_BYTES: Final = 256 << 10
"""The size of one read of a local file."""

_LATEST_S: Final = 1 << 33
"""The latest time of a file: a device may say anything."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class PushItem:
    """One file to send: its content or local path, remote path and permission bits.

    The modification time is the local file's, or now for content from memory. `size` is the
    expected size of a local file; if that has changed, the file is not sent.
    """

    source: Path | bytes
    remote: str
    mode: int = 0o644
    size: int | None = None


@dataclass(frozen=True)
class RemoteStat:
    """A file's attributes as a device reports them; `mtime_s` is seconds since 1970.

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
    """Encode a path for a device. Raises InfraError for one that is not valid there."""
    encoded = path.encode("utf-8", "surrogateescape")
    if not encoded.startswith(b"/") or b"\0" in encoded or len(encoded) > MAX_PATH_BYTES:
        raise InfraError(f"not a path for a device: {path[:80]!r} ({len(encoded)} bytes)")
    return encoded


@contextlib.contextmanager
def local_faults(path: Path) -> Iterator[None]:
    """Map the host's own errors (no such file, disk full) to InfraError naming the file."""
    try:
        yield
    except OSError as error:
        raise InfraError(f"{path} on this host: {error.strerror or reason(error)}") from error


@dataclass(frozen=True)
class Content:
    """The content of a `PushItem`: size, modification time, and blocks of data."""

    size: int
    mtime_s: float
    blocks: Iterator[bytes]


@contextlib.contextmanager
def open_content(item: PushItem) -> Iterator[Content]:
    """Open the content of a file to be sent.

    Raises InfraError if it cannot be read, also in the middle.
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
        yield Content(status.st_size, status.st_mtime, _blocks(source, item.source, status.st_size))


def _blocks(source: io.FileIO, path: Path, size: int) -> Iterator[bytes]:
    while size:
        with local_faults(path):
            block = source.read(min(BLOCK_BYTES, size))
        if not block:
            raise InfraError(f"{path} on this host was truncated while it was read")
        size -= len(block)
        yield block


def receive_file(
    remote: str,
    local: Path,
    max_bytes: int,
    status: RemoteStat | None,
    fetch: Callable[[Callable[[bytes], None]], None],
    *,
    serial: str,
) -> None:
    """Write a file from a device to `local`: `fetch` passes on its content, piece by piece.

    It is written to a temporary file beside `local`, which appears only when it is complete, with
    the modification time and permission bits of `status`, its attributes on the device. Raises
    DeviceRefused if there is no such file, DeviceError for more than `max_bytes`, or for another
    size than the device reported.
    """
    command = f"pull {remote}"
    if status is None or not status.is_file:
        problem = "No such file or directory" if status is None else "not a regular file"
        raise DeviceRefused(problem, serial=serial, command=command)
    is_sized = not remote.startswith(PSEUDO_FOLDERS)
    if is_sized and status.size > max_bytes:
        problem = f"{status.size} bytes, more than the {max_bytes} allowed"
        raise DeviceError(problem, serial=serial, command=command)
    partial = local.with_name(f".pull-{secrets.token_hex(8)}.partial")
    size = 0

    def write(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > max_bytes:
            problem = f"more than the {max_bytes} bytes allowed"
            raise DeviceError(problem, serial=serial, command=command)
        with local_faults(partial):
            file.write(data)

    try:
        with local_faults(partial):
            file = partial.open("xb", buffering=0)
        with file:
            fetch(write)
        if is_sized and status.size != size:
            problem = f"only {size} of {status.size} bytes arrived"
            raise DeviceError(problem, serial=serial, command=command)
        with local_faults(local):
            partial.chmod(stat.S_IMODE(status.mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            mtime_s = min(max(0, status.mtime_s), _LATEST_S)
            os.utime(partial, (mtime_s, mtime_s))
            partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)
