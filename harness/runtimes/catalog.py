"""The QNN runtimes that can be had, by version and target, with every file's hash."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.errors import ConfigError, InfraError
from harness.qnn.versions import QNN_WHEELS, QnnVersion
from harness.runtimes.file_sets import LIBRARY_FOLDER, RUNTIME_FOLDER, use_of
from harness.runtimes.notices import Say, on_stderr, on_terminal
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.sealed import SealedFolder
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.wheels import WheelCache, WheelRequest

__all__ = ["Catalog", "CompilerHost", "Runtime", "RuntimeFile", "content_key"]

QNN_PROJECT: Final = "onnxruntime-qnn"
ORT_PROJECT: Final = "onnxruntime"
ORT_HOST_VERSION: Final = "1.26.0"
"""The ORT that compiles contexts: works with the QNN wheels 2.3.0 to 2.7.0 (tested for each).

Not every pair that pip accepts does: 1.31.1 does not register the plug-in of 2.3.0.
"""

# Every Python tag of a QNN wheel holds the same libraries (compared for 2.3.0 to 2.7.0), so that
# one tag, the first that aarch64 has too, serves every host.
_QNN_PYTHON = ("3.12", "cp312")
_QNN_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_35_x86_64", "linux-arm64": "manylinux_2_34_aarch64"}
)
_ORT_PLATFORM = "manylinux_2_28_x86_64"


@dataclass(frozen=True)
class CompilerHost:
    """What compiles contexts on this computer: one ORT, and the QNN that does the work.

    `ort_root` and `qnn_root` are folders for PYTHONPATH.
    """

    qnn_version: str
    ort_version: str
    ort_root: Path
    qnn_root: Path

    @property
    def backend(self) -> Path:
        """The HTP library that holds the compiler."""
        return self.qnn_root / LIBRARY_FOLDER / "libQnnHtp.so"

    @property
    def system_library(self) -> Path:
        """The library that reads the metadata of contexts."""
        return self.qnn_root / LIBRARY_FOLDER / "libQnnSystem.so"

    @property
    def plugin(self) -> Path:
        """The library that ORT registers as execution provider."""
        return self.qnn_root / LIBRARY_FOLDER / "libonnxruntime_providers_qnn.so"


class Catalog:
    """Runtimes by version, fetched from PyPI wheels on first use and kept below the cache.

    `notify` gets progress, `warn` what must be seen even in a pipe (a damaged cache).
    """

    def __init__(
        self, cache_root: Path, *, notify: Say = on_terminal, warn: Say = on_stderr
    ) -> None:
        self.notify = notify
        self.warn = warn
        self._wheels = WheelCache(cache_root / "wheels", notify=notify, warn=warn)
        self._unpacked = UnpackedWheels(
            cache_root / "unpacked", self._wheels, notify=notify, warn=warn
        )
        self._runtimes: dict[tuple[str, str], Runtime] = {}
        self._hosts: dict[str, CompilerHost] = {}

    def versions(self, target: str) -> list[str]:
        """The QNN versions there are for a target, oldest first.

        Raises ConfigError for a target that has no source of libraries yet.
        """
        _platform_of(target)
        return all_versions()

    def resolve(self, spec: str, target: str) -> list[str]:
        """The versions that `spec` means for a target; see `resolve_versions`."""
        _platform_of(target)
        return resolve_versions(spec)

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a runtime can be had without fetching anything. Raises ConfigError."""
        return self._wheels.is_cached(_qnn_request(version, target))

    def runtime(self, version: str, target: str) -> Runtime:
        """The runtime of an exact version, fetched and unpacked if need be, and checked.

        Raises ConfigError for an unknown version or target, InfraError if it cannot be fetched or
        is not what it should be.
        """
        key = (version, target)
        if key not in self._runtimes:
            folder = self._qnn_folder(version, target)
            files = tuple(
                RuntimeFile(file.path, name, file.size, file.sha256)
                for name, file in sorted(folder.files.items())
                if use_of(name) == "device"
            )
            self._runtimes[key] = Runtime(
                qnn_version=version,
                build_id=None,
                target=target,
                key=content_key((file.name, file.sha256, file.mode) for file in files),
                root=folder.path,
                files=files,
                library_dirs=tuple(
                    name
                    for name in (LIBRARY_FOLDER, RUNTIME_FOLDER)
                    if any(file.name.startswith(f"{name}/") for file in files)
                ),
            )
        return self._runtimes[key]

    def compiler_host(self, version: str) -> CompilerHost:
        """What compiles contexts with an exact QNN version on this computer.

        Raises ConfigError for an unknown version, InfraError if it cannot be fetched or if this
        computer is not one that compiles (x86-64 Linux).
        """
        if version not in self._hosts:
            if sys.platform != "linux" or platform.machine() != "x86_64":
                raise InfraError(
                    "contexts are compiled on x86-64 Linux only, and this computer is "
                    f"{sys.platform} {platform.machine()}"
                )
            self._hosts[version] = CompilerHost(
                qnn_version=version,
                ort_version=ORT_HOST_VERSION,
                ort_root=self._ort_folder().path,
                qnn_root=self._qnn_folder(version, "linux-x64").path,
            )
        return self._hosts[version]

    def _qnn_folder(self, version: str, target: str) -> SealedFolder:
        request = _qnn_request(version, target)
        try:
            folder = self._unpacked.folder(request, lambda name: use_of(name) != "none")
        except InfraError as error:
            raise InfraError(f"QNN {version} for {target}: {error}") from error
        said = folder.data["qnn_version"]
        if said != version:
            raise InfraError(f"{folder.path.name} holds QNN {said}, expected {version}")
        return folder

    def _ort_folder(self) -> SealedFolder:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        abi = f"cp{version.replace('.', '')}{sys.abiflags}"
        request = WheelRequest(ORT_PROJECT, ORT_HOST_VERSION, _ORT_PLATFORM, version, abi)
        return self._unpacked.folder(request, lambda name: name.startswith("onnxruntime/"))


def all_versions() -> list[str]:
    """Every QNN version that has a wheel, oldest first (pure)."""
    return sorted(QNN_WHEELS, key=QnnVersion.parse)


def resolve_versions(spec: str, *, field: str | None = None) -> list[str]:
    """The exact QNN versions that a user's `spec` means, in its order, none twice (pure).

    A comma list of versions (2.51.0), short forms that fit only one (2.48 for 2.48.40), `latest`
    and `all` (oldest first). Raises ConfigError naming `field` and the choices for anything else.
    """
    known = all_versions()
    found: dict[str, None] = {}
    for part in spec.split(","):
        found.update(dict.fromkeys(_versions_of(part.strip(), known, field)))
    return list(found)


def _versions_of(part: str, known: list[str], field: str | None) -> list[str]:
    if part == "latest":
        return known[-1:]
    if part == "all":
        return known
    choices = [*known, "latest", "all"]
    try:
        short = QnnVersion.parse(part)
    except ConfigError as error:
        raise ConfigError(
            f"unknown QNN version {part[:80]!r}", field=field, choices=choices
        ) from error
    matching = [version for version in known if QnnVersion.parse(version).matches(short)]
    if not matching:
        raise ConfigError(f"unknown QNN version {part!r}", field=field, choices=choices)
    if len(matching) > 1:
        raise ConfigError(
            f"{part!r} fits several QNN versions", field=field, choices=[*matching, "latest", "all"]
        )
    return matching


def _platform_of(target: str) -> str:
    if target not in _QNN_PLATFORMS:
        raise ConfigError(
            f"there is no source of QNN libraries for target {target!r}", choices=_QNN_PLATFORMS
        )
    return _QNN_PLATFORMS[target]


def _qnn_request(version: str, target: str) -> WheelRequest:
    tag = _platform_of(target)
    if version not in QNN_WHEELS:
        raise ConfigError(f"unknown QNN version {version!r}", choices=all_versions())
    return WheelRequest(QNN_PROJECT, QNN_WHEELS[version], tag, *_QNN_PYTHON)
