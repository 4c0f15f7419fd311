"""What this host must have so that it can simulate a device of another CPU, and where that is."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import ConfigError, InfraError
from harness.simulator.board import LOADER, Board, cpu_files

SHIM_SOURCE: Final = Path(__file__).parent / "native" / "board.c"
LIBRARIES_VARIABLE: Final = "QNN_HARNESS_ARM64_LIBRARIES"
"""Names the folder with the arm64 loader and C library where it is no usual one."""

CROSS_COMPILER_VARIABLE: Final = "CC_LINUX_ARM64"
CROSS_COMPILERS: Final = ("aarch64-linux-gnu-gcc", "zig")

_QEMUS: Final = ("qemu-aarch64", "qemu-aarch64-static")
_CPP_RUNTIME: Final = "libstdc++.so.6"
_HOST_COMPILERS: Final = ("cc", "gcc", "clang")
# Debian and Ubuntu; Fedora and others that keep a sysroot of their own.
_LIBRARY_FOLDERS: Final = (
    "/usr/aarch64-linux-gnu/lib",
    "/usr/aarch64-linux-gnu/sys-root/lib64",
    "/usr/aarch64-linux-gnu/sys-root/lib",
    "/usr/lib/aarch64-linux-gnu",
)
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-U_FORTIFY_SOURCE", "-fPIC", "-shared")
_VISIBILITY: Final = "-fvisibility=hidden"
_BUILD_S: Final = 60.0
_KEPT_ERROR_CHARS: Final = 2000


@dataclass(frozen=True)
class Missing:
    """One thing that this host lacks, and the packages that have it (of Debian and Ubuntu)."""

    what: str
    package: str

    def __str__(self) -> str:
        return f"{self.what} (apt install {self.package})"


@dataclass(frozen=True)
class Tools:
    """What was found; None where it was not.

    `libraries` is the folder with the board's loader and C library, `cpp` its C++ runtime, which
    QNN wants; `compiler` is the host's, `cross` the board's.
    """

    qemu: Path | None
    libraries: Path | None
    compiler: tuple[str, ...] | None
    cross: str | None
    cpp: Path | None


def find_tools(environment: Mapping[str, str] = os.environ) -> Tools:
    """Looks for the programs and libraries that a simulated linux-arm64 device needs."""
    path = environment.get("PATH")
    qemu = _first(_QEMUS, path)
    chosen = environment.get(LIBRARIES_VARIABLE, "").strip()
    folders = [chosen] if chosen else _LIBRARY_FOLDERS
    libraries = next((Path(one) for one in folders if Path(one, LOADER).is_file()), None)
    cpp = libraries / _CPP_RUNTIME if libraries else None
    words = _words(environment.get("CC", "")) or _HOST_COMPILERS[:1]
    compiler = _first([words[0]], path) or _first(_HOST_COMPILERS, path)
    cross = _words(environment.get(CROSS_COMPILER_VARIABLE, ""))
    return Tools(
        qemu=Path(qemu) if qemu else None,
        libraries=libraries,
        compiler=(compiler, *words[1:]) if compiler else None,
        cross=_first(cross[:1] or CROSS_COMPILERS, path),
        cpp=cpp if cpp and cpp.exists() else None,
    )


def missing(tools: Tools) -> list[Missing]:
    """What must be installed before a linux-arm64 device can be simulated (pure)."""
    wanted: Sequence[tuple[object, Missing]] = (
        (tools.qemu, Missing("qemu-aarch64", "qemu-user")),
        (tools.libraries, Missing("the arm64 C library", "libc6-dev-arm64-cross")),
        (tools.cpp or not tools.libraries, Missing("its C++ runtime", "libstdc++6-arm64-cross")),
        (tools.cross, Missing("aarch64-linux-gnu-gcc or zig", "gcc-aarch64-linux-gnu")),
        (tools.compiler, Missing("a C compiler", "gcc")),
    )
    return [lack for found, lack in wanted if not found]


def make_board(files: Mapping[str, str], *, cache: Path) -> Board:
    """A board that shows `files`, and Arm processors.

    Builds what it needs into `cache` if that is new. Raises ConfigError naming what is missing, or
    if the compiler refuses; InfraError if it hangs.
    """
    tools = find_tools()
    lacking = missing(tools)
    if lacking or tools.qemu is None or tools.libraries is None or tools.compiler is None:
        raise ConfigError("this host lacks " + ", ".join(map(str, lacking)))
    shown = cpu_files(os.cpu_count() or 1) | dict(files)
    return Board(tools.qemu, build_shim(tools.compiler, cache), tools.libraries, shown)


def build_shim(compiler: Sequence[str], cache: Path) -> Path:
    """The library that host programs of a board are given, built once per source and compiler.

    Raises ConfigError if the compiler refuses, InfraError if it hangs or the result cannot be kept.
    """
    try:
        source = SHIM_SOURCE.read_bytes()
        status = os.stat(compiler[0])
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    identity = (*compiler, status.st_size, status.st_mtime_ns, *_FLAGS, source)
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:24]
    built = cache / f"board-{key}.so"
    if built.is_file():
        return built
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as folder:
            output = Path(folder, "board.so")
            command = [*compiler, *_FLAGS, _VISIBILITY, str(SHIM_SOURCE), "-o", str(output), "-ldl"]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_BUILD_S,
            )
            if done.returncode != 0 or not output.is_file():
                said = done.stderr.decode("utf-8", "replace")[-_KEPT_ERROR_CHARS:]
                raise ConfigError(f"{shlex.join(compiler)} does not compile board.c:\n{said}")
            output.replace(built)
    except subprocess.TimeoutExpired:
        raise InfraError(f"{compiler[0]} took longer than {_BUILD_S:g} s") from None
    except OSError as error:
        raise InfraError(f"cannot build {built}: {error}") from error
    return built


def _first(names: Sequence[str], path: str | None) -> str | None:
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()
