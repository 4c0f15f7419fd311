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
from typing import Any, Final, Self

from harness.core.errors import DeviceError, DeviceRefused, InfraError
from harness.core.whole_file import open_regular
from harness.transport.faults import reason

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


def check_size(status: RemoteStat | None, remote: str, max_bytes: int, *, serial: str) -> bool:
    """Return whether the reported size of a file to be fetched can be relied on (pure).

    Raises DeviceRefused if there is no such file, DeviceError if it has more than `max_bytes`.
    """
    context: dict[str, Any] = {"serial": serial, "command": f"pull {remote}"}
    if status is None:
        raise DeviceRefused("No such file or directory", **context)
    if not status.is_file:
        raise DeviceRefused("not a regular file", **context)
    sized = not remote.startswith(PSEUDO_FOLDERS)
    if sized and status.size > max_bytes:
        raise DeviceError(f"{status.size} bytes, more than the {max_bytes} allowed", **context)
    return sized


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

    It is written to a temporary file beside `local`, which appears only when it is complete.
    `status` is the file's attributes on the device. Raises DeviceError for more than `max_bytes`,
    or for another size than the device reported.
    """
    sized = check_size(status, remote, max_bytes, serial=serial)
    assert status is not None
    with IncomingFile(local) as file:

        def write(data: bytes) -> None:
            if file.size + len(data) > max_bytes:
                raise _wrong(f"more than the {max_bytes} bytes allowed")
            file.write(data)

        def _wrong(problem: str) -> DeviceError:
            return DeviceError(problem, serial=serial, command=f"pull {remote}")

        fetch(write)
        if sized and status.size != file.size:
            raise _wrong(f"{file.size} bytes came, not {status.size}")
        file.commit(status)


class IncomingFile:
    """A file that arrives in pieces, kept under a temporary name until it is complete."""

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
        """Append the next piece. Raises InfraError if it cannot be written."""
        self.size += len(data)
        with local_faults(self._partial):
            self._file.write(data)

    def commit(self, status: RemoteStat) -> None:
        """Give the file its name, and the device's modification time and permission bits."""
        with local_faults(self._local):
            self._partial.chmod(stat.S_IMODE(status.mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            mtime_s = min(max(0, status.mtime_s), _LATEST_S)
            os.utime(self._partial, (mtime_s, mtime_s))
            self._partial.replace(self._local)
