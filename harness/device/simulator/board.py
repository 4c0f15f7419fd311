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
from typing import Final

from harness.ground import ConfigError, read_bounded

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
class Board:
    """What makes a simulated device a Linux board with arm64 programs.

    `qemu` is the user-mode emulator, `shim` the built native/board.c, `libraries` the folder with
    the board's loader and C library. `files` are what it shows besides, by absolute path.
    """

    qemu: Path
    shim: Path
    libraries: Path
    files: Mapping[str, str] = field(default_factory=dict)


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
    for name, text in board.files.items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def board_environment(storage: Path) -> dict[str, str]:
    """What the environment of a board's commands has besides."""
    return {"LD_PRELOAD": str(storage / FOLDER / "board.so")}


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
