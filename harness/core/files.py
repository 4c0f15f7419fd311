"""Files on this computer: atomic writes, bounded reads, copies, sets of files, scratch folders."""

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
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from harness.core.bounded_json import parse_json
from harness.core.errors import InfraError, InternalError

_CHUNK: Final = 1 << 20
_MOST_AT_ONCE: Final = 1 << 30
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
            problem = f"was changed while it was in use: {status.st_size} bytes now, {size} before"
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


def sha256_of_range(source: BinaryIO, offset: int, size: int) -> str:
    """Return the sha256 of `size` bytes, in hex. Raises OSError, EOFError at the end."""
    digest, remaining = hashlib.sha256(), size
    source.seek(offset)
    while remaining and (part := source.read(min(remaining, _CHUNK))):
        digest.update(part)
        remaining -= len(part)
    if remaining:
        raise EOFError(f"it is {remaining} bytes shorter than expected")
    return digest.hexdigest()


def copy_range(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
    """Copy `size` bytes of a file from `offset` on to another file, which is empty.

    Raises OSError, EOFError if the file ends before; what was written until then stays.
    """
    while size:
        count = os.sendfile(write.fileno(), read.fileno(), offset, min(size, _MOST_AT_ONCE))
        if not count:
            raise EOFError(f"it is {size} bytes shorter than expected")
        offset, size = offset + count, size - count


def link_or_copy(file: Path, target: Path) -> None:
    """Make a hard link to a file, or else a copy, unless the target exists. Raises OSError."""
    try:
        os.link(file.resolve(), target)
    except FileExistsError:
        return
    except OSError:  # another file system, or one without links
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(file, temporary)
        temporary.replace(target)


@dataclass(frozen=True)
class LocalFile:
    """A file on this computer; `name` is relative to its set or folder, with slashes.

    `size` in bytes, `sha256` in hex, `mode` as on the device.
    """

    path: Path
    name: str
    size: int
    sha256: str
    mode: int = 0o644


def content_key(files: Iterable[LocalFile]) -> str:
    """Return a hash of a set of files by their names, hashes and modes, in any order (hex)."""
    lines = sorted(f"{file.name}\0{file.sha256}\0{file.mode:o}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class AppendedLines:
    """A file to which lines are appended, by one process or by several at once.

    A line is one `write` on a descriptor opened for appending. So lines of several processes do not
    mix, and appended lines survive the death of this process. They are synced to disk when
    `sync_every_s` have passed since the last time, and on `close`.

    If an earlier writer died within a line, that line is ended first, so that it damages no other.
    If only one process at a time writes (`alone`), that line is removed.
    """

    def __init__(self, path: Path, *, alone: bool = False, sync_every_s: float = 0.0) -> None:
        """Open or create the file.

        Raises InfraError if that fails, BlockingIOError if another process has it `alone`.
        """
        self.path = path
        self._every_s, self._synced_at = sync_every_s, time.monotonic()
        with disk_errors(f"cannot write {path}"):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if alone:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(f"cannot write {path}"):
                size = os.fstat(self._file).st_size
                self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
                if alone and self._torn:
                    whole = os.pread(self._file, size, 0).rfind(b"\n") + 1
                    os.ftruncate(self._file, whole)
                    self._torn = False
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: bytes) -> None:
        """Write a line, including its newline; then it survives the death of this process.

        Raises InternalError once it is closed, InfraError if it cannot be written (the next line
        then begins on a new line).
        """
        if self._file < 0:
            raise InternalError(f"{self.path} is closed already")
        content = b"\n" + line if self._torn else line
        with disk_errors(f"cannot write {self.path}"):
            written = os.write(self._file, content)
        self._torn = written < len(content)
        if self._torn:
            # only a full disk makes a write shorter than requested
            raise InfraError(f"cannot write {self.path}: the disk is full")
        if time.monotonic() - self._synced_at >= self._every_s:
            self._sync()

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if self._file >= 0:
            self._sync()
            os.close(self._file)
            self._file = -1

    def _sync(self) -> None:
        with disk_errors(f"cannot sync {self.path}"):
            os.fsync(self._file)
        self._synced_at = time.monotonic()


def lines_of(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, line) for each line of a file; the last may lack its newline.

    A line of more than `most_bytes` is cut after the first byte too many.
    """
    offset = 0
    while line := stream.readline(most_bytes + 1):
        yield offset, line
        offset += len(line)
        while len(line) > most_bytes and not line.endswith(b"\n"):
            line = stream.readline(most_bytes + 1)
            offset += len(line)


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
