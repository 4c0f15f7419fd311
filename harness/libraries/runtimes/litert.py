"""LiteRT out of its wheel: its CPU, and the compiler's plug-in for Qualcomm, which QNN drives.

The wheel has no library that loads the result on a device (libLiteRtDispatch_Qualcomm.so).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.libraries.runtimes.pypi import (
    LIBRARY_FOLDER,
    RUNTIME_FOLDER,
    PyPiSource,
    UnpackedWheels,
    qnn_wheel,
    require_compiling_host,
)
from harness.libraries.runtimes.wheels import WheelCache, WheelRequest

LITERT_VERSION: Final = "2.3.0"

_FOLDER: Final = "ai_edge_litert"
_PLATFORM: Final = "manylinux_2_27_x86_64"
_COMPILER: Final = f"{_FOLDER}/tools/apply_plugin_main"
_PLUGIN: Final = f"{_FOLDER}/vendors/qualcomm/compiler/libLiteRtCompilerPlugin_Qualcomm.so"
# what the interpreter imports, and those are linked with
_CPU: Final = (
    *("__init__.py", "interpreter.py", "metrics_interface.py", "metrics_portable.py"),
    *("_pywrap_litert_interpreter_wrapper.so", "libpywrap_litert_common.so"),
)
_WANTED: Final = frozenset((_COMPILER, _PLUGIN, *(f"{_FOLDER}/{name}" for name in _CPU)))

_SAVER: Final = f"{LIBRARY_FOLDER}/libQnnSaver.so"
_LINKED: Final = frozenset((_SAVER, f"{LIBRARY_FOLDER}/libQnnIr.so"))
# The plug-in is linked with these; what compiles for the HTP calls nothing of them.


@dataclass(frozen=True)
class LitertHost:
    """What compiles a .tflite on this computer, with one QNN, and runs it on the CPU.

    `root` is a folder for PYTHONPATH, `qnn_root` the QNN as `CompilerHost` has it, `linked` where
    the libraries lie that the plug-in wants besides.
    """

    qnn_version: str
    root: Path
    qnn_root: Path
    linked: Path

    @property
    def compiler(self) -> Path:
        """The program that has a plug-in compile what that takes of a model."""
        return self.root / _COMPILER

    @property
    def plugins(self) -> Path:
        """The folder of the plug-in for Qualcomm."""
        return (self.root / _PLUGIN).parent

    @property
    def library_path(self) -> tuple[Path, ...]:
        """Where the dynamic loader finds what the plug-in is linked with."""
        return (
            self.qnn_root / LIBRARY_FOLDER,
            self.linked / LIBRARY_FOLDER,
            self.qnn_root / RUNTIME_FOLDER,
        )

    @property
    def saver(self) -> Path:
        """A library to stand for libQnnLpai.so, which no wheel has and nobody calls."""
        return self.linked / _SAVER


def litert_host(qnn: PyPiSource, version: str, wheels: WheelCache, root: Path) -> LitertHost:
    """LiteRT for this Python beside an exact QNN version, unpacked below `root`.

    Raises ConfigError for an unknown version, InfraError if one of them cannot be had, or on a
    computer that the wheels are not for.
    """
    require_compiling_host()
    unpacked = UnpackedWheels(root, wheels)
    return LitertHost(
        version,
        root=unpacked.folder(_request(), _WANTED.__contains__).path,
        qnn_root=qnn.folder(version, "linux-x64").path,
        linked=unpacked.folder(qnn_wheel(version, "linux-x64"), _LINKED.__contains__).path,
    )


def _request() -> WheelRequest:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    abi = f"cp{version.replace('.', '')}{sys.abiflags}"
    return WheelRequest("ai-edge-litert", LITERT_VERSION, _PLATFORM, version, abi)
