"""Atomic writes, bounded reads, and scratch folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from harness.core.bounded_json import parse_json
from harness.core.errors import InfraError

_MAX_NOTE_BYTES: Final = 64 << 10


def write_whole(path: Path, content: bytes, *, new: bool = False, durable: bool = True) -> None:
    """Write a temporary file and rename it: readers see the old content or the new, never a part.

    Files that are not `durable` may be lost when the computer stops. Raises OSError of `path`, with
    `new` also if it exists; the temporary file is removed then.
    """
    try:
        with written_whole(path, new=new, durable=durable) as stream:
            stream.write(content)
    except OSError as error:
        error.filename = os.fspath(path)  # other errors name the temporary file or none
        raise


@contextlib.contextmanager
def written_whole(path: Path, *, new: bool = False, durable: bool = True) -> Iterator[BinaryIO]:
    """As `write_whole`, for content in pieces: the file appears when the block ends normally."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        if new:
            path.hardlink_to(temporary)
            temporary.unlink()
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def disk_errors(problem: str) -> Iterator[None]:
    """Turn an OSError of the block into an InfraError: `problem`, and the reason."""
    try:
        yield
    except OSError as error:
        raise InfraError(f"{problem}: {error.strerror or error}") from error


def keep_whole(path: Path, content: bytes) -> None:
    """Write a file and its folder unless it has this content already. Raises InfraError."""
    with disk_errors(f"cannot keep {path}"):
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    """As `write_whole`, for JSON. Raises OSError."""
    write_whole(path, f"{json.dumps(content, indent=1, sort_keys=True)}\n".encode())


def open_regular(path: Path, size: int | None = None) -> io.FileIO:
    """Open a regular file without blocking on a FIFO or a device in its place.

    Raises OSError, also if it is not a regular file, or its size differs from `size`.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if size not in (None, status.st_size):
            problem = f"was changed while it was in use: {status.st_size} bytes, {size} before"
            raise OSError(errno.ESTALE, problem, str(path))
        return io.FileIO(opened)
    except BaseException:
        os.close(opened)
        raise


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Read a file. Raises OSError, with EFBIG for more than `most_bytes`."""
    with path.open("rb") as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return content


def read_json(path: Path, most_bytes: int) -> Any:
    """As `read_bounded`, for JSON. Raises OSError, and JsonError as `parse_json`."""
    return parse_json(read_bounded(path, most_bytes))


def read_note(path: Path) -> dict[str, Any] | None:
    """Read the note of a fetched file, which has at least its `sha256`.

    None if there is no such note, or it is invalid.
    """
    try:
        note = read_json(path, _MAX_NOTE_BYTES)
        return note if len(bytes.fromhex(note["sha256"])) == 32 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_PREFIX: Final = "qnn-harness-tmp-"
_YOUNG_S: Final = 60.0


@contextlib.contextmanager
def scratch_folder(base: Path | None = None) -> Generator[Path]:
    """Create a private folder in `base`, by default in the one for temporary files; remove it then.

    The folder of a killed process is removed by the next one that creates one in the same place.
    Raises OSError.
    """
    parent = base or Path(tempfile.gettempdir())
    _remove_left(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_left(parent: Path) -> None:
    # a new one may not be locked yet
    youngest = time.time() - _YOUNG_S
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.getuid() and status.st_mtime < youngest:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
