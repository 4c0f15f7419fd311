"""Runtimes out of AARs: one file, or those of qnn-runtime in a Maven repository.

An AAR is a zip archive with the libraries of Android in jni/arm64-v8a.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.core.archive import unpack_once
from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.files import sha256_of
from harness.core.outgoing_text import outgoing
from harness.core.verified_folder import HashCache, find_damage
from harness.runtimes.download import NotOnServer
from harness.runtimes.local_sources import FolderSource, local_runtime
from harness.runtimes.maven_repository import Coordinates, Repository
from harness.runtimes.runtime import LibrarySource, Runtime, is_library, version_key

AAR_TARGET: Final = "android-arm64"
JNI_FOLDER: Final = "jni/arm64-v8a"
_LAYOUT: Final = 1


class AarStore:
    """AARs unpacked below the cache, by their sha256."""

    def __init__(self, cache_root: Path) -> None:
        self._cache_root = cache_root

    def files(self, aar: Path) -> dict[str, Path]:
        """Return an AAR's libraries by name. Raises InfraError if damaged, or without any."""
        sha256 = self._sha256(aar)
        facts = {"layout": _LAYOUT, "aar": sha256}

        def data_of(_: Path, files: Collection[str]) -> dict[str, Any]:
            # The unpacked file must be the hashed one, even if it is replaced meanwhile.
            if sha256_of(aar) != sha256:
                raise InfraError(f"{aar.name} changed while it was being read")
            if not files:
                raise InfraError(f"{aar.name} has no libraries in {JNI_FOLDER}")
            return {}

        def is_wanted(name: str) -> bool:
            return name.rpartition("/")[0] == JNI_FOLDER and is_library(name)

        folder = self._folder(sha256)
        unpacked = unpack_once(aar, folder, facts, is_wanted, data_of, title=aar.name)
        return {name: file.path for name, file in unpacked.files.items()}

    def damage(self, aar: Path) -> list[str]:
        """Return the damage of an AAR's unpacked files in the cache, reading every byte."""
        folder = self._folder(self._sha256(aar))
        return [f"{folder.name}: {damage}" for damage in find_damage(folder)]

    def _sha256(self, aar: Path) -> str:
        return HashCache(self._cache_root, aar).hashed({"aar": aar})["aar"].sha256

    def _folder(self, sha256: str) -> Path:
        return self._cache_root / "aars" / sha256[:32]


@dataclass(eq=False)
class AarSource(FolderSource):
    """One AAR file on this computer."""

    target: str | None = AAR_TARGET

    def __post_init__(self) -> None:
        super().__post_init__()
        self._store = AarStore(self.cache_root)

    def damage(self, version: str, target: str) -> list[str]:
        return [*self._hashes.changed({self.path.name: self.path}), *self._store.damage(self.path)]

    def _files(self) -> dict[str, Path]:
        field = f"runtimes.{self.name}.path"
        if not self.path.is_file():
            raise ConfigError(f"{self.path} is not a file", field=field)
        try:
            return self._store.files(self.path)
        except InfraError as error:
            # the file is the user's own
            raise ConfigError(str(error), field=field) from error


@dataclass(eq=False, repr=False)  # a URL may have a password
class MavenSource(LibrarySource):
    """The artifact qnn-runtime of a repository, in all its versions, or in one.

    `location` is a folder or an http(s) URL.
    """

    name: str
    coordinates: Coordinates
    location: str | Path
    cache_root: Path
    target: str = AAR_TARGET

    def __post_init__(self) -> None:
        self.origin = outgoing(f"{self.coordinates} in {self.location}")
        self._repository = Repository(self.location, self.cache_root)
        self._store = AarStore(self.cache_root)

    def versions(self, target: str) -> list[str]:
        return self._all if target == self.target else []

    def is_cached(self, version: str, target: str) -> bool:
        return self._repository.is_cached(self._aar(version))

    def runtime(self, version: str, target: str) -> Runtime:
        files = self._store.files(self._repository.file(self._aar(version)))
        hashes = HashCache(self.cache_root, self.cache_root / "aars")
        root = next(iter(files.values())).parent
        return local_runtime(files, hashes, self.name, version, self.target, root)

    def damage(self, version: str, target: str) -> list[str]:
        name = self._aar(version)
        if (problems := self._repository.damage(name)) or not self._repository.is_cached(name):
            return problems
        return self._store.damage(self._repository.file(name))

    def _aar(self, version: str) -> str:
        if version not in self._all:
            raise VersionError(f"{self.origin} has no QNN {version[:80]!r}", choices=self._all)
        return self.coordinates.with_version(version).aar()

    @cached_property
    def _all(self) -> list[str]:
        if self.coordinates.version:
            return [self.coordinates.version]
        try:
            return sorted(self._repository.versions(self.coordinates), key=version_key)
        except NotOnServer as error:
            raise ConfigError(
                f"there is no {self.coordinates}: {error}",
                field=f"runtimes.{self.name}.coordinates",
            ) from error
