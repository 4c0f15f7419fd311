"""What compiles contexts on this computer: one ORT for all versions of QNN."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import InfraError
from harness.runtimes.file_sets import LIBRARY_FOLDER
from harness.runtimes.sealed import SealedFolder
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.wheels import WheelRequest

ORT_PROJECT: Final = "onnxruntime"
ORT_HOST_VERSION: Final = "1.26.0"
"""The ORT that compiles contexts: works with the QNN wheels 2.3.0 to 2.7.0 (tested for each).

Not every pair that pip accepts does: from 1.28.0 on ORT makes no session with the plug-in of 2.3.0.
"""

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


def require_compiling_host() -> None:
    """Raises InfraError unless this computer is one that compiles: x86-64 Linux."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InfraError(
            "contexts are compiled on x86-64 Linux only, and this computer is "
            f"{sys.platform} {platform.machine()}"
        )


def ort_folder(unpacked: UnpackedWheels) -> SealedFolder:
    """The wheel of that ORT for this Python, unpacked. Raises InfraError."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    abi = f"cp{version.replace('.', '')}{sys.abiflags}"
    request = WheelRequest(ORT_PROJECT, ORT_HOST_VERSION, _ORT_PLATFORM, version, abi)
    return unpacked.folder(request, lambda name: name.startswith("onnxruntime/"))
