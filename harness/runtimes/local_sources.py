"""Runtimes on the user's own disk: QAIRT SDK trees, and plain folders of libraries.

Files stay where they are; a cache of hashes detects changes. The layout of a tree is that of the
QAIRT docs: lib/<target>, lib/hexagon-vXX/unsigned. The installer makes a folder with one tree per
version.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from harness.core.errors import ConfigError, VersionError
from harness.core.files import LocalFile
from harness.core.paths_inside import read_inside, stays_inside
from harness.core.verified_folder import HashCache, valid_name
from harness.core.versions import QnnVersion
from harness.runtimes.runtime import (
    BUILD_KINDS,
    LibrarySource,
    Runtime,
    build_id_of,
    is_device_file,
    is_library,
    kind_of,
    library_target,
    read_library,
    short_version,
    version_key,
)

MAX_FILES: Final = 2000
_DEPTH = 4
SDK_VARIABLES: Final = ("QAIRT_SDK_ROOT", "QNN_SDK_ROOT")
# From the docs' table of folders; where a target has several, the newest compiler is taken.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "android-arm64": (r"aarch64-android",),
        "linux-arm64": (r"aarch64-oe-linux-gcc[\d.]+", r"aarch64-ubuntu-gcc[\d.]+"),
        "linux-x64": (r"x86_64-linux-clang",),
    }
)
SDK_TARGETS: Final = tuple(_FOLDERS)
_IN_TREE: Final = re.compile(
    r"((?:[^/]+/){0,2}?)(lib/([^/]+)/(?:unsigned/)?[^/]+|[^/]+|include/.+)"
)
_HEXAGON = re.compile(r"hexagon-v(\d\d)", re.ASCII)
# "v2.28.2.241116104011_103376", as in logs. sdk.yaml may have the version without the build; ONNX
# Runtime's build takes it from there (setup.py, parse_qnn_version_from_sdk_yaml).
_VERSION_FILES: Final = {
    "include/QNN/QnnSdkBuildId.h": re.compile(r"QNN_SDK_BUILD_ID\s+\"v?(\d[\w.]{0,60})\""),
    "sdk.yaml": re.compile(r"^version:\s*[\"']?v?(\d[\w.]{0,60})[\"']?\s*(?:#.*)?$", re.MULTILINE),
}
_MAX_TEXT_BYTES = 64 << 10
_MAX_SDKS = 200


def local_runtime(
    files: Mapping[str, Path], hashes: HashCache, source: str, version: str, target: str, root: Path
) -> Runtime:
    """Return a runtime of files that stay where they are, by name. Raises InfraError."""
    hashed = hashes.hashed(files)
    local_files = []
    for name, path in sorted(files.items()):
        mode = 0o644 if is_library(name) else 0o755
        local_files.append(LocalFile(path, name, hashed[name].size, hashed[name].sha256, mode))
    ort = next((name for name in files if kind_of(name)[0] == "ort"), None)
    ort_version = None if ort is None else read_library(files[ort], ort).ort_version
    return Runtime(version, target, root, tuple(local_files), source, ort_version)


def listed_files(folder: Path, prefix: str, *, field: str, depth: int = 1) -> dict[str, Path]:
    """Return {prefix/relative name: path} of the files below a folder; raises ConfigError."""
    listed: dict[str, Path] = {}
    try:
        for root, folders, files in os.walk(folder, followlinks=False):
            below = Path(root).relative_to(folder)
            if len(below.parts) >= depth - 1:
                folders.clear()
            folders.sort()
            for file in sorted(files):
                path = Path(root) / file
                name = (PurePosixPath(prefix) / below.as_posix() / file).as_posix()
                if path.is_file() and valid_name(name):
                    listed[name] = path
            if len(listed) > MAX_FILES:
                problem = f"{folder} has more than {MAX_FILES} files; name the folder of libraries"
                raise ConfigError(problem, field=field)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}", field=field) from error
    return listed


def require_inside(files: Mapping[str, Path], root: Path, *, field: str) -> dict[str, Path]:
    """Return files found below a folder; raises ConfigError if a link leads out of it."""
    for path in files.values():
        try:
            inside = stays_inside(root, path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", field=field) from error
        if not inside:
            problem = f"a link in the path {path} leads outside of {root}; "
            raise ConfigError(f"{problem}put the file itself there", field=field)
    return dict(files)


@dataclass(eq=False)
class FolderSource(LibrarySource):
    """One folder with libraries for one target.

    Version and target are those of the libraries, unless they are given. Every library below it
    belongs to the runtime, even if it is not one of QNN.
    """

    name: str
    path: Path
    cache_root: Path
    version: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        self.origin = str(self.path)
        self._hashes = HashCache(self.cache_root, self.path)

    def versions(self, target: str) -> list[str]:
        version, own_target = self._version_and_target
        return [version] if target == own_target else []

    def runtime(self, version: str, target: str) -> Runtime:
        if (version, target) != self._version_and_target:
            only = " for ".join(self._version_and_target)
            raise VersionError(f"{self.path} has only QNN {only}")
        return local_runtime(self._files(), self._hashes, self.name, version, target, self.path)

    def damage(self, version: str, target: str) -> list[str]:
        return self._hashes.changed(self._files())

    @cached_property
    def _version_and_target(self) -> tuple[str, str]:
        files = {n: path for n, path in self._files().items() if kind_of(n)[0] in BUILD_KINDS}
        facts = [read_library(path, name) for name, path in files.items()]
        version = short_version(named := self.version or build_id_of(facts) or "")
        if named and version is None:
            problem = f"{named[:80]!r} is not a QNN version, as in 2.31.0 or 2.31.0.250130"
            raise ConfigError(problem, field=f"runtimes.{self.name}.version")
        target = self.target or library_target(facts)
        if version is None or target is None:
            name, field = ("QNN version", "version") if version is None else ("target", "target")
            raise ConfigError(
                f"the libraries in {self.path} do not state their {name}; add it to "
                f"`runtimes` of devices.yaml with a `{field}`",
                field=f"runtimes.{self.name}.{field}",
            )
        return version, target

    def _files(self) -> dict[str, Path]:
        field = f"runtimes.{self.name}.path"
        if not self.path.is_dir():
            raise ConfigError(f"{self.path} is not a folder", field=field)
        listed = listed_files(self.path, "lib", field=field, depth=_DEPTH)
        files = {
            name: path for name, path in listed.items() if is_library(name) or is_device_file(name)
        }
        if not files:
            raise ConfigError(f"{self.path} has no libraries", field=field)
        return require_inside(files, self.path, field=field)


@dataclass(eq=False)
class SdkSource(LibrarySource):
    """QAIRT trees on this computer.

    `path` is a tree or a folder of trees. `toolchain` chooses among several folders for one target
    by name (aarch64-oe-linux-gcc9.3). `field` names the path in errors, by default in devices.yaml.
    """

    name: str
    path: Path
    cache_root: Path
    toolchain: str | None = None
    field: str | None = None

    def __post_init__(self) -> None:
        self.origin = str(self.path)
        self._field = self.field or f"runtimes.{self.name}.path"

    def versions(self, target: str) -> list[str]:
        return [version for version in self._all if self._folder(version, target)]

    def runtime(self, version: str, target: str) -> Runtime:
        root = self._all[version]
        files, hashes = self._files(version, target), HashCache(self.cache_root, root)
        return local_runtime(files, hashes, self.name, version, target, root)

    def damage(self, version: str, target: str) -> list[str]:
        return HashCache(self.cache_root, self._all[version]).changed(self._files(version, target))

    @cached_property
    def _all(self) -> dict[str, Path]:
        by_version: dict[str, Path] = {}
        path, trees = self.path, sdks_in(self.path)
        if not trees:
            why = "is not a folder"
            if path.is_dir():
                why = "is not a QAIRT SDK: it has no lib/aarch64-android or the like"
            raise ConfigError(f"{path} {why}", field=self._field)
        for root in trees:
            if (version := sdk_version(root)) is None:
                problem = f"{root} has no version in {' or '.join(_VERSION_FILES)}"
                problem += "; name its lib folders as `kind: folder`"
                raise ConfigError(problem, field=self._field)
            by_version.setdefault(version, root)
        return {version: by_version[version] for version in sorted(by_version, key=version_key)}

    def _folder(self, version: str, target: str) -> str | None:
        root = self._all[version]
        folder = target_folder(folders_in(root / "lib"), target, self.toolchain)
        return folder if folder and any((root / "lib" / folder).glob("libQnn*.so")) else None

    def _files(self, version: str, target: str) -> dict[str, Path]:
        root = self._all[version]
        folder = self._folder(version, target)
        if folder is None:
            raise VersionError(f"{root} has no libraries for {target}")
        files = listed_files(root / "lib" / folder, "lib", field=self._field)
        for name in folders_in(root / "lib"):
            if arch := _HEXAGON.fullmatch(name):
                # A folder for v73 has libraries for v73 only; the DSP needs its skel.
                skel = f"libQnnHtpV{arch[1]}Skel.so"
                path = root / "lib" / name / "unsigned" / skel
                if path.is_file():
                    files[f"lib/{skel}"] = path
        device_files = {name: path for name, path in files.items() if is_device_file(name)}
        return require_inside(device_files, root, field=self._field)


def sdk_of_environment(environment: Mapping[str, str]) -> tuple[str, Path] | None:
    """Return QAIRT_SDK_ROOT, else QNN_SDK_ROOT: the variable's name and its path (pure)."""
    named = (variable for variable in SDK_VARIABLES if environment.get(variable))
    return next(((variable, Path(environment[variable])) for variable in named), None)


