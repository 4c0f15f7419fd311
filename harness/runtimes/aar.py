"""Runtimes out of AARs: one file, or those of a Maven repository (qnn-runtime, or an ORT with it).

An AAR is a zip archive with the libraries of Android in jni/arm64-v8a.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.core.archive import unpack_once
from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.outgoing_text import outgoing
from harness.core.verified_folder import HashCache, find_damage
from harness.core.whole_file import read_bounded, sha256_of
from harness.runtimes.local_sources import FolderSource, local_runtime
from harness.runtimes.maven_repository import (
    QNN_RUNTIME,
    Coordinates,
    NotThere,
    Repository,
    pom_dependencies,
)
from harness.runtimes.runtime import LibrarySource, Runtime, is_library, version_key

AAR_TARGET: Final = "android-arm64"
JNI_FOLDER: Final = "jni/arm64-v8a"
_LAYOUT: Final = 1

_MAX_POMS: Final = 20
_MAX_POM_BYTES: Final = 1 << 20


class AarStore:
    """AARs unpacked below the cache, by their sha256."""

    def __init__(self, cache_root: Path) -> None:
        self._cache_root = cache_root

    def files(self, aar: Path) -> dict[str, Path]:
        """Return the libraries of an AAR by their names in it.

        Raises InfraError if it is damaged, or has no libraries for Android on arm64.
        """
        sha256 = self._sha256(aar)
        facts = {"layout": _LAYOUT, "aar": sha256}

        def data_of(_: Path, files: Collection[str]) -> dict[str, Any]:
            # The unpacked file must be the hashed one, even if it is replaced meanwhile.
            if sha256_of(aar) != sha256:
                raise InfraError(f"{aar.name} changed while it was being read")
            if not files:
                raise InfraError(f"{aar.name} has no libraries in {JNI_FOLDER}")
            return {}

        folder = self._folder(sha256)
        unpacked = unpack_once(aar, folder, facts, _is_library, data_of, title=aar.name)
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
        changed = self._hashes.changed({self.path.name: self.path})
        return [*changed, *self._store.damage(self.path)]

    def _files(self) -> dict[str, Path]:
        field = f"runtimes.{self.name}.path"
        if not self.path.is_file():
            raise ConfigError(f"{self.path} is no file", field=field)
        try:
            return self._store.files(self.path)
        except InfraError as error:
            # the file is the user's own
            raise ConfigError(str(error), field=field) from error


def _is_library(name: str) -> bool:
    return name.startswith(f"{JNI_FOLDER}/") and name.count("/") == 2 and is_library(name)


@dataclass(eq=False, repr=False)  # a URL may have a password
class MavenSource(LibrarySource):
    """One artifact of a repository in all its versions, or in one.

    The version of a runtime is that of its QNN. An artifact other than qnn-runtime (an ORT) comes
    with the qnn-runtime that its POM names. Of two artifacts with the same QNN the newer is used,
    unless the coordinates name a version. `location` is a folder or an http(s) URL.
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
        return list(self._all) if target == self.target else []

    def is_cached(self, version: str, target: str) -> bool:
        return all(self._repository.is_cached(aar.file("aar")) for aar in self._aars(version))

    def runtime(self, version: str, target: str) -> Runtime:
        aars = [self._repository.file(aar.file("aar")) for aar in self._aars(version)]
        # of two equal names the first is used
        files = {name: path for aar in aars[::-1] for name, path in self._store.files(aar).items()}
        hashes = HashCache(self.cache_root, self.cache_root / "aars")
        root = next(iter(files.values())).parent
        return local_runtime(files, hashes, self.name, version, self.target, root)

    def damage(self, version: str, target: str) -> list[str]:
        problems = []
        for aar in self._aars(version):
            name = aar.file("aar")
            problems += self._repository.damage(name)
            if self._repository.is_cached(name) and not problems:
                problems += self._store.damage(self._repository.file(name))
        return problems

    def _aars(self, version: str) -> Sequence[Coordinates]:
        aars = self._all
        if version not in aars:
            raise VersionError(f"{self.origin} has no QNN {version[:80]!r}", choices=aars)
        return aars[version]

    @cached_property
    def _all(self) -> dict[str, tuple[Coordinates, ...]]:
        """The AARs of each version, the configured artifact first."""
        try:
            aars = self._find_all()
        except NotThere as error:
            raise ConfigError(
                f"there is no {self.coordinates}: {error}",
                field=f"runtimes.{self.name}.coordinates",
            ) from error
        return {version: aars[version] for version in sorted(aars, key=version_key)}

    def _find_all(self) -> dict[str, tuple[Coordinates, ...]]:
        pinned = self.coordinates.version
        versions = [pinned] if pinned else self._repository.versions(self.coordinates)
        newest = sorted(versions, key=version_key, reverse=True)
        if self.coordinates.artifact == QNN_RUNTIME.partition(":")[2]:
            return {version: (self.coordinates.with_version(version),) for version in newest}
        aars: dict[str, tuple[Coordinates, ...]] = {}
        for version in newest[:_MAX_POMS]:
            artifact = self.coordinates.with_version(version)
            name = artifact.file("pom")
            try:
                content = read_bounded(self._repository.file(name), _MAX_POM_BYTES)
                dependencies = pom_dependencies(content)
            except (OSError, ValueError) as error:
                raise InfraError(f"{name}: {error}") from error
            for runtime in dependencies:
                if str(runtime) == f"{QNN_RUNTIME}:{runtime.version}" and runtime.version:
                    aars.setdefault(runtime.version, (artifact, runtime))
                    break
        if not aars:
            raise ConfigError(
                f"{self.coordinates} names no {QNN_RUNTIME} in its POM, so that its QNN is not "
                f"known; take {QNN_RUNTIME} itself, or a folder",
                field=f"runtimes.{self.name}.coordinates",
            )
        return aars
