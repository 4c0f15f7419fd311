"""A simulated board of another CPU, whose programs run under qemu.

The shell and the tools of such a device are programs of this host. A small library is preloaded
into them (native/board.c): it hands every arm64 program that is executed to qemu, and shows the
host's programs what qemu shows the arm64 ones, so that both see the same board.

The presence of the tools is not enough: a cross compiler may lack its C library. So a tiny
program is compiled for the board and run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import read_bounded
from harness.core.matrix_axes import RPC_LIBRARY
from harness.core.verified_folder import key_of, make_file
from harness.dsp.emulator import build_fastrpc, build_library, dsp_programs
from harness.dsp.simulated_dsp import (
    FOLDER as DSP_FOLDER,
    DspLimits,
    DspPrograms,
    dsp_environment,
    lay_out_dsp,
)

FOLDER: Final = "system/board"
"""The folder of a board's files, below the storage folder."""

LOADER: Final = "ld-linux-aarch64.so.1"
_C_LIBRARY: Final = "libc.so.6"
_CPU: Final = Path(__file__).parent / "cpuinfo.txt"
_MAX_LIBRARY_BYTES: Final = 16 << 20
_VERSION: Final = re.compile(rb"GNU C Library [^\0]{1,120}? version (\d{1,2}\.\d{1,3})")
# Compilers ship these; no board has them.
_NOT_ON_BOARDS: Final = re.compile(r"lib(?:a|hwa|l|t|ub)san\.so.*|lib(?:memusage|pcprofile)\.so")
# The folders that programs and people search for libraries on a Linux board.
_LIBRARY_FOLDERS: Final = ("lib", "usr/lib/aarch64-linux-gnu")


@dataclass(frozen=True)
class BoardDsp:
    """A board's DSP: the library to reach it, the programs that emulate it, and its limits."""

    library: Path
    programs: DspPrograms
    limits: DspLimits


@dataclass(frozen=True)
class Board:
    """The parts of a simulated Linux board with arm64 programs.

    `qemu` is the user-mode emulator, `shim` the built native/board.c, `libraries` the folder with
    the board's loader and C library. `files` are further files by absolute path. `dsp` is
    None for a board without one.
    """

    qemu: Path
    shim: Path
    libraries: Path
    files: Mapping[str, str] = field(default_factory=dict)
    dsp: BoardDsp | None = None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        paths = {name: Path(plain[name]) for name in ("qemu", "shim", "libraries")}
        dsp = plain["dsp"]
        if dsp is not None:
            programs = {name: Path(path) for name, path in dsp["programs"].items()}
            limits = DspLimits(**dsp["limits"])
            dsp = BoardDsp(Path(dsp["library"]), DspPrograms(**programs), limits)
        return cls(**paths, files=plain["files"], dsp=dsp)


def soc_files(soc: str, soc_id: int) -> dict[str, str]:
    """Return the kernel's files about the SoC of a Qualcomm board, by path."""
    return {
        "/sys/devices/soc0/machine": f"{soc}\n",
        "/sys/devices/soc0/soc_id": f"{soc_id}\n",
        "/sys/devices/system/soc/soc0/id": f"{soc_id}\n",
    }


def cpu_files(count: int) -> dict[str, str]:
    """Return the kernel's files about the processors of an arm64 board, by path.

    Without it programs read that of this computer, and pytorch/cpuinfo, which ONNX Runtime has in
    it since 1.28 on arm64, follows a null pointer where it names no Arm processor.
    """
    text = _CPU.read_text("ascii")
    return {"/proc/cpuinfo": "".join(text.format(number=number) for number in range(count))}


def dsp_files() -> dict[str, str]:
    """Return the kernel's files about the running DSP of a Qualcomm board, by path."""
    return {
        "/sys/class/remoteproc/remoteproc0/name": "cdsp\n",
        "/sys/class/remoteproc/remoteproc0/state": "running\n",
        "/sys/class/fastrpc/fastrpc-cdsp/uevent": "DEVNAME=fastrpc-cdsp\n",
        # ONNX Runtime's plug-in detects an NPU by this node (onnxruntime/onnxruntime-qnn#557)
        "/dev/fastrpc-cdsp": "",
    }


def dsp_folder(storage: Path) -> Path:
    """Return the folder of a board's DSP."""
    return storage / FOLDER / DSP_FOLDER


