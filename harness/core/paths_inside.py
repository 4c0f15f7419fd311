"""Untrusted names of files inside a folder: check, open and create them safely.

Archives, manifests, models, journals and devices name files. `name_problem` says why a name cannot
be that of a file inside a folder. Files are opened and created by entering the folder part by part,
and no link below it is followed: it may have links to anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

MAX_NAME_BYTES: Final = 1024
_MAX_PART_BYTES: Final = 255
_ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# nearly all names; judging one character by character takes ten times as long
_PLAIN: Final = re.compile(
    r"[a-z0-9_](?:[\w.-]{0,250}\w)?(?:/[a-z0-9_](?:[\w.-]{0,250}\w)?)*", re.ASCII | re.I
)
_NO_FILE: Final = "is not a file"
_LINK: Final = "is a link, and links in a folder are not followed; put the file itself there"


class NotInsideError(OSError):
    """A name that cannot be inside its folder, or a link in its place; `strerror` says which."""

    def __init__(self, problem: str, name: str) -> None:
        super().__init__(errno.EINVAL, problem, name)


def name_problem(name: str, *, flat: bool = False) -> str | None:
    """Return why a name is not allowed for a file inside a folder, None if it is (pure).

    The problem is worded to follow the name. Parts are separated by slashes. Names that lead
    outside on other systems or after normalisation are refused, too, and names that a command would
    take for an option. With `flat` the file must lie directly in the folder.
    """
    if len(name) <= MAX_NAME_BYTES and not flat and _PLAIN.fullmatch(name):
        return None
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if size > MAX_NAME_BYTES or any(len(p.encode()) > _MAX_PART_BYTES for p in name.split("/")):
        return "has a name that is too long"
    for form in (name, unicodedata.normalize("NFKC", name)):
        if form.startswith("/") or "\\" in form or ":" in form:
            return "has a name that is absolute, or not a POSIX path"
        if any(part in ("", ".", "..") for part in form.split("/")):
            return "has a name with an empty part, '.' or '..'"
        if form.count("/") != name.count("/"):
            return "has a character in its name that looks like a slash"
    if flat and "/" in name:
        return "lies in a folder"
    if any(unicodedata.category(character).startswith("C") for character in name):
        return "has control characters in its name"
    parts = name.split("/")
    if any(part.startswith("-") for part in parts):
        return "has a name that begins with a dash"
    if any(part != part.strip(" ") or part.endswith(".") for part in parts):
        return "has a name with spaces at its ends, or a dot at its end"
    return None


def inner_name(name: str) -> str:
    """Return the name if a file inside a folder may have it (pure). Raises ValueError."""
    if (problem := name_problem(name)) is not None:
        raise ValueError(f"must be a path inside the folder, but {problem}")
    return name


def flat_name(name: str) -> str:
    """Return the name if a file directly in a folder may have it (pure). Raises ValueError."""
    if (problem := name_problem(name, flat=True)) is not None:
        raise ValueError(f"must be a name in the folder, but {problem}")
    return name


def inside(folder: Path, name: str) -> Path:
    """Return the path of a name in a folder (pure; links are only checked by `open_inside`).

    Raises NotInsideError.
    """
    if (problem := name_problem(name)) is not None:
        raise NotInsideError(problem, name)
    return folder.joinpath(*name.split("/"))


def open_inside(folder: Path, name: str) -> BufferedReader:
    """Open a file of a folder, which may itself be a link.

    Raises NotInsideError for an invalid name, a link, or what is not a regular file; OSError.
    """
    inside(folder, name)
    return open_below(folder, name)


def open_below(folder: Path, name: str) -> BufferedReader:
    """As `open_inside`, without a check of the name, which was found in the folder itself."""
    *folders, last = name.split("/")
    with _entered(folder, folders) as directory:
        # only regular files are opened: a FIFO would wait, a device may do anything
        if not stat.S_ISREG(_mode(directory, last, name)):
            raise NotInsideError(_NO_FILE, name)
        opened = os.open(last, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise NotInsideError(_NO_FILE, name)
        return open(opened, "rb")
    except BaseException:
        os.close(opened)
        raise


def create_inside(folder: Path, name: str, *, replace: bool = False) -> BinaryIO:
    """Create a file in a folder, with its parent folders; existing files are never written to.

    With `replace` an existing file or link is removed first. Raises NotInsideError,
    FileExistsError, OSError.
    """
    inside(folder, name)
    *folders, last = name.split("/")
    with _entered(folder, folders, create=True) as directory:
        if replace:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=directory)
        return open(os.open(last, _CREATE, 0o666, dir_fd=directory), "wb")


def read_inside(folder: Path, name: str, most_bytes: int) -> bytes:
    """Read a file of a folder. Raises as `open_inside`, and EFBIG beyond `most_bytes`."""
    with open_inside(folder, name) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", name)
    return content


def stays_inside(folder: Path, path: Path) -> bool:
    """Return whether a path found in a folder lies there once links are resolved. Raises OSError.

    For folders with links of their own, such as SDKs and builds.
    """
    return path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))


def refuse_links(folder: Path, *, below: bool = True) -> None:
    """Raise NotInsideError if there is a link in a folder, or below it; OSError.

    Writing there by paths would follow the link.
    """
    for entry in os.scandir(folder):
        if entry.is_symlink():
            raise NotInsideError(_LINK, entry.path)
        if below and entry.is_dir(follow_symlinks=False):
            refuse_links(Path(entry.path))


def list_inside(folder: Path, name: str) -> list[str]:
    """List a folder inside a folder. Raises as `open_inside`."""
    inside(folder, name)
    with _entered(folder, name.split("/")) as directory:
        return os.listdir(directory)


@contextlib.contextmanager
def _entered(folder: Path, folders: list[str], *, create: bool = False) -> Iterator[int]:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, part in enumerate(folders):
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=directory)
            _mode(directory, part, "/".join(folders[: index + 1]))
            below = os.open(part, _ENTER, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)


def _mode(folder: int, part: str, name: str) -> int:
    mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise NotInsideError(_LINK, name)
    return mode
