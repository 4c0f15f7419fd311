"""Where the harness keeps what it need not make twice: wheels, libraries, contexts, keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

CACHE_VARIABLE: Final = "QNN_HARNESS_CACHE"
SIMULATED_VARIABLE: Final = "QNN_HARNESS_SIMULATED"
QUARANTINE_VARIABLE: Final = "QNN_HARNESS_QUARANTINE"


def cache_root() -> Path:
    """The folder of everything cached: QNN_HARNESS_CACHE if set, else the user's cache folder.

    Absolute; it need not exist yet, whoever writes into it makes it. All of it can be deleted
    while the harness is not running: what is missing is fetched, built or compiled again.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("qnn-harness", appauthor=False).absolute()


def simulated_root(cache: Path) -> Path:
    """The folder with the storage of the simulated devices.

    QNN_HARNESS_SIMULATED if set, else `simulated` in the cache.
    """
    chosen = os.environ.get(SIMULATED_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else cache / "simulated"


def quarantine_root(cache: Path) -> Path:
    """The folder that remembers which devices take no cases.

    QNN_HARNESS_QUARANTINE if set, else `quarantine` in the cache.
    """
    chosen = os.environ.get(QUARANTINE_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else cache / "quarantine"
