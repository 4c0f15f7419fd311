"""Parts of large files, copied by the kernel; what is a hole in a file stays one."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK: Final = 1 << 20
_MOST_AT_ONCE: Final = 1 << 30
# what a file system answers that cannot do it, or not to that other one
_NOT_HERE: Final = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}


def sha256_of_range(source: BinaryIO, offset: int, size: int) -> str:
    """The sha256 of so many bytes, in hex. Raises OSError, EOFError if the file ends before."""
    digest, left = hashlib.sha256(), size
    source.seek(offset)
    while left and (part := source.read(min(left, _CHUNK))):
        digest.update(part)
        left -= len(part)
    if left:
        raise EOFError(f"it ends {left} bytes early")
    return digest.hexdigest()


def copy_range(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
    """Writes `size` bytes of a file from `offset` on into another one, which is empty.

    Raises OSError, EOFError if the file ends before; what was written until then stays.
    """
    write.truncate(size)
    at, end = offset, offset + size
    while at < end:
        begin, at = _next_data(read, at, end)
        _copy(read, begin, write, begin - offset, at - begin)
    if os.fstat(read.fileno()).st_size < end:
        raise EOFError(f"it ends {end - os.fstat(read.fileno()).st_size} bytes early")


def hold(file: Path, target: Path) -> None:
    """Gives a file another name, by a hard link or else a copy, unless that name is taken.

    Raises OSError.
    """
    try:
        os.link(file.resolve(), target)
    except FileExistsError:
        return
    except OSError:  # another file system, or one without links
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        with file.open("rb") as read, beside.open("wb") as write:
            copy_range(read, 0, os.fstat(read.fileno()).st_size, write)
        beside.replace(target)


def _next_data(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    """Where bytes that are no hole begin and end; nothing at `end` if only holes are left."""
    try:
        begin = min(os.lseek(file.fileno(), at, os.SEEK_DATA), end)
        return begin, min(os.lseek(file.fileno(), begin, os.SEEK_HOLE), end)
    except OSError as error:
        # ENXIO: no data behind it; EINVAL: a file system that knows of no holes
        if error.errno == errno.ENXIO:
            return end, end
        if error.errno == errno.EINVAL:
            return at, end
        raise


def _copy(read: BinaryIO, at: int, write: BinaryIO, to: int, size: int) -> None:
    source, target = read.fileno(), write.fileno()
    by_range = sys.platform == "linux"
    while size:
        if sys.platform == "linux" and by_range:
            try:
                done = os.copy_file_range(source, target, min(size, _MOST_AT_ONCE), at, to)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                by_range = False
                continue
        elif sys.platform == "linux":
            os.lseek(target, to, os.SEEK_SET)
            done = os.sendfile(target, source, at, min(size, _MOST_AT_ONCE))
        else:
            done = os.pwrite(target, os.pread(source, min(size, _CHUNK), at), to)
        if not done:
            raise EOFError(f"it ends {size} bytes early")
        at, to, size = at + done, to + done, size - done
