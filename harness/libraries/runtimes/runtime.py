"""A runtime, one set of libraries for a target, file by file; and what each source of them does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from harness.ground.errors import VersionError
from harness.ground.facts.versions import QnnVersion
from harness.ground.files.local_file import LocalFile, content_key
from harness.libraries.runtimes.library_facts import kind_of


class NotOffered(VersionError):
    """Nobody offers these libraries together: a case that wants them is not supported."""


class LibraryMissing(NotOffered):
    """A runtime does not have a library, so that it cannot do what that is for."""


@dataclass(frozen=True)
class Runtime:
    """One set of libraries for a target, unpacked on the host below `root`.

    `source` is the name of where it comes from, `ort_version` that of an ORT among the files.
    """

    qnn_version: str
    target: str
    root: Path
    files: tuple[LocalFile, ...]
    source: str = "pypi"
    ort_version: str | None = None

    @cached_property
    def key(self) -> str:
        return content_key(self.files)

    @cached_property
    def library_dirs(self) -> tuple[str, ...]:
        libraries = [file.name for file in self.files if is_library(file.name)]
        folders = {str(PurePosixPath(name).parent) for name in libraries}
        return tuple(sorted(folders, key=lambda folder: (folder.count("/"), folder)))

    @property
    def name(self) -> str:
        return self.qnn_version if self.source == "pypi" else f"{self.source}:{self.qnn_version}"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def htp_archs(self) -> tuple[int, ...]:
        kinds = (kind_of(file.name) for file in self.files)
        return tuple(sorted({arch for kind, arch in kinds if kind == "skel" and arch}))

    def library(self, name: str) -> Path:
        """The path on the host of a library such as libQnnSystem.so. Raises LibraryMissing."""
        for file in self.files:
            if file.path.name == name:
                return file.path
        raise LibraryMissing(f"QNN {self.qnn_version} for {self.target} has no {name}")


def is_library(name: str) -> bool:
    """Whether a file is a shared library by its name: libx.so, libx.so.1.2 (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    return file_name.endswith(".so") or ".so." in file_name


class LibrarySource(Protocol):
    """Where runtimes come from.

    `versions` and `is_cached` fetch nothing but lists; `runtime` fetches and unpacks what it
    needs. All raise ConfigError where the description of the source is wrong (no such folder, a
    version that it does not have) and InfraError where the lab is (network, disk, damaged files).
    """

    name: str
    """What users call it, and what stands in front of its versions."""
    origin: str
    """Where that is, for people: a path, a URL, a project."""

    def versions(self, target: str) -> list[str]:
        """The versions for a target, oldest first; none for a target it has nothing for."""

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a runtime can be had without a network; true of what lies here already."""
        return True

    def runtime(self, version: str, target: str) -> Runtime:
        """The runtime of an exact version of `versions`, checked."""

    def damage(self, version: str, target: str) -> list[str]:
        """What is not as it was when it was kept, every byte read; nothing is repaired."""


def version_key(version: str) -> tuple[tuple[int, ...], str]:
    """Sorts versions as versions; what is none comes first."""
    known = QnnVersion.found_in(version)
    return known.parts if known else (), version
