"""Runtimes out of the wheels of onnxruntime-qnn: a source that needs no account and no path.

Wheels are unpacked once on the host, checked at every use, and made anew when damaged. Which of
their files go where is a table. "Not opened" there: not among what the dynamic loader opened while
contexts were compiled, loaded and executed (LD_DEBUG=files, QNN 2.47.0 and 2.51.0). The names on a
device are those of the wheel, because the libraries look for their C++ runtime in
$ORIGIN/../*.libs.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from harness.ground.errors import ConfigError, InfraError, VersionError
from harness.ground.facts.versions import QNN_WHEELS, QnnVersion
from harness.ground.files.archive import names_of, unpacked_once
from harness.ground.files.local_file import LocalFile
from harness.ground.files.verified_folder import VerifiedFolder, damage_of
from harness.libraries.runtimes.runtime import LibrarySource, Runtime
from harness.libraries.runtimes.wheels import WheelCache, WheelRequest

Use = Literal["device", "host", "none"]
"""device: deployed (and on the host); host: for compiling there; none: not even unpacked."""

LIBRARY_FOLDER: Final = "onnxruntime_qnn"
RUNTIME_FOLDER: Final = "onnxruntime_qnn.libs"

_LAYOUT: Final = 1

QNN_PROJECT: Final = "onnxruntime-qnn"
PYPI: Final = "pypi"
# Every Python tag of a QNN wheel holds the same libraries (compared for 2.3.0 to 2.7.0), so that
# one tag, the first that aarch64 has too, serves every host.
_QNN_PYTHON = ("3.12", "cp312")
QNN_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_35_x86_64", "linux-arm64": "manylinux_2_34_aarch64"}
)
ORT_PROJECT: Final = "onnxruntime"
ORT_HOST_VERSION: Final = "1.26.0"
"""The ORT that compiles contexts: works with the QNN wheels 2.3.0 to 2.7.0 (tested for each).

