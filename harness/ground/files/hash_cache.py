"""Hashes of files that belong to the user: remembered, so that gigabytes are not read each time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.ground.files.cache import cache_problem
from harness.ground.files.whole_file import (
    disk_errors,
    open_regular,
    read_json,
    sha256_of,
    write_json,
)

_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Hashed:
    """What one file was when it was last read (size in bytes, sha256 in hex)."""

    size: int
    mtime_ns: int
    sha256: str


class HashCache:
    """The hashes of the files below one folder, kept in a file of the cache.

    A file whose size and time are as they were is taken to be unchanged; any other is read again. A
    cache that is lost or damaged costs only time.
    """

    def __init__(self, cache_root: Path, folder: Path) -> None:
        name = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = cache_root / "ledgers" / f"{name}.json"

    def hashed(self, files: Mapping[str, Path]) -> dict[str, Hashed]:
        """Size and hash of each file, by the same keys. Raises InfraError."""
        known = self._read()
        found = {}
        for key, path in files.items():
            found[key] = self._look(path, known.get(str(path)))
        new = {str(path): found[key] for key, path in files.items()}
        if any(known.get(path) != entry for path, entry in new.items()):
            self._write(known | new)
        return found

    def changed(self, files: Mapping[str, Path]) -> list[str]:
        """Which files are not what they were when they were last used, every byte read."""
        known = self._read()
        found = []
        for key, path in files.items():
            entry = known.get(str(path))
            try:
                if entry is not None and sha256_of(path) != entry.sha256:
                    found.append(f"{key} is not what it was when it was last used")
            except OSError as error:
                found.append(f"{key}: {error.strerror or error}")
        return found

    def _look(self, path: Path, known: Hashed | None) -> Hashed:
        # what is looked at and what is read are one file, also if it is swapped meanwhile
        with disk_errors(f"cannot read {path}"), open_regular(path) as file:
            status = os.fstat(file.fileno())
            same = known and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns)
            if known is not None and same:
                return known
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Hashed(status.st_size, status.st_mtime_ns, digest)

    def _read(self) -> dict[str, Hashed]:
        try:
            said = read_json(self._path, _MAX_BYTES)
            return {str(path): _entry(entry) for path, entry in said["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, entries: Mapping[str, Hashed]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files = {
                path: {"size": entry.size, "mtime_ns": entry.mtime_ns, "sha256": entry.sha256}
                for path, entry in entries.items()
            }
            write_json(self._path, {"files": files})
        except OSError as error:
            raise cache_problem(error) from error


def _entry(said: Any) -> Hashed:
    if len(bytes.fromhex(said["sha256"])) != 32:
        raise ValueError("not a sha256")
    return Hashed(int(said["size"]), int(said["mtime_ns"]), str(said["sha256"]))
