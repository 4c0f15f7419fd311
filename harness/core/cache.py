"""Where the harness keeps what it need not make twice, and what outlives a run.

Much of it is programs that are run here, so nobody else may write there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import platformdirs

from harness.core.errors import ConfigError, InfraError

PRIVATE: Final = 0o700
"""Mode of folders that we make for ourselves."""

HOME_VARIABLE: Final = "QNN_HARNESS_HOME"
"""The folder of all folders of state; a variable of one of them wins."""

CACHE_VARIABLE: Final = "QNN_HARNESS_CACHE"
SIMULATED_VARIABLE: Final = "QNN_HARNESS_SIMULATED"
QUARANTINE_VARIABLE: Final = "QNN_HARNESS_QUARANTINE"
LEASES_VARIABLE: Final = "QNN_HARNESS_LEASES"
BOARDS: Final = "boards"
"""In the cache: what simulated boards need that was built."""

_ALL_USERS: Final = Path("/tmp/qnn-harness-leases")


def cache_root() -> Path:
    """The folder of everything cached: QNN_HARNESS_CACHE or `cache` in QNN_HARNESS_HOME if set,
    else the user's cache folder.

    Absolute and private (`private_folder`). All of it can be deleted while the harness is not
    running: what is missing is fetched, built or compiled again. Raises ConfigError.
    """
    chosen = _chosen(CACHE_VARIABLE, "cache")
    if chosen is not None:
        return _private(chosen)
    default = cache_path()
    # one that an earlier version made with the modes of other files
    with contextlib.suppress(OSError):
        if default.stat().st_uid == os.geteuid():
            default.chmod(PRIVATE)
    return private_folder(default)


def cache_problem(error: OSError, problem: str = "cannot write to the cache") -> InfraError:
    """What to raise where something in the cache could not be written (pure)."""
    where = f": {error.filename}" if error.filename else ""
    why = f"{error.strerror or error}{where}"
    return InfraError(f"{problem}: {why}; {CACHE_VARIABLE} names another folder")


def cache_path() -> Path:
    """The folder of `cache_root`, neither made nor looked at."""
    chosen = _chosen(CACHE_VARIABLE, "cache")
    if chosen is not None:
        return chosen[0]
    return platformdirs.user_cache_path("qnn-harness", appauthor=False).absolute()


def simulated_root(cache: Path) -> Path:
    """The folder with the storage of the simulated devices.

    QNN_HARNESS_SIMULATED or `simulated` in QNN_HARNESS_HOME if set, else in the cache. Raises
    ConfigError.
    """
    chosen = _chosen(SIMULATED_VARIABLE, "simulated")
    return _private(chosen) if chosen is not None else cache / "simulated"


def quarantine_root(cache: Path) -> Path:
    """The folder that remembers which devices take no cases.

    QNN_HARNESS_QUARANTINE or `quarantine` in QNN_HARNESS_HOME if set, else in the cache. Raises
    ConfigError.
    """
    chosen = _chosen(QUARANTINE_VARIABLE, "quarantine")
    return _private(chosen) if chosen is not None else cache / "quarantine"


def known_root(cache: Path) -> Path:
    """The folder with what is known of devices from case to case."""
    return cache / "devices"


def lease_root() -> Path:
    """The folder of the leases, which may be for all users, so that others may write there.

    QNN_HARNESS_LEASES or `leases` in QNN_HARNESS_HOME if set, else one that all users share.
    """
    chosen = _chosen(LEASES_VARIABLE, "leases")
    return chosen[0] if chosen is not None else _ALL_USERS


def private_folder(folder: Path, *, field: str | None = None) -> Path:
    """Makes a folder that no other account can enter; one that is there keeps its mode.

    Whoever writes into it is told if it cannot be made. Raises ConfigError, naming `field`, if
    others can change what is in it.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    why = open_to_others(folder)
    if why is not None:
        raise ConfigError(why, file=folder, field=field)
    return folder


def open_to_others(folder: Path) -> str | None:
    """Who but root and us can change what is in a folder, and what to do about it; None: nobody.

    None too for a folder that is not there.
    """
    try:
        found = folder.stat()
    except OSError:
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to user {found.st_uid}, who could change programs that are run from there"
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        return (
            f"other accounts can write to it (mode {mode:o}), hence change programs that are run "
            f"from there: `chmod go-w {folder}`"
        )
    return None


def _private(chosen: tuple[Path, str]) -> Path:
    folder, variable = chosen
    return private_folder(folder, field=variable)


def _chosen(variable: str, name: str) -> tuple[Path, str] | None:
    """The folder that its own variable names, else the one for all; and which variable did."""
    if named := os.environ.get(variable):
        return Path(named).expanduser().absolute(), variable
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute() / name, HOME_VARIABLE
    return None
