"""Private folders for sockets, and for files that processes share about a server."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from harness.core.errors import InfraError
from harness.core.guardian import remove_folder

MAX_SOCKET_PATH_BYTES: Final = 107
"""The size of `sun_path` without the zero at its end (unix(7))."""

_PREFIX: Final = "qnn-harness-adb-"
_NAME: Final = "server"
_HOSTS: Final = "qnn-harness-hosts-"
_LAST_RESORT: Final = Path("/tmp")
_LEFT_OVER_S: Final = 60.0


def host_file(server: object, kind: str) -> Path:
    """Return a file that this account's processes share about a server. Raises InfraError."""
    # ssh appends 17 characters to the name of a socket while it creates it
    longest = f"{_HOSTS}{os.geteuid()}/0123456789.ssh.0123456789abcdef"
    folder = socket_base(longest) / f"{_HOSTS}{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InfraError(f"{folder} is not a folder of this user with mode 0700; remove it")
    return folder / f"{hashlib.sha256(repr(server).encode()).hexdigest()[:10]}.{kind}"


def new_socket_path() -> Path:
    """Return a path for a socket in a new folder of mode 0700, below XDG_RUNTIME_DIR or among the
    temporary files. The caller removes the folder.

    Folders left by earlier servers are removed first. Raises InfraError.
    """
    # mkdtemp adds eight characters
    base = socket_base(f"{_PREFIX}12345678/{_NAME}")
    _sweep(base)
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base)) / _NAME
    except OSError as error:
        raise InfraError(f"cannot make a folder for a socket in {base}: {error}") from error


def socket_base(longest: str) -> Path:
    """Return a folder where other accounts cannot replace a socket at the relative path `longest`.

    Raises InfraError.
    """
    named = os.environ.get("XDG_RUNTIME_DIR")
    if named and _fits(Path(named, longest)) and _is_ours_alone(Path(named)):
        return Path(named)
    for folder in (Path(tempfile.gettempdir()), _LAST_RESORT):
        if _fits(folder / longest) and _keeps_others_off(folder):
            return folder
    raise InfraError(
        f"cannot make a folder for a socket: in {tempfile.gettempdir()} and {_LAST_RESORT} "
        "other accounts can rename files (no sticky bit), or the path is too long; set "
        "XDG_RUNTIME_DIR to a folder of yours with mode 0700"
    )


def _fits(longest: Path) -> bool:
    return len(os.fsencode(longest)) <= MAX_SOCKET_PATH_BYTES


def _is_ours_alone(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        status = folder.stat()
        ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        return ours and stat.S_ISDIR(status.st_mode)
    return False


def _keeps_others_off(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        mode = folder.stat().st_mode
        return not mode & 0o022 or bool(mode & stat.S_ISVTX)
    return False


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            # a young one may be about to listen
            old = time.time() - status.st_mtime > _LEFT_OVER_S
            if ours and old and not _listens(folder / _NAME):
                remove_folder(str(folder))


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.setblocking(False)
        try:
            visitor.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def unix_connection(path: str, timeout_s: float) -> socket.socket:
    """Open a connection with a timeout. Raises OSError."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout_s)
        connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected
