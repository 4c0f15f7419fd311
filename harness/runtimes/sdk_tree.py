"""Runtimes out of QAIRT SDK trees: one, or a folder with one per version as the installer makes it.

The layout is that of the QAIRT docs: lib/<target>, lib/hexagon-vXX/unsigned, bin/<target>.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.errors import ConfigError, VersionError
from harness.qnn.versions import QnnVersion
from harness.runtimes.device_sets import is_device_file
from harness.runtimes.ledger import Ledger
from harness.runtimes.local_tree import listed_files, local_runtime, telling_facts
from harness.runtimes.runtime import Runtime
from harness.runtimes.said_versions import SaidVersion, library_version, sdk_version
from harness.runtimes.source import version_key

SDK_VARIABLES: Final = ("QAIRT_SDK_ROOT", "QNN_SDK_ROOT")

# From the docs' table of folders; where a target has several, the newest compiler is taken.
_FOLDERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "android-arm64": (r"aarch64-android",),
        "linux-arm64": (r"aarch64-oe-linux-gcc[\d.]+", r"aarch64-ubuntu-gcc[\d.]+"),
        "linux-x64": (r"x86_64-linux-clang",),
    }
)
_HEXAGON = re.compile(r"hexagon-v(\d\d)", re.ASCII)
_MAX_TEXT_BYTES = 64 << 10
_MAX_SDKS = 200


class SdkSource:
    """QAIRT trees on this computer; a `Source`.

    `path` is a tree or a folder of trees. `toolchain` chooses among several folders for one target
    by name (aarch64-oe-linux-gcc9.3).
    """

    def __init__(
        self,
        name: str,
        path: Path,
        cache_root: Path,
        *,
        toolchain: str | None = None,
        field: str | None = None,
    ) -> None:
        """`field` is what errors call the path, by default that of `runtimes` in devices.yaml."""
        self.name = name
        self._field = field or f"runtimes.{name}.path"
        self.origin = str(path)
        self._path = path
        self._toolchain = toolchain
        self._cache_root = cache_root
        self._trees: dict[str, tuple[Path, SaidVersion]] | None = None

    def versions(self, target: str) -> list[str]:
        """See `Source`."""
        return [version for version in self._all() if self._folder(version, target)]

    def is_cached(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def is_kept(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def runtime(self, version: str, target: str) -> Runtime:
        """See `Source`."""
        root, said = self._all()[version]
        return local_runtime(
            self._files(version, target),
            Ledger(self._cache_root, root),
            source=self.name,
            said=said,
            target=target,
            root=root,
        )

    def damage(self, version: str, target: str) -> list[str]:
        """See `Source`: what differs from when it was last used."""
        root, _ = self._all()[version]
        return Ledger(self._cache_root, root).changed(self._files(version, target))

    def _all(self) -> dict[str, tuple[Path, SaidVersion]]:
        if self._trees is None:
            found: dict[str, tuple[Path, SaidVersion]] = {}
            for root in _trees(self._path, self._field):
                said = _version_of(root, self._field)
                found.setdefault(said.version, (root, said))
            self._trees = {version: found[version] for version in sorted(found, key=version_key)}
        return self._trees

    def _folder(self, version: str, target: str) -> str | None:
        root, _ = self._all()[version]
        folder = target_folder(_folders(root / "lib"), target, self._toolchain)
        return folder if folder and any((root / "lib" / folder).glob("libQnn*.so")) else None

    def _files(self, version: str, target: str) -> dict[str, Path]:
        root, _ = self._all()[version]
        folder = self._folder(version, target)
        if folder is None:
            raise VersionError(f"{root} has no libraries for {target}")
        field = self._field
        files = listed_files(root / "lib" / folder, "lib", field=field)
        for name in _folders(root / "lib"):
            if arch := _HEXAGON.fullmatch(name):
                # A folder for v73 has libraries for v73 only; the DSP wants its skel.
                skel = f"libQnnHtpV{arch[1]}Skel.so"
                path = root / "lib" / name / "unsigned" / skel
                if path.is_file():
                    files[f"lib/{skel}"] = path
        if (root / "bin" / folder).is_dir():
            files |= listed_files(root / "bin" / folder, "bin", field=field)
        return {name: path for name, path in files.items() if is_device_file(name)}


def sdk_of_environment(environment: Mapping[str, str]) -> tuple[str, Path] | None:
    """The tree that QAIRT_SDK_ROOT names, else QNN_SDK_ROOT, and which of them does (pure)."""
    for variable in SDK_VARIABLES:
        if environment.get(variable):
            return variable, Path(environment[variable])
    return None


def holds_sdk(path: Path) -> bool:
    """Whether a folder looks like a QAIRT tree, or has some right inside it."""
    return is_sdk(path) or any(is_sdk(path / name) for name in _folders(path)[:_MAX_SDKS])


def is_sdk(path: Path) -> bool:
    """Whether a folder looks like a QAIRT tree."""
    names = _folders(path / "lib")
    return any(target_folder(names, target, None) for target in _FOLDERS)


def target_folder(names: list[str], target: str, toolchain: str | None) -> str | None:
    """Which of the folders in lib/ is for a target; that of the newest compiler (pure)."""
    for pattern in _FOLDERS.get(target, ()):
        fitting = [name for name in names if re.fullmatch(pattern, name, re.ASCII)]
        if toolchain is not None and re.fullmatch(pattern, toolchain, re.ASCII):
            return toolchain if toolchain in fitting else None
        if fitting:
            return max(fitting, key=_compiler_key)
    return None


def _compiler_key(name: str) -> tuple[int, ...]:
    digits = re.sub(r"\D+", ".", name.rpartition("gcc")[2]).strip(".")
    return QnnVersion.parse(digits).parts if digits else ()


def _trees(path: Path, field: str) -> list[Path]:
    if is_sdk(path):
        return [path]
    inside = [path / name for name in _folders(path)[:_MAX_SDKS]]
    found = [folder for folder in inside if is_sdk(folder)]
    if not found:
        what = "is no QAIRT SDK: it has no lib/aarch64-android or the like"
        raise ConfigError(f"{path} {what if path.is_dir() else 'is not a folder'}", field=field)
    return found


def _version_of(root: Path, field: str) -> SaidVersion:
    said = sdk_version(
        _text(root / "sdk.yaml"), _text(root / "include/QNN/QnnSdkBuildId.h"), root.name
    )
    if said is not None:
        return said
    names = _folders(root / "lib")
    for target in _FOLDERS:
        folder = target_folder(names, target, None)
        if folder is not None:
            files = listed_files(root / "lib" / folder, "lib", field=field)
            said = library_version(telling_facts(files))
            if said is not None:
                return said
    raise ConfigError(f"{root} does not say which version it is", field=field)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(entry.name for entry in found if entry.is_dir())
    except OSError:
        return []
