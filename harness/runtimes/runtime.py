"""A runtime: one set of libraries for a target, file by file, whichever source it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import VersionError
from harness.runtimes.library_facts import kind_of


class NotOffered(VersionError):
    """Nobody offers these libraries together: a case that wants them is not supported."""


class LibraryMissing(NotOffered):
    """A runtime does not have a library: it cannot do what that one is for."""


@dataclass(frozen=True)
class RuntimeFile:
    """One library of a runtime: where it is on the host, its name inside the runtime (slashes).

    `size` in bytes, `sha256` in hex, `mode` as on the device.
    """

    path: Path
    name: str
    size: int
    sha256: str
    mode: int = 0o644


@dataclass(frozen=True)
class Runtime:
    """One set of libraries for a target, unpacked on the host below `root`.

    `key` stands for the content: two runtimes with the same files have the same key. `build_id`
    is None where only the libraries themselves could tell. `library_dirs` are the folders inside
    the runtime that belong on the library path, in that order. `source` is the name of where it
    comes from, `ort_version` that of an ORT among the files.
    """

    qnn_version: str
    build_id: str | None
    target: str
    key: str
    root: Path
    files: tuple[RuntimeFile, ...]
    library_dirs: tuple[str, ...]
    source: str = "pypi"
    ort_version: str | None = None

    @property
    def name(self) -> str:
        """What options call it: its version, with its source in front unless that is PyPI."""
        return self.qnn_version if self.source == "pypi" else f"{self.source}:{self.qnn_version}"

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    @property
    def htp_archs(self) -> tuple[int, ...]:
        """The HTP architectures (73 for v73) that there is a skel for."""
        kinds = (kind_of(file.name) for file in self.files)
        return tuple(sorted({arch for kind, arch in kinds if kind == "skel" and arch}))

    def library(self, name: str) -> Path:
        """The path on the host of a library such as libQnnSystem.so. Raises LibraryMissing."""
        for file in self.files:
            if file.path.name == name:
                return file.path
        raise LibraryMissing(f"QNN {self.qnn_version} for {self.target} has no {name}")


def content_key(files: Iterable[tuple[str, str, int]]) -> str:
    """A name for a set of files given as (name, sha256, mode): hex, the same in any order."""
    lines = sorted(f"{name}\0{sha256}\0{mode:o}\n" for name, sha256, mode in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
