"""ONNX Runtime for a device, out of the wheels of onnxruntime: any version, beside any QNN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from harness.errors import ConfigError, InfraError, VersionError
from harness.runtimes.file_sets import LIBRARY_FOLDER
from harness.runtimes.runtime import NotOffered, Runtime, RuntimeFile, content_key
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.version_specs import choose, split_specs
from harness.runtimes.wheels import WheelCache, WheelRequest

ORT_PROJECT: Final = "onnxruntime"

# Those with a C library in the wheel (from 1.24.1 on) that were tried; oldest first.
ORT_VERSIONS: Final = (
    "1.24.1",
    "1.24.2",
    "1.24.3",
    "1.24.4",
    "1.25.0",
    "1.25.1",
    "1.26.0",
    "1.27.0",
    "1.28.0",
    "1.29.0",
    "1.30.0",
    "1.31.0",
    "1.31.1",
)
ORT_DEVICE_VERSION: Final = "1.26.0"
"""The ORT of a device unless another is asked for: works with every QNN wheel (2.3.0 to 2.7.0)."""

# Every Python tag of a version holds the same C library, so that one tag serves every host.
_ORT_PYTHON: Final = ("3.12", "cp312")
ORT_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_28_x86_64", "linux-arm64": "manylinux_2_28_aarch64"}
)

CAPI_FOLDER: Final = "onnxruntime/capi"
PLACE_FOLDER: Final = "ort"
"""Where an ORT lies in a runtime that is not from PyPI."""
PLUGIN: Final = "libonnxruntime_providers_qnn.so"
# What of the QNN wheel ORT needs besides the runtime: its plug-in, and, where libQnnHtp.so does
# not hold it, the compiler, since sessions are made of models that are not compiled yet.
BESIDE_ORT: Final = (PLUGIN, "libQnnHtpPrepare.so")


class OrtWheels:
    """ORT's C library by version and target."""

    def __init__(self, wheels: WheelCache, unpacked: UnpackedWheels) -> None:
        self._wheels = wheels
        self._unpacked = unpacked

    def versions(self, target: str) -> list[str]:
        """Every version there is for a target, oldest first."""
        return list(ORT_VERSIONS) if target in ORT_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a version can be had without fetching it. Raises ConfigError."""
        return self._wheels.is_cached(ort_request(version, target))

    def library(self, version: str, target: str) -> RuntimeFile:
        """The library, fetched and unpacked if need be, and checked.

        Raises ConfigError for an unknown version or target, InfraError if it cannot be fetched or
        its wheel does not hold one library.
        """
        request = ort_request(version, target)
        folder = self._unpacked.folder(request, is_ort_library)
        found = list(folder.files.items())
        if len(found) != 1:
            raise InfraError(f"{folder.path.name} holds {len(found)} libraries of ORT, expected 1")
        ((name, file),) = found
        return RuntimeFile(file.path, name, file.size, file.sha256)

    def damage(self, version: str, target: str) -> list[str]:
        """What of a version is not as it was kept, every byte read. Raises ConfigError."""
        request = ort_request(version, target)
        return [*self._wheels.damage(request), *self._unpacked.damage(request)]

    def join(self, runtime: Runtime, version: str | None, beside: Iterable[RuntimeFile]) -> Runtime:
        """A QNN runtime and this version of ORT (None: `ORT_DEVICE_VERSION`) as one runtime.

        `beside` are further files of the same QNN (see `BESIDE_ORT`). A runtime that brings its
        own ORT stays as it is. Raises as `library`, and NotOffered if that one is another, or if
        there is no plug-in: PyPI's ORT has no QNN provider built in.
        """
        if runtime.ort_version is not None:
            if version not in (None, runtime.ort_version):
                raise NotOffered(
                    f"{runtime.name} brings ORT {runtime.ort_version} of its own, and cannot be "
                    f"used with {version}",
                    field="ort",
                )
            return runtime
        found = (*runtime.files, *beside)
        if not any(PurePosixPath(file.name).name == PLUGIN for file in found):
            raise NotOffered(
                f"{runtime.name} for {runtime.target} has no {PLUGIN}, which ORT from PyPI needs",
                field="ort",
            )
        chosen = version or ORT_DEVICE_VERSION
        return joined(runtime, chosen, (self.library(chosen, runtime.target), *beside))


def resolve_ort(spec: str, *, field: str | None = None) -> list[str]:
    """The exact versions that a user's `spec` means (pure).

    A comma list of exact (1.26.0) and short versions (1.27), ranges (>=1.24,<1.32), `latest` and
    `all`. Raises ConfigError naming `field` and the choices.
    """
    known = {version: version for version in ORT_VERSIONS}
    found: dict[str, None] = {}
    for part in split_specs(spec):
        found.update(dict.fromkeys(choose(part, known, field=field, what="ORT")))
    return list(found)


def ort_request(version: str, target: str) -> WheelRequest:
    """The wheel of a version. Raises ConfigError for an unknown version or target (pure)."""
    if target not in ORT_PLATFORMS:
        raise ConfigError(f"PyPI has no ORT for target {target!r}", choices=ORT_PLATFORMS)
    if version not in ORT_VERSIONS:
        raise VersionError(f"unknown ORT version {version[:80]!r}", choices=ORT_VERSIONS)
    return WheelRequest(ORT_PROJECT, version, ORT_PLATFORMS[target], *_ORT_PYTHON)


def is_ort_library(name: str) -> bool:
    """Whether a file of the wheel is ORT's C library (pure)."""
    path = PurePosixPath(name)
    return str(path.parent) == CAPI_FOLDER and path.name.startswith("libonnxruntime.so")


def joined(runtime: Runtime, version: str, more: Iterable[RuntimeFile]) -> Runtime:
    """A runtime with more files, ORT's library of this version among them (pure)."""
    files = {file.name: file for file in (*runtime.files, *more)}
    kept = tuple(files[name] for name in sorted(files))
    known = [*runtime.library_dirs, LIBRARY_FOLDER, CAPI_FOLDER, PLACE_FOLDER]
    present = [one for one in known if any(name.startswith(f"{one}/") for name in files)]
    return replace(
        runtime,
        key=content_key((file.name, file.sha256, file.mode) for file in kept),
        files=kept,
        library_dirs=tuple(dict.fromkeys(present)),
        ort_version=version,
    )


def ort_library_of(runtime: Runtime) -> str:
    """The name of ORT's C library in a runtime that has one. Raises ConfigError (pure)."""
    for file in runtime.files:
        if PurePosixPath(file.name).name.startswith("libonnxruntime.so"):
            return PurePosixPath(file.name).name
    raise VersionError(f"{runtime.name} for {runtime.target} holds no ORT")
