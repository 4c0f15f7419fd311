"""The folders of the harness: its cache, and the state that outlives a run.

They hold programs that are executed, so no other account may write there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final

import platformdirs

from harness.core.errors import ConfigError, InfraError

PRIVATE: Final = 0o700
"""Mode of private folders."""

HOME_VARIABLE: Final = "QNN_HARNESS_HOME"
"""The parent of all folders of state; the variable of a single folder wins."""

CACHE_VARIABLE: Final = "QNN_HARNESS_CACHE"
SIMULATED_VARIABLE: Final = "QNN_HARNESS_SIMULATED"
QUARANTINE_VARIABLE: Final = "QNN_HARNESS_QUARANTINE"
LEASES_VARIABLE: Final = "QNN_HARNESS_LEASES"
BOARDS: Final = "boards"
"""The folder in the cache for programs built for simulated boards."""

_ALL_USERS: Final = Path("/tmp/qnn-harness-leases")


def cache_root() -> Path:
    """Return the cache folder: QNN_HARNESS_CACHE or `cache` in QNN_HARNESS_HOME if set, else the
    user's cache folder.

    It is absolute and private (`private_folder`). It can be deleted while the harness is not
    running: missing files are fetched, built or compiled again. Raises ConfigError.
    """
    return private_folder(_private(CACHE_VARIABLE, "cache", cache_path()))


def cache_problem(error: OSError, problem: str = "cannot write to the cache") -> InfraError:
    """Return the error for a failed write to the cache (pure)."""
    path = f": {error.filename}" if error.filename else ""
    why = f"{error.strerror or error}{path}"
    return InfraError(f"{problem}: {why}; set {CACHE_VARIABLE} to use another folder")


def require_room(folder: Path, needed: int, doing: str) -> None:
    """Raise InfraError if the disk of a folder in the cache has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InfraError(
            f"{doing} needs {needed / 1e6:,.1f} MB on the disk of {folder}, which has "
            f"{free / 1e6:,.1f} MB free; make room, or set {CACHE_VARIABLE} to use another folder"
        )


def cache_path() -> Path:
    """Return the folder of `cache_root` without creating or checking it."""
    chosen = _chosen(CACHE_VARIABLE, "cache")
    if chosen is not None:
        return chosen[0]
    return platformdirs.user_cache_path("qnn-harness", appauthor=False).absolute()


def simulated_root(cache: Path) -> Path:
    """Return the folder with the storage of the simulated devices.

    QNN_HARNESS_SIMULATED or `simulated` in QNN_HARNESS_HOME if set, else in the cache. Raises
    ConfigError.
    """
    return _private(SIMULATED_VARIABLE, "simulated", cache / "simulated")


def quarantine_root(cache: Path) -> Path:
    """Return the folder with the state of quarantined devices.

    QNN_HARNESS_QUARANTINE or `quarantine` in QNN_HARNESS_HOME if set, else in the cache. Raises
    ConfigError.
    """
    return _private(QUARANTINE_VARIABLE, "quarantine", cache / "quarantine")


def lease_root() -> Path:
    """Return the folder of the leases, in which other users may write.

    QNN_HARNESS_LEASES or `leases` in QNN_HARNESS_HOME if set, else a folder shared by all users.
    """
    chosen = _chosen(LEASES_VARIABLE, "leases")
    return chosen[0] if chosen is not None else _ALL_USERS


def private_folder(folder: Path, *, field: str | None = None) -> Path:
    """Create a folder that no other account can enter; an existing one keeps its mode.

    If it cannot be created, the first write to it fails. Raises ConfigError, naming `field`, if
    other accounts can change its content.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    why = open_to_others(folder)
    if why is not None:
        raise ConfigError(why, file=folder, field=field)
    return folder


def open_to_others(folder: Path) -> str | None:
    """Describe who else than root and this user can change a folder's content, and the remedy.

    None if nobody can, also for a folder that does not exist.
    """
    try:
        status = folder.stat()
    except OSError:
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, who could change programs in it; use your own"
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        return (
            f"other accounts can write to it (mode {mode:o}), and so change programs that run "
            f"from there; run `chmod go-w {folder}`"
        )
    return None


def _private(variable: str, name: str, default: Path) -> Path:
    if (chosen := _chosen(variable, name)) is None:
        return default
    return private_folder(chosen[0], field=chosen[1])


def _chosen(variable: str, name: str) -> tuple[Path, str] | None:
    if named := os.environ.get(variable):
        return Path(named).expanduser().absolute(), variable
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute() / name, HOME_VARIABLE
    return None
