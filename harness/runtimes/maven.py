"""Runtimes out of a Maven repository: qnn-runtime, or an ORT with the runtime it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import ConfigError, InfraError, VersionError
from harness.runtimes.aar import AAR_TARGET, AarStore, aar_runtime, said_by
from harness.runtimes.download import NotThere
from harness.runtimes.ledger import Ledger
from harness.runtimes.maven_files import QNN_RUNTIME, Coordinates, pom_dependencies
from harness.runtimes.maven_repository import FolderRepository, HttpRepository, Repository
from harness.runtimes.notices import Say
from harness.runtimes.runtime import Runtime
from harness.runtimes.said_versions import SaidVersion
from harness.runtimes.source import version_key

_MAX_POMS: Final = 20
_MAX_POM_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class _Artifacts:
    """The AARs that make one runtime, the artifact asked for first."""

    version: str
    aars: tuple[Coordinates, ...]


class MavenSource:
    """One artifact of a repository in all its versions, or in one; a `Source`.

    The version of a runtime is that of its QNN. An artifact other than qnn-runtime (an ORT) brings
    the qnn-runtime that its POM names; of two with the same QNN the newer one counts, unless the
    coordinates name a version.
    """

    def __init__(
        self,
        name: str,
        coordinates: Coordinates,
        place: str | Path,
        cache_root: Path,
        *,
        target: str = AAR_TARGET,
        notify: Say,
        warn: Say,
    ) -> None:
        """`place` is a folder or an http(s) URL."""
        self._target = target
        self.name = name
        self.origin = f"{coordinates} in {place}"
        self._coordinates = coordinates
        self._repository: Repository = (
            FolderRepository(place)
            if isinstance(place, Path)
            else HttpRepository(place, cache_root, notify=notify, warn=warn)
        )
        self._store = AarStore(cache_root, notify=notify, warn=warn)
        self._cache_root = cache_root
        self._found: dict[str, _Artifacts] | None = None

    def versions(self, target: str) -> list[str]:
        """See `Source`."""
        return list(self._all()) if target == self._target else []

    def is_cached(self, version: str, target: str) -> bool:
        """See `Source`."""
        return all(self._repository.is_cached(aar.file("aar")) for aar in self._aars(version))

    def is_kept(self, version: str, target: str) -> bool:
        """See `Source`."""
        return self.is_cached(version, target)

    def runtime(self, version: str, target: str) -> Runtime:
        """See `Source`."""
        folders = []
        for aar in self._aars(version):
            path = self._repository.file(aar.file("aar"))
            folders.append(self._store.folder(path, self._sha256(path)))
        saids = [said for folder in reversed(folders) if (said := said_by(folder)) is not None]
        build_id = saids[0].build_id if saids else None
        said = SaidVersion(version, build_id)
        return aar_runtime(folders, source=self.name, said=said, target=self._target)

    def damage(self, version: str, target: str) -> list[str]:
        """See `Source`."""
        found = []
        for aar in self._aars(version):
            name = aar.file("aar")
            found += self._repository.damage(name)
            if self._repository.is_cached(name) and not found:
                path = self._repository.file(name)
                found += self._store.damage(self._sha256(path))
        return found

    def _sha256(self, path: Path) -> str:
        return Ledger(self._cache_root, path).hashed({"aar": path})["aar"].sha256

    def _aars(self, version: str) -> Sequence[Coordinates]:
        found = self._all()
        if version not in found:
            raise VersionError(f"{self.origin} has no QNN {version[:80]!r}", choices=found)
        return found[version].aars

    def _all(self) -> dict[str, _Artifacts]:
        if self._found is None:
            try:
                found = self._look()
            except NotThere as error:
                raise ConfigError(
                    f"there is no {self._coordinates}: {error}",
                    field=f"runtimes.{self.name}.coordinates",
                ) from error
            self._found = {version: found[version] for version in sorted(found, key=version_key)}
        return self._found

    def _look(self) -> dict[str, _Artifacts]:
        pinned = self._coordinates.version
        own = [pinned] if pinned else self._repository.versions(self._coordinates)
        newest = sorted(own, key=version_key, reverse=True)
        plain = self._coordinates.artifact == QNN_RUNTIME.partition(":")[2]
        if plain:
            return {one: _Artifacts(one, (self._coordinates.at(one),)) for one in newest}
        found: dict[str, _Artifacts] = {}
        for version in newest[:_MAX_POMS]:
            made = self._with_runtime(self._coordinates.at(version))
            if made is not None:
                found.setdefault(made.version, made)
        if not found:
            raise ConfigError(
                f"{self._coordinates} names no {QNN_RUNTIME} in its POM, so that its QNN is not "
                f"known; take {QNN_RUNTIME} itself, or a folder",
                field=f"runtimes.{self.name}.coordinates",
            )
        return found

    def _with_runtime(self, artifact: Coordinates) -> _Artifacts | None:
        name = artifact.file("pom")
        path = self._repository.file(name)
        try:
            with path.open("rb") as file:
                wanted = pom_dependencies(file.read(_MAX_POM_BYTES))
        except (OSError, ValueError) as error:
            raise InfraError(f"{name}: {error}") from error
        for one in wanted:
            if f"{one.group}:{one.artifact}" == QNN_RUNTIME and one.version:
                return _Artifacts(one.version, (artifact, one))
        return None
