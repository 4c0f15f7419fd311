"""A simulated board of another CPU: what a boot lays out so that its programs run under qemu.

The shell and the tools of such a device are programs of this host. A small library is preloaded
into them (native/board.c): it hands every arm64 program that is executed to qemu, and shows the
host's programs what qemu shows the arm64 ones, so that both see the same board.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from harness.device.dsp.dsp import (
    FOLDER as DSP_FOLDER,
    DspLimits,
    DspPrograms,
    dsp_environment,
    lay_out_dsp,
)
from harness.ground.errors import ConfigError
from harness.ground.facts.backends import RPC_LIBRARY
from harness.ground.files.whole_file import read_bounded

FOLDER: Final = "system/board"
"""What a boot makes of a board, below the storage folder."""

LOADER: Final = "ld-linux-aarch64.so.1"
_C_LIBRARY: Final = "libc.so.6"
_MAX_LIBRARY_BYTES: Final = 16 << 20
_VERSION: Final = re.compile(rb"GNU C Library [^\0]{1,120}? version (\d{1,2}\.\d{1,3})")
# Compilers bring these along; no board has them.
_NOT_ON_BOARDS: Final = re.compile(r"lib(?:a|hwa|l|t|ub)san\.so.*|lib(?:memusage|pcprofile)\.so")
# Where programs and people look for libraries on a Linux board.
_LIBRARY_FOLDERS: Final = ("lib", "usr/lib/aarch64-linux-gnu")


@dataclass(frozen=True)
class BoardDsp:
    """A board's DSP: the library that leads to it, the programs that are it, and what it has."""

    library: Path
    programs: DspPrograms
    limits: DspLimits


@dataclass(frozen=True)
class Board:
    """What makes a simulated device a Linux board with arm64 programs.

    `qemu` is the user-mode emulator, `shim` the built native/board.c, `libraries` the folder with
    the board's loader and C library. `files` are what it shows besides, by absolute path. `dsp` is
    None for a board without one.
    """

    qemu: Path
    shim: Path
    libraries: Path
    files: Mapping[str, str] = field(default_factory=dict)
    dsp: BoardDsp | None = None

    @classmethod
    def of_plain(cls, said: Mapping[str, Any]) -> Self:
        """The board that `dataclasses.asdict` and JSON made these of."""
        paths = {name: Path(said[name]) for name in ("qemu", "shim", "libraries")}
        dsp = said["dsp"]
        if dsp is not None:
            programs = {name: Path(path) for name, path in dsp["programs"].items()}
            limits = DspLimits(**dsp["limits"])
            dsp = BoardDsp(Path(dsp["library"]), DspPrograms(**programs), limits)
        return cls(**paths, files=said["files"], dsp=dsp)


def soc_files(soc: str, soc_id: int) -> dict[str, str]:
    """What the kernel of a Qualcomm board tells of its SoC, by path."""
    return {
        "/sys/devices/soc0/machine": f"{soc}\n",
        "/sys/devices/soc0/soc_id": f"{soc_id}\n",
        "/sys/devices/system/soc/soc0/id": f"{soc_id}\n",
    }


def cpu_files(count: int) -> dict[str, str]:
    """What the kernel of an arm64 board tells of its processors, by path.

    Without it programs read that of this computer, and pytorch/cpuinfo, which ONNX Runtime has in
    it since 1.28 on arm64, follows a null pointer where it names no Arm processor.
    """
    lines = (
        "BogoMIPS\t: 38.40",
        "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid",
        "CPU implementer\t: 0x41",
        "CPU architecture: 8",
        "CPU variant\t: 0x1",
        "CPU part\t: 0xd05",
        "CPU revision\t: 0",
    )
    processors = ("\n".join([f"processor\t: {n}", *lines]) + "\n\n" for n in range(count))
    return {"/proc/cpuinfo": "".join(processors)}


def dsp_files() -> dict[str, str]:
    """What the kernel of a Qualcomm board tells of its DSP, by path: it runs, and has a node."""
    return {
        "/sys/class/remoteproc/remoteproc0/name": "cdsp\n",
        "/sys/class/remoteproc/remoteproc0/state": "running\n",
        "/sys/class/fastrpc/fastrpc-cdsp/uevent": "DEVNAME=fastrpc-cdsp\n",
        # where ONNX Runtime's plug-in looks for an NPU (onnxruntime/onnxruntime-qnn#557)
        "/dev/fastrpc-cdsp": "",
    }


def dsp_folder(storage: Path) -> Path:
    """Where a boot lays out the DSP of a board that has one."""
    return storage / FOLDER / DSP_FOLDER


def install_board(board: Board, storage: Path) -> None:
    """Lays the board out below an empty `system` folder. Raises OSError or ConfigError."""
    if re.search(r"\s", str(storage)):
        raise ConfigError(f"{str(storage)!r} cannot be in LD_PRELOAD: it has a space")
    folder = storage / FOLDER
    root = folder / "root"
    root.mkdir(parents=True)
    (folder / "qemu").symlink_to(board.qemu)
    (folder / "board.so").symlink_to(board.shim)
    (folder / "libc").symlink_to(f"glibc {libc_version(board.libraries)}")
    for place in _LIBRARY_FOLDERS:
        (root / place).mkdir(parents=True)
        for library in sorted(board.libraries.glob("*.so.[0-9]*")):
            if not _NOT_ON_BOARDS.fullmatch(library.name):
                (root / place / library.name).symlink_to(library)
        if board.dsp is not None:
            (root / place / RPC_LIBRARY).symlink_to(board.dsp.library)
    if board.dsp is not None:
        lay_out_dsp(dsp_folder(storage), board.dsp.programs, board.dsp.limits)
    for name, text in board.files.items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def board_environment(board: Board, storage: Path) -> dict[str, str]:
    """What the environment of a board's commands has besides."""
    preload = {"LD_PRELOAD": str(storage / FOLDER / "board.so")}
    return preload | ({} if board.dsp is None else dsp_environment(dsp_folder(storage)))


def libc_version(libraries: Path) -> str:
    """Which glibc lies in a folder, e.g. 2.36. Raises ConfigError if that cannot be told."""
    file = libraries / _C_LIBRARY
    try:
        found = _VERSION.search(read_bounded(file, _MAX_LIBRARY_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
    if found is None:
        raise ConfigError("does not say which version of glibc it is", file=file)
    return found[1].decode()
