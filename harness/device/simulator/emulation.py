"""What this host must have so that it can simulate a device of another CPU, and whether it can.

That the tools are there does not tell: a cross compiler may come without its C library. So a tiny
program is compiled for the board and run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from harness.device.dsp.build import build_fastrpc
from harness.device.dsp.dsp import DspLimits
from harness.device.dsp.hexagon import dsp_programs
from harness.device.simulator.board import LOADER, Board, BoardDsp, cpu_files, dsp_files
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.files.verified_folder import key_of, made_file
from harness.ground.files.whole_file import disk_errors

SHIM_SOURCE: Final = Path(__file__).parent / "native" / "board.c"
LIBRARIES_VARIABLE: Final = "QNN_HARNESS_ARM64_LIBRARIES"
"""Names the folder with the arm64 loader and C library where it is no usual one."""

CROSS_COMPILER_VARIABLE: Final = "CC_LINUX_ARM64"
CROSS_COMPILERS: Final = ("aarch64-linux-gnu-gcc", "zig")
ZIG_TARGET: Final = "aarch64-linux-gnu.2.28"
"""With the glibc of the oldest boards that there are device libraries for."""

QEMUS: Final = ("qemu-aarch64", "qemu-aarch64-static")
_CPP_RUNTIME: Final = "libstdc++.so.6"
_HOST_COMPILERS: Final = ("cc", "gcc", "clang")
# Debian and Ubuntu; Fedora and others that keep a sysroot of their own.
_LIBRARY_FOLDERS: Final = (
    "/usr/aarch64-linux-gnu/lib",
    "/usr/aarch64-linux-gnu/sys-root/lib64",
    "/usr/aarch64-linux-gnu/sys-root/lib",
    "/usr/lib/aarch64-linux-gnu",
)
_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-Wall", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"),
    "-fvisibility=hidden",
)
# What the probe includes; that it says something shows that it ran.
_TRIAL: Final = """#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int main(void) { return puts("ran") < 0; }
"""
_PROGRAM_S: Final = 60.0
_KEPT_CHARS: Final = 2000


@dataclass(frozen=True)
class Tools:
    """What a simulated linux-arm64 device needs of this host.

    `libraries` is the folder with the board's loader and C library; `compiler` is the command of
    the host's compiler, `cross` that of the board's.
    """

    qemu: Path
    libraries: Path
    compiler: tuple[str, ...]
    cross: tuple[str, ...]


def find_tools(environment: Mapping[str, str] = os.environ) -> Tools:
    """Looks for what is needed.

    Raises ConfigError naming all that is missing and the packages that have it (of Debian and
    Ubuntu).
    """
    path = environment.get("PATH")
    qemu = first_program(QEMUS, path)
    chosen = environment.get(LIBRARIES_VARIABLE, "").strip()
    folders = [chosen] if chosen else _LIBRARY_FOLDERS
    libraries = next((Path(one) for one in folders if Path(one, LOADER).is_file()), None)
    cpp = libraries is None or (libraries / _CPP_RUNTIME).exists()
    compiler = _host_compiler(environment)
    named = _words(environment.get(CROSS_COMPILER_VARIABLE, ""))
    cross = first_program(named[:1] or CROSS_COMPILERS, path)
    if qemu and libraries and cpp and cross and compiler:
        zig = ("cc", "-target", ZIG_TARGET) if not named and Path(cross).name == "zig" else ()
        return Tools(Path(qemu), libraries, compiler, (cross, *named[1:], *zig))
    wanted = (
        (qemu, "qemu-aarch64", "qemu-user"),
        (libraries, "the arm64 C library", "libc6-dev-arm64-cross"),
        (cpp, "its C++ runtime", "libstdc++6-arm64-cross"),
        (cross, "aarch64-linux-gnu-gcc or zig", "gcc-aarch64-linux-gnu"),
        (compiler, "a C compiler", "gcc"),
    )
    lacking = [f"{what} (apt install {package})" for found, what, package in wanted if not found]
    raise ConfigError(f"this computer lacks {', '.join(lacking)}")


def _host_compiler(environment: Mapping[str, str]) -> tuple[str, ...]:
    path, words = environment.get("PATH"), _words(environment.get("CC", "")) or _HOST_COMPILERS[:1]
    found = first_program([words[0]], path) or first_program(_HOST_COMPILERS, path)
    return (found, *words[1:]) if found else ()


def first_program(names: Sequence[str], path: str | None) -> str | None:
    """The first of these programs that is on `path` (as PATH), None if none is."""
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def make_board(files: Mapping[str, str], *, cache: Path, dsp: DspLimits | None = None) -> Board:
    """A board that shows `files`, and Arm processors; with `dsp` it has a DSP of these limits.

    Builds what it needs into `cache` if that is new. Raises ConfigError naming what is missing, or
    if the compiler refuses; InfraError if it hangs.
    """
    tools = find_tools()
    shown = cpu_files(os.cpu_count() or 1) | dict(files)
    shim = build_shim(tools.compiler, cache)
    board = Board(tools.qemu.absolute(), shim.absolute(), tools.libraries.absolute(), shown)
    if dsp is None:
        return board
    library = build_fastrpc(tools.cross, cache).absolute()
    has = BoardDsp(library, dsp_programs(cache), dsp)
    return replace(board, files=shown | dsp_files(), dsp=has)


def build_shim(compiler: Sequence[str], cache: Path) -> Path:
    """The library that host programs of a board are given, built once per compiler.

    Raises ConfigError if the compiler refuses, InfraError if it hangs or the result cannot be kept.
    """
    try:
        identity = (*compiler, *_identity(Path(compiler[0])), *_FLAGS, SHIM_SOURCE.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    built = cache / f"{SHIM_SOURCE.stem}-{key_of(identity)}.so"

    def compile_into(folder: Path) -> Path:
        output = folder / built.name
        with disk_errors(f"cannot run {compiler[0]}"):
            done = run_program([*compiler, *_FLAGS, str(SHIM_SOURCE), "-o", str(output), "-ldl"])
        if done.returncode != 0 or not output.is_file():
            said = done.stderr[-_KEPT_CHARS:]
            raise ConfigError(
                f"{shlex.join(compiler)} does not compile {SHIM_SOURCE.name}:\n{said}"
            )
        return output

    return made_file(
        built, compile_into, what=f"compiling {SHIM_SOURCE.name}", timeout_s=_PROGRAM_S
    )


def why_no_board(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why no board can be simulated here, with what to install; None where one can.

    A success is remembered in `cache` for these tools.
    """
    try:
        tools = find_tools(environment)
        build_shim(tools.compiler, cache)
        files = (tools.libraries / LOADER, tools.qemu, Path(tools.cross[0]))
        trial = cache / f"trial-{key_of((tools.cross, *map(_identity, files)))}"
        made_file(trial, partial(_try, tools), what="trying arm64 programs", timeout_s=_PROGRAM_S)
    except (HarnessError, OSError) as error:
        return str(error)
    return None


