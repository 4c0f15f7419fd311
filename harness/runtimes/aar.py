"""Runtimes out of AAR files: zip archives with the libraries of Android in jni/arm64-v8a."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.errors import ConfigError, InfraError, VersionError
from harness.runtimes.archive import names_of, unpack
from harness.runtimes.ledger import Ledger
from harness.runtimes.local_tree import is_library, ort_version_of, telling_facts
from harness.runtimes.notices import Say
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.said_versions import SaidVersion, given_version, library_version
from harness.runtimes.sealed import (
    SealedFolder,
    damage_of,
    publish,
    seal,
    sealed_once,
    sha256_of,
    work_folder,
)

AAR_TARGET: Final = "android-arm64"
JNI_FOLDER: Final = "jni/arm64-v8a"
_LAYOUT: Final = 1
_TIMEOUT_S: Final = 300.0


class AarStore:
    """AARs unpacked below the cache, by their sha256; `warn` hears of folders that were changed."""

    def __init__(self, cache_root: Path, *, notify: Say, warn: Say) -> None:
        self._root = cache_root / "aars"
        self._notify = notify
        self._warn = warn

    def folder(self, aar: Path, sha256: str) -> SealedFolder:
        """The libraries of an AAR; `data` has its `version` and `build_id` where they say it.

        Raises InfraError if it is damaged, or holds nothing for Android on arm64.
        """
        folder = self._folder(sha256)
        facts = {"layout": _LAYOUT, "aar": sha256}
        return sealed_once(
            folder,
            facts,
            lambda: _unpack(aar, sha256, folder, facts),
            what=aar.name,
            timeout_s=_TIMEOUT_S,
            notify=self._notify,
            warn=self._warn,
        )

    def damage(self, sha256: str) -> list[str]:
        """What of an AAR's files in the cache is not as it was unpacked, every byte read."""
        folder = self._folder(sha256)
        return [f"{folder.name}: {damage}" for damage in damage_of(folder)]

    def _folder(self, sha256: str) -> Path:
        return self._root / sha256[:32]


class AarSource:
    """One AAR file on this computer; a `Source`."""

    def __init__(
        self,
        name: str,
        path: Path,
        cache_root: Path,
        *,
        version: str | None = None,
        target: str = AAR_TARGET,
        notify: Say,
        warn: Say,
    ) -> None:
        self.name = name
        self._target = target
        self.origin = str(path)
        self._path = path
        self._version = version
        self._ledger = Ledger(cache_root, path)
        self._store = AarStore(cache_root, notify=notify, warn=warn)

    def versions(self, target: str) -> list[str]:
        """See `Source`."""
        return [self._said()[1].version] if target == self._target else []

    def is_cached(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def is_kept(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def runtime(self, version: str, target: str) -> Runtime:
        """See `Source`."""
        folder, said = self._said()
        if (version, target) != (said.version, self._target):
            raise VersionError(f"{self._path} has QNN {said.version} for {self._target} only")
        return aar_runtime([folder], source=self.name, said=said, target=target)

    def damage(self, version: str, target: str) -> list[str]:
        """See `Source`: of the file, and of what was unpacked of it."""
        files = {self._path.name: self._path}
        found = self._ledger.changed(files)
        return [*found, *self._store.damage(self._ledger.hashed(files)[self._path.name].sha256)]

    def _said(self) -> tuple[SealedFolder, SaidVersion]:
        field = f"runtimes.{self.name}"
        if not self._path.is_file():
            raise ConfigError(f"{self._path} is no file", field=f"{field}.path")
        sha256 = self._ledger.hashed({"aar": self._path})["aar"].sha256
        try:
            folder = self._store.folder(self._path, sha256)
        except InfraError as error:
            # it is the user's own file that is no use
            raise ConfigError(str(error), field=f"{field}.path") from error
        said = (
            given_version(self._version, f"{field}.version") if self._version else said_by(folder)
        )
        if said is None:
            raise ConfigError(
                f"the libraries in {self._path} do not tell their QNN version; name it",
                field=f"{field}.version",
            )
        return folder, said


def aar_runtime(
    folders: Sequence[SealedFolder], *, source: str, said: SaidVersion, target: str
) -> Runtime:
    """A runtime of the libraries of one or more unpacked AARs; of two equal names the first."""
    files: dict[str, RuntimeFile] = {}
    for folder in folders:
        for name, file in sorted(folder.files.items()):
            files.setdefault(name, RuntimeFile(file.path, name, file.size, file.sha256))
    made = tuple(files[name] for name in sorted(files))
    return Runtime(
        qnn_version=said.version,
        build_id=said.build_id,
        target=target,
        key=content_key((file.name, file.sha256, file.mode) for file in made),
        root=folders[0].path,
        files=made,
        library_dirs=(JNI_FOLDER,),
        source=source,
        ort_version=next(
            (str(one.data["ort_version"]) for one in folders if one.data.get("ort_version")), None
        ),
    )


def said_by(folder: SealedFolder) -> SaidVersion | None:
    """The QNN version that the libraries of an unpacked AAR say."""
    version, build_id = folder.data.get("version"), folder.data.get("build_id")
    if not version:
        return None
    return SaidVersion(str(version), None if build_id is None else str(build_id))


def _unpack(aar: Path, sha256: str, folder: Path, facts: dict[str, Any]) -> None:
    wanted = {
        name
        for name in names_of(aar)
        if name.startswith(f"{JNI_FOLDER}/") and name.count("/") == 2 and is_library(name)
    }
    if not wanted:
        raise InfraError(f"{aar.name} has no libraries in {JNI_FOLDER}")
    with work_folder(folder.parent) as work:
        # What is unpacked has to be what was hashed, also if the file is replaced meanwhile.
        if sha256_of(aar) != sha256:
            raise InfraError(f"{aar.name} changed while it was being read")
        unfinished = work / "unpacked"
        unfinished.mkdir()
        files = unpack(aar, unfinished, wanted.__contains__)
        paths = {file.name: unfinished / file.name for file in files}
        said = library_version(telling_facts(paths))
        data: dict[str, Any] = {
            "name": aar.name,
            "version": said.version if said else None,
            "build_id": said.build_id if said else None,
            "ort_version": ort_version_of(paths),
        }
        seal(unfinished, facts, data, {file.name: file.sha256 for file in files})
        publish(unfinished, folder)
