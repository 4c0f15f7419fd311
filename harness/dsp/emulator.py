"""The programs of a simulated board's DSP: qemu-hexagon, the loader, and their build.

The loader is built once per source, into the cache.

Abilities are tested: a program of a few words for Hexagon v68 is run for each kind of instruction.
The version is no proof, since a user may have their own build.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import disk_errors, read_note, scratch_folder, write_json
from harness.core.guarded_process import spawn_guarded
from harness.core.verified_folder import key_of, make_file
from harness.dsp.simulated_dsp import DspPrograms

NATIVE: Final = Path(__file__).parent / "native"
FASTRPC: Final = "libcdsprpc.so"
_SHARED_SOURCES: Final = ("board.c", "wire.c", "packets.c")

_FASTRPC_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"),
    # threads of its own may still be ending when the last stub that wanted it is unloaded
    *("-fvisibility=hidden", "-pthread", "-Wl,-z,nodelete"),
)
_COMPILE_S: Final = 120.0
_KEPT_CHARS: Final = 2000
_KEPT_LINES: Final = 30
_PIECE_BYTES: Final = 1 << 16


def native_sources(*, dsp: bool) -> list[str]:
    """Return the sources to compile for the board's CPU, or for its DSP."""
    return [
        str(path)
        for path in sorted(NATIVE.glob("*.[cS]"))
        if path.name in _SHARED_SOURCES or path.name.startswith("cdsprpc") is not dsp
    ]


def key_with_sources(*made_from: object, folder: Path = NATIVE) -> str:
    """Return a cache key of the arguments and the sources in a folder."""
    return key_of((*made_from, *(path.read_bytes() for path in sorted(folder.glob("*.*")))))


def build_library(name: str, command: Sequence[str], inputs: Sequence[str], cache: Path) -> Path:
    """Return a shared library, in its own folder, built once per command and source.

    `inputs` are its sources, the first one first, and libraries. Raises ConfigError if the compiler
    refuses, InfraError if it hangs or the result cannot be kept.
    """
    try:
        status = Path(command[0]).stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    identity = (*command, *inputs, status.st_size, status.st_mtime_ns)
    key = key_with_sources(*identity, folder=Path(inputs[0]).parent)

    def build_into(folder: Path) -> Path:
        words = [*command, "-fPIC", "-shared", *inputs, "-o", name]
        run_build(words, folder=folder, timeout_s=_COMPILE_S)
        return folder / name

    built = cache / f"{name.partition('.')[0]}-{key}" / name
    return make_file(built, build_into, doing=f"compiling {name}", timeout_s=_COMPILE_S)


def build_fastrpc(compiler: Sequence[str], cache: Path) -> Path:
    """Return our libcdsprpc.so for the CPU that `compiler` compiles for, as `build_library`."""
    return build_library(FASTRPC, [*compiler, *_FASTRPC_FLAGS], native_sources(dsp=False), cache)