def _try(tools: Tools, folder: Path) -> Path:
    """Compiles a program for the board and runs it."""
    source, program = folder / "trial.c", folder / "trial"
    source.write_text(_TRIAL)
    done = run_program([*tools.cross, str(source), "-o", str(program), "-ldl", "-pthread"])
    if done.returncode != 0:
        raise ConfigError(
            f"{shlex.join(tools.cross)} compiles nothing for arm64 (apt install "
            f"libc6-dev-arm64-cross): {_first_error(done.stderr)}"
        )
    loader, libraries = str(tools.libraries / LOADER), str(tools.libraries)
    ran = run_program([str(tools.qemu), loader, "--library-path", libraries, str(program)])
    if ran.returncode != 0 or ran.stdout != "ran\n":
        raise ConfigError(f"{tools.qemu} does not run arm64 programs: {_first_error(ran.stderr)}")
    return program


def run_program(
    command: Sequence[str], *, timeout_s: float = _PROGRAM_S
) -> subprocess.CompletedProcess[str]:
    """Runs a program of this computer without stdin; what it says is in English.

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


def _first_error(said: str) -> str:
    lines = said.strip().splitlines()
    found = next((line for line in lines if "error" in line), lines[0] if lines else "no words")
    return found[:_KEPT_CHARS]


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()
