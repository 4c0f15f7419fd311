"""A file on this computer that goes to devices, and a name for a set of them by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.ground.files.verified_folder import VerifiedFile


@dataclass(frozen=True)
class LocalFile:
    """A file on this computer that goes to devices, and its name in the set it is of (slashes).

    `size` in bytes, `sha256` in hex, `mode` as on the device.
    """

    path: Path
    name: str
    size: int
    sha256: str
    mode: int = 0o644

    @classmethod
    def of(cls, file: VerifiedFile) -> LocalFile:
        """A file of a verified folder, by its name there."""
        return cls(file.path, file.name, file.size, file.sha256)


def content_key(files: Iterable[LocalFile]) -> str:
    """A name for a set of files by their names, hashes and modes: hex, the same in any order."""
    lines = sorted(f"{file.name}\0{file.sha256}\0{file.mode:o}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