def sdks_in(path: Path) -> list[Path]:
    """Return the folder if it looks like a QAIRT tree, else such folders right inside it."""

    def is_sdk(folder: Path) -> bool:
        names = folders_in(folder / "lib")
        return any(target_folder(names, target, None) for target in _FOLDERS)

    inside = (path / name for name in folders_in(path)[:_MAX_SDKS])
    return [path] if is_sdk(path) else [folder for folder in inside if is_sdk(folder)]


def target_folder(names: list[str], target: str, toolchain: str | None) -> str | None:
    """Return the folder in lib/ for a target, that of the newest compiler (pure)."""
    for pattern in _FOLDERS.get(target, ()):
        fitting = [name for name in names if re.fullmatch(pattern, name, re.ASCII)]
        if toolchain is not None and re.fullmatch(pattern, toolchain, re.ASCII):
            return toolchain if toolchain in fitting else None
        if fitting:
            return max(fitting, key=_compiler_key)
    return None


def sdk_files(names: Iterable[str], target: str) -> tuple[str, frozenset[str]]:
    """Return the root of the tree in an archive, and its files for a target, if any (pure)."""
    matches = [match for name in names if (match := _IN_TREE.fullmatch(name))]
    libraries = [match for match in matches if match[3] and "/libQnn" in match[2]]
    folder = target_folder(sorted({match[3] for match in libraries}), target, None)
    tree = next((match[1] for match in libraries if match[3] == folder), "")
    files = {
        name
        for name, root, path, place in (match.group(0, 1, 2, 3) for match in matches)
        if root == tree and (path in _VERSION_FILES or (place and is_device_file(path)))
        if place in (None, folder) or _HEXAGON.fullmatch(place)
    }
    return tree, frozenset(files if folder else ())


def _compiler_key(name: str) -> tuple[int, ...]:
    digits = re.sub(r"\D+", ".", name.rpartition("gcc")[2]).strip(".")
    return QnnVersion.parse(digits).parts if digits else ()


def sdk_version(root: Path) -> str | None:
    """Return the version in the files of an SDK."""
    for name, pattern in _VERSION_FILES.items():
        with contextlib.suppress(OSError):
            text = read_inside(root, name, _MAX_TEXT_BYTES).decode("utf-8", "replace")
            if (match := pattern.search(text)) and (version := short_version(match[1])):
                return version
    return None


def folders_in(path: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted; none if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []
