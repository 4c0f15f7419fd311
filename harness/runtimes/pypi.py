"""Runtimes out of the wheels of onnxruntime-qnn: a source that needs no account and no path."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.errors import ConfigError, InfraError, VersionError
from harness.qnn.versions import QNN_WHEELS, QnnVersion
from harness.runtimes.file_sets import LIBRARY_FOLDER, RUNTIME_FOLDER, use_of
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.sealed import SealedFolder
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.wheels import WheelCache, WheelRequest

QNN_PROJECT: Final = "onnxruntime-qnn"
PYPI: Final = "pypi"

# Every Python tag of a QNN wheel holds the same libraries (compared for 2.3.0 to 2.7.0), so that
# one tag, the first that aarch64 has too, serves every host.
_QNN_PYTHON = ("3.12", "cp312")
QNN_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_35_x86_64", "linux-arm64": "manylinux_2_34_aarch64"}
)


def all_versions() -> list[str]:
    """Every QNN version that has a wheel, oldest first (pure)."""
    return sorted(QNN_WHEELS, key=QnnVersion.parse)


class PyPiSource:
    """The QNN versions on a package index; a `Source`."""

    name = PYPI
    origin = f"{QNN_PROJECT} on the package index of pip"

    def __init__(self, wheels: WheelCache, unpacked: UnpackedWheels) -> None:
        self._wheels = wheels
        self._unpacked = unpacked
        self._runtimes: dict[tuple[str, str], Runtime] = {}

    def versions(self, target: str) -> list[str]:
        """See `Source`."""
        return all_versions() if target in QNN_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        """See `Source`."""
        return self._wheels.is_cached(_request(version, target))

    def is_kept(self, version: str, target: str) -> bool:
        """See `Source`."""
        return self._wheels.is_kept(_request(version, target))

    def runtime(self, version: str, target: str) -> Runtime:
        """See `Source`."""
        key = (version, target)
        if key not in self._runtimes:
            folder = self.folder(version, target)
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
                source=PYPI,
            )
        return self._runtimes[key]

    def damage(self, version: str, target: str) -> list[str]:
        """See `Source`."""
        request = _request(version, target)
        return [*self._wheels.damage(request), *self._unpacked.damage(request)]

    def folder(self, version: str, target: str) -> SealedFolder:
        """The unpacked wheel, with what only the host uses. Raises as `runtime`."""
        request = _request(version, target)
        try:
            folder = self._unpacked.folder(request, lambda name: use_of(name) != "none")
        except InfraError as error:
            raise InfraError(f"QNN {version} for {target}: {error}") from error
        said = folder.data["qnn_version"]
        if said != version:
            raise InfraError(f"{folder.path.name} holds QNN {said}, expected {version}")
        return folder


def _request(version: str, target: str) -> WheelRequest:
    if target not in QNN_PLATFORMS:
        raise ConfigError(f"PyPI has no QNN libraries for target {target!r}", choices=QNN_PLATFORMS)
    if version not in QNN_WHEELS:
        raise VersionError(f"unknown QNN version {version!r}", choices=all_versions())
    return WheelRequest(QNN_PROJECT, QNN_WHEELS[version], QNN_PLATFORMS[target], *_QNN_PYTHON)