Not every pair that pip accepts does: from 1.28.0 on ORT makes no session with the plug-in of 2.3.0.
"""

_ORT_PLATFORM = "manylinux_2_28_x86_64"


WHEEL_RULES: Final[tuple[tuple[str, Use], ...]] = (
    # names the QNN version, for people
    (f"{LIBRARY_FOLDER}/build_and_package_info.py", "host"),
    # ORT's plug-in makes contexts on the host; a device gets it once ORT runs there
    ("*/libonnxruntime_providers_qnn.so", "host"),
    # not opened: on x86-64 libQnnHtp.so holds the same code, and both have 100 MB
    ("*/libHtpPrepare.so", "none"),
    # prepares graphs on a board (QAIRT docs, HTP backend: online prepare), where ORT compiles there
    ("*/libQnnHtpPrepare.so", "host"),
    # not opened: language models, an extension of Python, a config file of qnn-net-run
    ("*/libGenie.so", "none"),
    ("*/libDlModelToolsPy*.so", "none"),
    ("*/libQnnHtpNetRunExtensions.so", "none"),
    # record calls and write DLC files; only compilers unpack them
    ("*/libQnnSaver.so", "none"),
    ("*/libQnnIr.so", "none"),
    # backends, stubs, skels, system library; the C++ runtime, found by $ORIGIN/../*.libs
    (f"{LIBRARY_FOLDER}/*.so", "device"),
    (f"{RUNTIME_FOLDER}/*", "device"),
    ("*", "none"),
)
"""What becomes of the files whose name in the wheel matches; the first match decides."""


def use_of(name: str) -> Use:
    """What becomes of a file of the wheel (pure)."""
    return next(use for pattern, use in WHEEL_RULES if fnmatchcase(name, pattern))


class UnpackedWheels:
    """Folders below `root`, one per wheel."""

    def __init__(self, root: Path, wheels: WheelCache) -> None:
        self._root = root
        self.wheels = wheels

    def folder(self, request: WheelRequest, wanted: Callable[[str], bool]) -> VerifiedFolder:
        """The wanted files of a wheel.

        Raises InfraError if the wheel cannot be had or unpacked.
        """
        wheel = self.wheels.fetch(request)
        names = sorted(name for name in names_of(wheel.path) if wanted(name))
        facts = {"layout": _LAYOUT, "wheel": wheel.sha256, "names": names}
        folder = self._folder(request)
        return unpacked_once(wheel.path, folder, facts, wanted, lambda *_: {}, what=str(request))

    def damage(self, request: WheelRequest) -> list[str]:
        """What of a wheel and its files in the cache is not as it was, every byte read."""
        folder = self._folder(request)
        unpacked = [f"{folder.name}: {damage}" for damage in damage_of(folder)]
        return [*self.wheels.damage(request), *unpacked]

    def _folder(self, request: WheelRequest) -> Path:
        return self._root / request.file_name.removesuffix(".whl")


def all_versions() -> list[str]:
    """Every QNN version that has a wheel, oldest first (pure)."""
    return sorted(QNN_WHEELS, key=QnnVersion.parse)


class PyPiSource(LibrarySource):
    """The QNN versions of onnxruntime-qnn on a package index."""

    name = PYPI
    origin = f"{QNN_PROJECT} on the package index of pip"

    def __init__(self, unpacked: UnpackedWheels) -> None:
        self._unpacked = unpacked
        self._runtimes: dict[tuple[str, str], Runtime] = {}

    def versions(self, target: str) -> list[str]:
        return all_versions() if target in QNN_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        return self._unpacked.wheels.is_cached(qnn_wheel(version, target))

    def runtime(self, version: str, target: str) -> Runtime:
        key = (version, target)
        if key not in self._runtimes:
            folder = self.folder(version, target)
            files = tuple(
                LocalFile.of(file)
                for name, file in sorted(folder.files.items())
                if use_of(name) == "device"
            )
            self._runtimes[key] = Runtime(
                qnn_version=version,
                target=target,
                root=folder.path,
                files=files,
                source=self.name,
            )
        return self._runtimes[key]

    def damage(self, version: str, target: str) -> list[str]:
        return self._unpacked.damage(qnn_wheel(version, target))

    def folder(self, version: str, target: str) -> VerifiedFolder:
        """The unpacked wheel, with what only the host uses. Raises as `runtime`."""
        wheel = qnn_wheel(version, target)
        try:
            return self._unpacked.folder(wheel, lambda name: use_of(name) != "none")
        except InfraError as error:
            raise InfraError(f"QNN {version} for {target}: {error}") from error


def qnn_wheel(version: str, target: str) -> WheelRequest:
    """The wheel of an exact QNN version. Raises ConfigError for another target or version."""
    if target not in QNN_PLATFORMS:
        raise ConfigError(f"PyPI has no QNN libraries for target {target!r}", choices=QNN_PLATFORMS)
    if version not in QNN_WHEELS:
        raise VersionError(f"unknown QNN version {version!r}", choices=all_versions())
    return WheelRequest(QNN_PROJECT, QNN_WHEELS[version], QNN_PLATFORMS[target], *_QNN_PYTHON)


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
        return self.qnn_root / LIBRARY_FOLDER / "libQnnHtp.so"

    @property
    def system_library(self) -> Path:
        return self.qnn_root / LIBRARY_FOLDER / "libQnnSystem.so"

    @property
    def plugin(self) -> Path:
        return self.qnn_root / LIBRARY_FOLDER / "libonnxruntime_providers_qnn.so"


def require_compiling_host() -> None:
    """Raises InfraError unless this computer is one that compiles: x86-64 Linux."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InfraError(
            "contexts are compiled on x86-64 Linux only, and this computer is "
            f"{sys.platform} {platform.machine()}"
        )


def ort_folder(unpacked: UnpackedWheels) -> VerifiedFolder:
    """The wheel of that ORT for this Python, unpacked. Raises InfraError."""
    request = WheelRequest.for_this_python(ORT_PROJECT, ORT_HOST_VERSION, _ORT_PLATFORM)
    return unpacked.folder(request, lambda name: name.startswith("onnxruntime/"))