def run_build(
    command: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run a step of a build in `folder`; it ends with this process, with all it has started.

    `on_line` is called with each line of output. Raises ConfigError with the last ones if it fails,
    InfraError if it takes longer than `timeout_s` or cannot be started.
    """
    deadline, output = Deadline(timeout_s), deque[str](maxlen=_KEPT_LINES)
    name = Path(command[0]).name
    with spawn_guarded(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        rest = b""
        while select.select([process.stdout], [], [], max(0.0, deadline.remaining()))[0]:
            piece = os.read(process.stdout.fileno(), _PIECE_BYTES)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines if piece else [rest]:
                output.append(line.decode("utf-8", "replace")[:_KEPT_CHARS].rstrip())
                if on_line is not None:
                    on_line(output[-1])
            rest = rest[-_KEPT_CHARS:]
            if not piece:
                break
        code = process.wait(deadline)
    if code is None:
        raise InfraError(f"{name} took longer than {timeout_s:g} s")
    if code != 0:
        raise ConfigError(f"{shlex.join(command[:3])} failed ({code}):\n" + "\n".join(output))


VARIABLE: Final = "QNN_HARNESS_QEMU_HEXAGON"
"""The environment variable that names a user's own qemu-hexagon."""

SETUP: Final = "qnn-harness simulator build-dsp"
VECTOR_FLOAT: Final = "vector float"
HMX: Final = "hmx"

PATCH: Final = Path(__file__).parents[2] / "qemu-hexagon"
"""The patch of QEMU; only a checkout has it."""

_SYSTEM: Final = ("qemu-hexagon", "qemu-hexagon-static")
_EXIT: Final = (0x78004000, 0x7800CBC6, 0x5400C004)  # { r0 = #0; r6 = #94 } { trap0(#1) }
_VECTORS: Final = 0x1C41C000  # { v0.w = vadd(v0.w,v1.w) }
_ABILITIES: Final = {
    VECTOR_FLOAT: 0x1FA2E13F,  # { v31.qf32 = vadd(v1.sf,v2.sf) }
    HMX: 0xA6E0C011,  # { mxclracc }
}
_AT: Final = 0x20000
_PAGE: Final = 0x10000
_PROGRAM_S: Final = 20.0
_VERSION: Final = re.compile(r"qemu-hexagon version (\d[\w.+~-]{0,30})")


@dataclass(frozen=True)
class Qemu:
    """A qemu-hexagon that runs integer vector code of Hexagon v68.

    `path` is absolute; `can` has `VECTOR_FLOAT` and `HMX` where it executes these.
    """

    path: Path
    version: str
    can: frozenset[str]


def find_qemu(cache: Path, environment: Mapping[str, str] = os.environ) -> Qemu:
    """Return the user's own qemu-hexagon, else the one built with our patch, else the system's.

    Abilities are remembered in `cache` until the program changes. Raises ConfigError that says
    what is wrong with each and how to get one; InfraError if one hangs.
    """
    lacking = []
    for path in _candidates(cache, environment):
        try:
            return _probe(path, cache)
        except ConfigError as error:
            if environment.get(VARIABLE, "").strip():
                raise ConfigError(str(error), field=VARIABLE) from error
            lacking.append(str(error))
    problems = "; ".join(lacking) or "no qemu-hexagon found"
    raise ConfigError(
        f"{problems}; run `{SETUP}` to build one that runs a whole skel, install qemu-user of "
        f"Debian 13 for integer code (apt install qemu-user), or name your own in {VARIABLE}"
    )


def built_qemu(cache: Path) -> Path:
    """Return the path of the build with this patch; without a patch, that of the newest build."""
    folder = cache / "qemu-hexagon"
    if PATCH.is_dir():
        return folder / patch_key(PATCH) / "qemu-hexagon"
    builds = sorted(folder.glob("*/qemu-hexagon"), key=lambda path: path.stat().st_mtime)
    return builds[-1] if builds else folder / "none" / "qemu-hexagon"


def patch_key(patch: Path) -> str:
    """Return the cache key of a patch. Raises ConfigError if it cannot be read."""
    files = sorted(path for path in patch.rglob("*") if path.is_file() and path.suffix != ".md")
    try:
        contents = [(path.relative_to(patch).as_posix(), path.read_bytes()) for path in files]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    return key_of(contents)


def probe_abilities(path: Path, folder: Path) -> tuple[str, frozenset[str]]:
    """Return the version and the abilities of a qemu-hexagon, tested in a scratch folder.

    Raises ConfigError if it is none, or does not run vector code of v68; InfraError if it hangs.
    """
    output: list[str] = []
    _run(path, "--version", folder, output)
    version = _VERSION.search("\n".join(output))
    if version is None:
        raise ConfigError(f"{path} is not qemu-hexagon: it prints no version")
    program = folder / "trial"
    if not _runs(path, program, [_VECTORS]):
        raise ConfigError(
            f"{path}, version {version[1]}, does not run vector code for Hexagon v68 (10.0 does)"
        )
    can = {name for name, word in _ABILITIES.items() if _runs(path, program, [word])}
    return version[1], frozenset(can)


def hexagon_program(words: Sequence[int], data: bytes = b"", *, data_at: int = 0x400000) -> bytes:
    """Return an ELF program for Hexagon v68 under Linux: code, and writable data at an address."""
    begin, code = 52 + 2 * 32, struct.pack(f"<{len(words)}I", *words)
    head = (2, 164, 1, _AT + begin, 52, 0, 0x68, 52, 32, 2 if data else 1, 40, 0, 0)
    parts = (
        struct.pack("<16s2H5I6H", b"\x7fELF\x01\x01\x01", *head),
        struct.pack("<8I", 1, 0, _AT, _AT, begin + len(code), begin + len(code), 5, _PAGE),
        struct.pack("<8I", 1, _PAGE, data_at, data_at, len(data), len(data), 6, _PAGE),
        code,
    )
    return b"".join(parts).ljust(_PAGE, b"\0") + data


def _candidates(cache: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    path = environment.get("PATH")
    if named := environment.get(VARIABLE, "").strip():
        program = shutil.which(named, path=path)
        if program is None:
            raise ConfigError(f"{named} is not a program", field=VARIABLE)
        yield Path(program).absolute()
        return
    if (built := built_qemu(cache)).is_file():
        yield built
    for name in _SYSTEM:
        if program := shutil.which(name, path=path):
            yield Path(program).absolute()


def _probe(path: Path, cache: Path) -> Qemu:
    with disk_errors(f"cannot try {path}"):
        status = path.stat()
        identity = (str(path), status.st_size, status.st_mtime_ns, _ABILITIES)
        key = hashlib.sha256(repr(identity).encode()).hexdigest()
        note = cache / "qemu-hexagon" / f"tried-{key[:24]}.json"
        known = read_note(note)
        if known is None:
            note.parent.mkdir(parents=True, exist_ok=True)
            with scratch_folder(note.parent) as folder:
                version, can = probe_abilities(path, folder)
            write_json(note, {"sha256": key, "version": version, "can": sorted(can)})
            return Qemu(path, version, can)
    return Qemu(path, str(known["version"]), frozenset(known["can"]))


def _runs(qemu: Path, program: Path, words: Sequence[int]) -> bool:
    program.write_bytes(hexagon_program([*words, *_EXIT]))
    program.chmod(0o700)
    try:
        _run(qemu, str(program), program.parent, [])
    except ConfigError:
        return False
    return True


def _run(qemu: Path, argument: str, folder: Path, output: list[str]) -> None:
    command = [str(qemu), argument]
    run_build(command, folder=folder, timeout_s=_PROGRAM_S, on_line=output.append)


DSP_ARCHS: Final = (68, 69, 73, 75, 79)
"""Hexagon versions whose skels the loader runs, of QNN 2.40 to 2.51; v81's has a C++ library of its
own, which needs more of the C library than the loader has."""

COMPILER_VARIABLE: Final = "QNN_HARNESS_HEXAGON_CC"
"""The variable with a compiler for hexagon-linux-musl with libc++, and its first arguments."""

_ZIG: Final = "ziglang"
_FLAGS: Final = (
    *("-mcpu=hexagonv68", "-static", "-fno-pie", "-std=gnu11", "-O2", "-Wall", "-Wextra"),
    *("-Wno-unused-command-line-argument", "-Werror"),
)
_LIBRARIES: Final = ("-lc++", "-lm")
_BUILD_S: Final = 1200.0
_DOING: Final = "compiling the loader of a DSP's code"

_log = logging.getLogger(__name__)


def build_loader(cache: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the loader, built into `cache` if it is new, with its C++ library.

    Raises ConfigError if there is no compiler, or if it refuses; InfraError if it hangs or the
    result cannot be kept.
    """
    built = _loader_path(cache, environment)

    def build_into(folder: Path) -> Path:
        command = _compiler(environment)
        if command is None:
            raise ConfigError(_compiler_advice())
        _log.info(f"{_DOING}; the first time takes some minutes")
        zig = {
            "ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
        }
        run_build(
            [*command, *_FLAGS, *native_sources(dsp=True), *_LIBRARIES, "-o", built.name],
            folder=folder,
            timeout_s=_BUILD_S,
            environment={**environment, **zig},
        )
        return folder / built.name

    return make_file(built, build_into, doing=_DOING, timeout_s=_BUILD_S)


def loader_missing(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why a DSP cannot start at once: its loader is not compiled.

    None if it exists, or nothing can compile it. Raises ConfigError.
    """
    if _loader_path(cache, environment).is_file() or _compiler(environment) is None:
        return None
    return "the loader of its DSP is not compiled yet; the first run compiles it in some minutes"


def why_no_loader(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why no loader can be built, with what to install; None if it exists or can be."""
    if _loader_path(cache, environment).is_file() or _compiler(environment) is not None:
        return None
    return _compiler_advice()


def _compiler_advice() -> str:
    return (
        "no compiler for Hexagon; pip install 'qnn-harness[dsp]', or name your own in "
        f"{COMPILER_VARIABLE}"
    )


def _compiler(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    named = shlex.split(environment.get(COMPILER_VARIABLE, ""))
    if named:
        program = shutil.which(named[0], path=environment.get("PATH"))
        return None if program is None else (program, *named[1:])
    zig = find_zig()
    return None if zig is None else (*zig, "cc", "-target", "hexagon-linux-musl")


def find_zig() -> tuple[str, ...] | None:
    """Return the command of the wheel `ziglang`, None where it is not installed."""
    return (sys.executable, "-m", _ZIG) if importlib.util.find_spec(_ZIG) else None


def _loader_path(cache: Path, environment: Mapping[str, str]) -> Path:
    key = key_with_sources(environment.get(COMPILER_VARIABLE), _FLAGS, _LIBRARIES)
    return cache / f"loader-{key}"


def dsp_programs(cache: Path, environment: Mapping[str, str] = os.environ) -> DspPrograms:
    """Return the emulator, and the loader, which is built into `cache` if it is new.

    Raises ConfigError naming what is missing, or the compiler's errors; InfraError if one of them
    hangs.
    """
    emulator = find_qemu(cache, environment).path
    return DspPrograms(emulator, build_loader(cache, environment).absolute())


def why_no_dsp(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why no DSP can be simulated here, with what to install; None if one can.

    Builds nothing.
    """
    try:
        find_qemu(cache, environment)
    except HarnessError as error:
        return str(error)
    return why_no_loader(cache, environment)


def lacks_floats(cache: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the emulator lacks vector instructions for floating point.

    Raises as `dsp_programs`.
    """
    return VECTOR_FLOAT not in find_qemu(cache, environment).can
