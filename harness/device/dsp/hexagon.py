"""The programs that a simulated DSP is made of here: the emulator, and the loader that it runs.

The loader is built once per source, into the cache.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.device.dsp.build import key_with_sources, native_sources, run_build
from harness.device.dsp.dsp import DspPrograms
from harness.device.dsp.qemu import VECTOR_FLOAT, find_qemu
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.files.notices import working
from harness.ground.files.verified_folder import holder_of, lock_of, made_file

DSP_ARCHS: Final = (68, 69, 73, 75, 79)
"""The Hexagons whose skels the loader takes, of QNN 2.40 to 2.51; v81's brings a C++ library of its
own, which wants more of the C library than is here."""

COMPILER_VARIABLE: Final = "QNN_HARNESS_HEXAGON_CC"
"""Names a compiler for hexagon-linux-musl with libc++, and its first words."""

_ZIG: Final = "ziglang"
_FLAGS: Final = (
    *("-mcpu=hexagonv68", "-static", "-fno-pie", "-std=gnu11", "-O2", "-Wall", "-Wextra"),
    *("-Wno-unused-command-line-argument", "-Werror"),
)
_LIBRARIES: Final = ("-lc++", "-lm")
_BUILD_S: Final = 1200.0
_DOING: Final = "compiling the loader of a DSP's code"
_FILES: Final = 1145
"""So many files zig 0.17 compiles the first time, its C and C++ libraries among them."""

_log = logging.getLogger(__name__)


def build_loader(cache: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The loader, built into `cache` if it is new; its C++ library is compiled then, too.

    Raises ConfigError if there is no compiler, or if it refuses; InfraError if it hangs or the
    result cannot be kept.
    """
    built = _built(cache, environment)

    def make(folder: Path) -> Path:
        command = _compiler(environment)
        if command is None:
            raise ConfigError(_lacking())
        _log.info(f"{_DOING}; the first time takes some minutes")
        zig = {
            "ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
            "ZIG_VERBOSE_CC": "1",  # a line for each file, those of the C library among them
        }
        files = itertools.count(1)
        with working("") as tell:
            run_build(
                [*command, *_FLAGS, *native_sources(dsp=True), *_LIBRARIES, "-o", built.name],
                folder=folder,
                timeout_s=_BUILD_S,
                environment={**environment, **zig},
                on_line=lambda _: tell(_DOING, min(next(files), _FILES), _FILES),
            )
        return folder / built.name

    return made_file(built, make, what=_DOING, timeout_s=_BUILD_S)


def loader_missing(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a DSP would not begin at once: its loader is to be compiled first, or is being compiled.

    None where it is there, or nothing can compile it. Raises ConfigError, InfraError.
    """
    built = _built(cache, environment)
    if built.is_file() or _compiler(environment) is None:
        return None
    who = holder_of(lock_of(built))
    if who is not None:
        return f"{who} is at {_DOING}"
    return "its DSP's loader is not compiled yet: the first run does it, in some minutes"


def why_no_loader(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why there can be no loader, with what to install; None if it is there or can be built."""
    if _built(cache, environment).is_file() or _compiler(environment) is not None:
        return None
    return _lacking()


def _lacking() -> str:
    return (
        "no compiler for Hexagon: pip install 'qnn-harness[dsp]' has one, or name your own in "
        f"{COMPILER_VARIABLE}"
    )


def _compiler(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    named = shlex.split(environment.get(COMPILER_VARIABLE, ""))
    if named:
        found = shutil.which(named[0], path=environment.get("PATH"))
        return None if found is None else (found, *named[1:])
    if importlib.util.find_spec(_ZIG) is None:
        return None
    return (sys.executable, "-m", _ZIG, "cc", "-target", "hexagon-linux-musl")


def _built(cache: Path, environment: Mapping[str, str]) -> Path:
    key = key_with_sources(environment.get(COMPILER_VARIABLE), _FLAGS, _LIBRARIES)
    return cache / f"loader-{key}"


def dsp_programs(cache: Path, environment: Mapping[str, str] = os.environ) -> DspPrograms:
    """The emulator, and the loader, which is built into `cache` if it is new.

    Raises ConfigError naming what is missing, or what the compiler said; InfraError if one of them
    hangs.
    """
    emulator = find_qemu(cache, environment).path
    return DspPrograms(emulator, build_loader(cache, environment).absolute())


def why_no_dsp(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why no DSP can be simulated here, with what to install; None where one can.

    Nothing is built for it.
    """
    try:
        find_qemu(cache, environment)
    except HarnessError as error:
        return str(error)
    return why_no_loader(cache, environment)


def lacks_floats(cache: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the emulator has no vector instructions for floating point.

    Raises as `dsp_programs`.
    """
    return VECTOR_FLOAT not in find_qemu(cache, environment).can