def install_board(board: Board, storage: Path) -> None:
    """Create the board's files below an empty `system` folder. Raises OSError or ConfigError."""
    if re.search(r"\s", str(storage)):
        raise ConfigError(
            f"{str(storage)!r} has a space, which LD_PRELOAD does not allow; use another folder"
        )
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
    """Return the additional environment of a board's commands."""
    preload = {"LD_PRELOAD": str(storage / FOLDER / "board.so")}
    return preload | ({} if board.dsp is None else dsp_environment(dsp_folder(storage)))


def libc_version(libraries: Path) -> str:
    """Return the version of glibc in a folder, e.g. 2.36. Raises ConfigError if it is unknown."""
    file = libraries / _C_LIBRARY
    try:
        match = _VERSION.search(read_bounded(file, _MAX_LIBRARY_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
    if match is None:
        raise ConfigError("contains no version of glibc", file=file)
    return match[1].decode()


SHIM_SOURCE: Final = Path(__file__).parent / "native" / "board.c"
LIBRARIES_VARIABLE: Final = "QNN_HARNESS_ARM64_LIBRARIES"
"""Names the folder with the arm64 loader and C library where it is no usual one."""

CROSS_COMPILER_VARIABLE: Final = "CC_LINUX_ARM64"
CROSS_COMPILERS: Final = ("aarch64-linux-gnu-gcc", "zig")
ZIG_TARGET: Final = "aarch64-linux-gnu.2.28"
"""Has the glibc of the oldest boards that device libraries exist for."""

QEMUS: Final = ("qemu-aarch64", "qemu-aarch64-static")
_CPP_RUNTIME: Final = "libstdc++.so.6"
HOST_COMPILERS: Final = ("cc", "gcc", "clang")
# Debian and Ubuntu; Fedora and others that keep a sysroot of their own.
_HOST_LIBRARY_FOLDERS: Final = (
    "/usr/aarch64-linux-gnu/lib",
    "/usr/aarch64-linux-gnu/sys-root/lib64",
    "/usr/aarch64-linux-gnu/sys-root/lib",
    "/usr/lib/aarch64-linux-gnu",
)
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-U_FORTIFY_SOURCE", "-fvisibility=hidden")
# Includes what the probe includes; its output shows that it ran.
_TRIAL: Final = """#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int main(void) { return puts("ran") < 0; }
"""
_PROGRAM_S: Final = 60.0
_KEPT_CHARS: Final = 2000


@dataclass(frozen=True)
class Tools:
    """The tools on this host that a simulated linux-arm64 device needs.

    `libraries` is the folder with the board's loader and C library; `compiler` is the command of
    the host's compiler, `cross` that of the board's.
    """

    qemu: Path
    libraries: Path
    compiler: tuple[str, ...]
    cross: tuple[str, ...]


def find_tools(environment: Mapping[str, str] = os.environ) -> Tools:
    """Find the tools.

    Raises ConfigError naming all that is missing and the packages that have it (of Debian and
    Ubuntu).
    """
    path = environment.get("PATH")
    qemu = first_program(QEMUS, path)
    chosen = environment.get(LIBRARIES_VARIABLE, "").strip()
    folders = [chosen] if chosen else _HOST_LIBRARY_FOLDERS
    libraries = next((Path(folder) for folder in folders if Path(folder, LOADER).is_file()), None)
    cpp = libraries is None or (libraries / _CPP_RUNTIME).exists()
    compiler = find_compiler(environment, "CC", HOST_COMPILERS)
    cross = find_compiler(
        environment, CROSS_COMPILER_VARIABLE, CROSS_COMPILERS[:1], zig_target=ZIG_TARGET
    )
    if qemu and libraries and cpp and cross and compiler:
        return Tools(Path(qemu), libraries, compiler, cross)
    needs = (
        (qemu, "qemu-aarch64", "qemu-user"),
        (libraries, "the arm64 C library", "libc6-dev-arm64-cross"),
        (cpp, "its C++ runtime", "libstdc++6-arm64-cross"),
        (cross, "aarch64-linux-gnu-gcc or zig", "gcc-aarch64-linux-gnu"),
        (compiler, "a C compiler", "gcc"),
    )
    lacking = [f"{name} (apt install {package})" for present, name, package in needs if not present]
    raise ConfigError(f"this computer lacks {', '.join(lacking)}")


def find_compiler(
    environment: Mapping[str, str], variable: str, names: Sequence[str], *, zig_target: str = ""
) -> tuple[str, ...] | None:
    """Return the command that a variable names, else the first of these compilers, else zig.

    None if there is none. Raises ConfigError for a variable that is no command.
    """
    path = environment.get("PATH")
    try:
        words = shlex.split(environment.get(variable, ""))
    except ValueError:
        raise ConfigError(f"not a command: {environment[variable]!r}", field=variable) from None
    if words or (program := first_program(names, path)):
        program = first_program(words[:1], path) if words else program
        return (program, *words[1:]) if program else None
    zig = first_program(["zig"], path) if zig_target else None
    return (zig, "cc", "-target", zig_target) if zig else None


def first_program(names: Sequence[str], path: str | None) -> str | None:
    """Return the first of these programs that is on `path` (as PATH), None if none is."""
    return next((program for name in names if (program := shutil.which(name, path=path))), None)


def make_board(files: Mapping[str, str], *, cache: Path, dsp: DspLimits | None = None) -> Board:
    """Return a board with `files` and Arm processors, and a DSP if its limits are given.

    Builds its libraries into `cache` if needed. Raises ConfigError naming what is missing, or
    if the compiler refuses; InfraError if it hangs.
    """
    tools = find_tools()
    files_shown = cpu_files(os.cpu_count() or 1) | dict(files)
    shim, board_dsp = build_shim(tools.compiler, cache), None
    if dsp is not None:
        library = build_fastrpc(tools.cross, cache).absolute()
        board_dsp = BoardDsp(library, dsp_programs(cache), dsp)
        files_shown |= dsp_files()
    paths = tools.qemu.absolute(), shim.absolute(), tools.libraries.absolute()
    return Board(*paths, files_shown, board_dsp)


def build_shim(compiler: Sequence[str], cache: Path) -> Path:
    """Return the library preloaded into a board's host programs, built once per compiler.

    Raises ConfigError if the compiler refuses, InfraError if it hangs or the result cannot be kept.
    """
    return build_library("board.so", [*compiler, *_FLAGS], [str(SHIM_SOURCE), "-ldl"], cache)


def why_no_board(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why no board can be simulated here, with what to install; None if one can.

    A success is remembered in `cache` for these tools.
    """
    try:
        tools = find_tools(environment)
        build_shim(tools.compiler, cache)
        files = (tools.libraries / LOADER, tools.qemu, Path(tools.cross[0]))
        trial = cache / f"trial-{key_of((tools.cross, *map(_identity, files)))}"
        make_file(trial, partial(_try, tools), doing="trying arm64 programs", timeout_s=_PROGRAM_S)
    except (HarnessError, OSError) as error:
        return str(error)
    return None


def _try(tools: Tools, folder: Path) -> Path:
    source, program = folder / "trial.c", folder / "trial"
    source.write_text(_TRIAL)
    compiled = run_program([*tools.cross, str(source), "-o", str(program), "-ldl", "-pthread"])
    if compiled.returncode != 0:
        raise ConfigError(
            f"{shlex.join(tools.cross)} cannot compile for arm64 (apt install "
            f"libc6-dev-arm64-cross): {_first_error(compiled.stderr)}"
        )
    loader, libraries = str(tools.libraries / LOADER), str(tools.libraries)
    ran = run_program([str(tools.qemu), loader, "--library-path", libraries, str(program)])
    if ran.returncode != 0 or ran.stdout != "ran\n":
        raise ConfigError(f"{tools.qemu} does not run arm64 programs: {_first_error(ran.stderr)}")
    return program


def run_program(
    command: Sequence[str], *, timeout_s: float = _PROGRAM_S
) -> subprocess.CompletedProcess[str]:
    """Run a program of this computer without stdin, with output in English.

    Raises InfraError if it takes longer, OSError if it cannot be started.
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{command[0]} took longer than {timeout_s:g} s") from None


def _identity(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def _first_error(output: str) -> str:
    lines = output.strip().splitlines()
    error = next((line for line in lines if "error" in line), lines[0] if lines else "no words")
    return error[:_KEPT_CHARS]
