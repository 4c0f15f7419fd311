"""ONNX Runtime for a device: any version of the package index, or one at a path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.files import LocalFile
from harness.core.outgoing_text import counted
from harness.core.verified_folder import HashCache
from harness.runtimes.aar import AarStore
from harness.runtimes.local_sources import listed_files, require_inside
from harness.runtimes.pypi import ORT_PROJECT, WheelCache, WheelRequest
from harness.runtimes.runtime import NotOffered, Runtime, kind_of, library_target, read_library
from harness.runtimes.version_specs import choose_all, is_path, split_specs

# Tested versions with a C library in the wheel (from 1.24.1 on), oldest first.
ORT_VERSIONS: Final = (
    *("1.24.1", "1.24.2", "1.24.3", "1.24.4", "1.25.0", "1.25.1", "1.26.0"),
    *("1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.31.1"),
)
ORT_DEVICE_VERSION: Final = "1.26.0"
"""Default ORT of a device: works with every QNN wheel (2.3.0 to 2.7.0)."""

# Every Python tag of a version holds the same C library, so that one tag serves every host.
_ORT_PYTHON: Final = ("3.12", "cp312")
ORT_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_28_x86_64", "linux-arm64": "manylinux_2_28_aarch64"}
)

PLUGIN: Final = "libonnxruntime_providers_qnn.so"
# Files of the QNN wheel that ORT needs besides the runtime: its plug-in, and, if libQnnHtp.so does
# not include it, the compiler, as sessions may have models that are not compiled yet.
BESIDE_ORT: Final = (PLUGIN, "libQnnHtpPrepare.so")

_DEPTH = 4


class OrtLibraries:
    """The ORTs for a target: PyPI's versions, and those at paths of a user.

    An ORT is named by its version; one at a path, by the last part of the path and its version.
    """

    def __init__(self, wheels: WheelCache, cache_root: Path) -> None:
        self._wheels = wheels
        self._cache_root = cache_root
        self._aars = AarStore(cache_root)
        self._by_name: dict[str, tuple[Path, LocalFile]] = {}

    def versions(self, target: str) -> list[str]:
        return list(ORT_VERSIONS) if target in ORT_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        """Return whether a version of PyPI is cached. Raises ConfigError."""
        return self._wheels.is_cached(ort_request(version, target))

    def fetch(self, version: str, target: str) -> LocalFile:
        """Return the library of a PyPI version, fetched if need be. Raises HarnessError."""
        folder = self._wheels.folder(ort_request(version, target), is_ort_library)
        files = list(folder.files.values())
        if len(files) != 1:
            number = counted(len(files), "library", "libraries")
            raise InfraError(f"{folder.path.name} has {number} of ORT, expected 1")
        return files[0]

    def damage(self, version: str, target: str) -> list[str]:
        return self._wheels.damage(ort_request(version, target))

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """Return the names that `spec` means for a target.

        A comma list of exact (1.26.0) and short versions (1.27), ranges (>=1.24,<1.32), `latest`
        and `all`, or a path. Raises ConfigError naming `field` and the choices.
        """
        resolved: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                try:
                    resolved[self._add_path(Path(part).expanduser().absolute(), target)] = None
                except ConfigError as error:
                    raise type(error)(error.problem, field=field) from error
            elif not self.versions(target):
                raise VersionError(
                    f"PyPI has no ONNX Runtime for {target}; give the path of an AAR or a folder",
                    field=field,
                )
            else:
                versions = choose_all(part, ORT_VERSIONS, field=field, product="ORT")
                resolved.update(dict.fromkeys(versions))
        return list(resolved)

    def join(self, runtime: Runtime, name: str | None, more: Iterable[LocalFile] = ()) -> Runtime:
        """Join a QNN runtime and an ORT of `resolve` (None: `ORT_DEVICE_VERSION`).

        `more` are further files of the same QNN (see `BESIDE_ORT`). An ORT of a path needs no
        plug-in: ORT for Android has the QNN provider built in. A runtime with its own ORT stays as
        it is. Raises as `fetch`, and NotOffered for another ORT than the runtime's own, or if there
        is no plug-in for PyPI's ORT, which has no QNN provider built in.
        """
        if name is not None and name in self._by_name:
            _, library = self._by_name[name]
            return joined(runtime, name.rpartition(":")[2], (library, *more))
        if runtime.ort_version is not None:
            if name not in (None, runtime.ort_version):
                raise NotOffered(
                    f"{runtime.name} includes ORT {runtime.ort_version} and cannot be used with "
                    f"ORT {name}",
                    field="ort",
                )
            return runtime
        if not any(PurePosixPath(file.name).name == PLUGIN for file in (*runtime.files, *more)):
            raise NotOffered(
                f"{runtime.name} for {runtime.target} has no {PLUGIN}, which ORT from PyPI needs",
                field="ort",
            )
        chosen = name or ORT_DEVICE_VERSION
        return joined(runtime, chosen, (self.fetch(chosen, runtime.target), *more))

    def _add_path(self, path: Path, target: str) -> str:
        libraries = self._libraries(path)
        if len(libraries) != 1:
            number = counted(len(libraries), "library", "libraries")
            raise ConfigError(f"{path} has {number} of ORT, expected 1")
        ((name, file),) = libraries.items()
        facts = read_library(file, name)
        if facts.ort_version is None:
            raise ConfigError(f"the version of the ORT in {path} cannot be found")
        own_target = library_target([facts])
        if own_target not in (None, target):
            raise VersionError(f"{path} has an ORT for {own_target}, not for {target}")
        hashed = HashCache(self._cache_root, path).hashed(libraries)[name]
        key = f"{path.name.removesuffix('.aar').lower()}:{facts.ort_version}"
        if key in self._by_name and self._by_name[key][0] != path:
            raise ConfigError(f"{path} and {self._by_name[key][0]} have the same name and version")
        name = f"ort/{PurePosixPath(name).name}"
        self._by_name[key] = path, LocalFile(file, name, hashed.size, hashed.sha256)
        return key

    def _libraries(self, path: Path) -> dict[str, Path]:
        if is_aar := path.is_file() and path.suffix.lower() == ".aar":
            files = self._aars.files(path)
        elif path.is_dir():
            files = listed_files(path, "lib", field="--ort", depth=_DEPTH)
        else:
            problem = "is neither a folder nor an AAR" if path.exists() else "does not exist"
            raise ConfigError(f"{path} {problem}")
        libraries = {name: file for name, file in files.items() if kind_of(name)[0] == "ort"}
        return libraries if is_aar else require_inside(libraries, path, field="--ort")


def ort_request(version: str, target: str) -> WheelRequest:
    """Return the wheel of a version. Raises ConfigError for an unknown version or target (pure)."""
    if target not in ORT_PLATFORMS:
        raise ConfigError(f"PyPI has no ORT for target {target!r}", choices=ORT_PLATFORMS)
    if version not in ORT_VERSIONS:
        raise VersionError(f"unknown ORT version {version[:80]!r}", choices=ORT_VERSIONS)
    return WheelRequest(ORT_PROJECT, version, ORT_PLATFORMS[target], *_ORT_PYTHON)


def is_ort_library(name: str) -> bool:
    """Return whether a file of the wheel is ORT's C library (pure)."""
    path = PurePosixPath(name)
    return str(path.parent) == "onnxruntime/capi" and path.name.startswith("libonnxruntime.so")


def joined(runtime: Runtime, version: str, more: Iterable[LocalFile]) -> Runtime:
    """Return a runtime with more files, among them ORT's library of this version (pure)."""
    files = {file.name: file for file in (*runtime.files, *more)}
    return replace(runtime, files=tuple(files[name] for name in sorted(files)), ort_version=version)


def ort_library_of(runtime: Runtime) -> str:
    """Return the name of ORT's C library in a runtime. Raises ConfigError if it has none (pure)."""
    for name in (PurePosixPath(file.name).name for file in runtime.files):
        if name.startswith("libonnxruntime.so"):
            return name
    raise VersionError(f"{runtime.name} for {runtime.target} has no ORT")
