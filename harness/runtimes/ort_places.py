"""ONNX Runtimes by what users write: a version of the package index, or the path of another one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from harness.errors import ConfigError, VersionError
from harness.runtimes.aar import JNI_FOLDER, AarStore
from harness.runtimes.ledger import Ledger
from harness.runtimes.library_facts import kind_of, read_library
from harness.runtimes.local_tree import listed_files
from harness.runtimes.notices import Say
from harness.runtimes.ort_wheels import PLACE_FOLDER, OrtWheels, joined, resolve_ort
from harness.runtimes.runtime import Runtime, RuntimeFile
from harness.runtimes.said_versions import library_target
from harness.runtimes.version_specs import is_path, split_specs

_DEPTH = 4


class OrtPlaces:
    """Every ORT that there is for a target: PyPI's versions, and those that were named by a path.

    An ORT is called by its version, one of a path by the last part of that and its version.
    """

    def __init__(self, wheels: OrtWheels, cache_root: Path, *, notify: Say, warn: Say) -> None:
        self._wheels = wheels
        self._cache_root = cache_root
        self._aars = AarStore(cache_root, notify=notify, warn=warn)
        self._own: dict[str, tuple[Path, str, RuntimeFile]] = {}

    def versions(self, target: str) -> list[str]:
        """PyPI's versions for a target, oldest first."""
        return self._wheels.versions(target)

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a version of PyPI's needs no network. Raises ConfigError."""
        return self._wheels.is_cached(version, target)

    def fetch(self, version: str, target: str) -> RuntimeFile:
        """The library of a version of PyPI's; raises as `OrtWheels.library`."""
        return self._wheels.library(version, target)

    def damage(self, version: str, target: str) -> list[str]:
        """What of a version of PyPI's is not as it was kept; raises as `OrtWheels.damage`."""
        return self._wheels.damage(version, target)

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """The names that `spec` means for a target: versions as for `resolve_ort`, or a path.

        Raises ConfigError naming `field` and the choices.
        """
        found: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                try:
                    found[self._at(Path(part).expanduser().absolute(), target)] = None
                except ConfigError as error:
                    raise type(error)(error.problem, field=field) from error
            elif not self.versions(target):
                raise VersionError(
                    f"PyPI has no ONNX Runtime for {target}; give the path of an AAR or a folder",
                    field=field,
                )
            else:
                found.update(dict.fromkeys(resolve_ort(part, field=field)))
        return list(found)

    def join(
        self, runtime: Runtime, name: str | None, beside: tuple[RuntimeFile, ...] = ()
    ) -> Runtime:
        """A QNN runtime and an ORT as one; see `OrtWheels.join`.

        One of a path needs no plug-in: ORT for Android has the QNN provider built in.
        """
        if name is not None and name in self._own:
            _, _, library = self._own[name]
            return joined(runtime, name.rpartition(":")[2], (library, *beside))
        return self._wheels.join(runtime, name, beside)

    def _at(self, path: Path, target: str) -> str:
        files = self._files(path)
        libraries = {name: file for name, file in files.items() if kind_of(name)[0] == "ort"}
        if len(libraries) != 1:
            raise ConfigError(f"{path} holds {len(libraries)} libraries of ORT, expected one")
        ((name, file),) = libraries.items()
        facts = read_library(file, name)
        if facts.ort_version is None:
            raise ConfigError(f"{path} does not say which version of ORT it is")
        own_target = library_target([facts])
        if own_target not in (None, target):
            raise VersionError(f"{path} has an ORT for {own_target}, not for {target}")
        hashed = Ledger(self._cache_root, path).hashed(libraries)[name]
        found = f"{path.name.removesuffix('.aar').lower()}:{facts.ort_version}"
        if found in self._own and self._own[found][0] != path:
            raise ConfigError(f"{path} and {self._own[found][0]} have the same name and version")
        made = RuntimeFile(
            file, f"{PLACE_FOLDER}/{PurePosixPath(name).name}", hashed.size, hashed.sha256
        )
        self._own[found] = path, target, made
        return found

    def _files(self, path: Path) -> dict[str, Path]:
        if path.is_file() and path.suffix.lower() == ".aar":
            sha256 = Ledger(self._cache_root, path).hashed({"aar": path})["aar"].sha256
            folder = self._aars.folder(path, sha256)
            return {name: file.path for name, file in folder.files.items() if JNI_FOLDER in name}
        if not path.is_dir():
            what = "is neither a folder nor an AAR" if path.exists() else "does not exist"
            raise ConfigError(f"{path} {what}")
        return listed_files(path, "lib", field="--ort", depth=_DEPTH)
