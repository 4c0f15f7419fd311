"""Temporary folders that do not pile up, not even where processes are ended with SIGKILL."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

_PREFIX: Final = "qnn-harness-tmp-"
_YOUNG_S: Final = 60.0


@contextlib.contextmanager
def scratch_folder(within: Path | None = None) -> Generator[Path]:
    """A folder of our own in `within`, by default where temporary files go; gone at the end.

    The folder of a killed process is removed by the next that wants one in the same place. Raises
    OSError.
    """
    parent = within or Path(tempfile.gettempdir())
    _remove_left(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)


def _remove_left(parent: Path) -> None:
    """Removes the folders of this user that no process holds any more."""
    # one that was made just now may not be locked yet
    youngest = time.time() - _YOUNG_S
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(held)
                if status.st_uid == os.getuid() and status.st_mtime < youngest:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)
