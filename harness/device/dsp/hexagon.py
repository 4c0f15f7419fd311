"""Builds the loader of a DSP's code, which qemu-hexagon runs: once per source, into the cache."""

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

from harness.device.dsp.build import BOTH_SIDES, NATIVE, run_build
from harness.ground import ConfigError
from harness.ground.files.notices import working
from harness.ground.files.verified_folder import key_of, made_file

DSP_ARCHS: Final = (68, 69, 73, 75, 79)
"""The Hexagons whose skels the loader takes, of QNN 2.40 to 2.51; v81's brings a C++ library of its
own, which wants more of the C library than is here."""

COMPILER_VARIABLE: Final = "QNN_HARNESS_HEXAGON_CC"
"""Names a compiler for hexagon-linux-musl with libc++, and its first words."""

_ZIG: Final = "ziglang"
_SOURCES: Final = (
    *("loader.c", "faults.c", "qurt.c", "hap.c", "service.c", "queue.c", "imports.S"),
    *BOTH_SIDES,
)
_HEADERS: Final = ("loader.h", "board.h", "wire.h")
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
        output = folder / built.name
        words = [*command, *_FLAGS, *(str(NATIVE / one) for one in _SOURCES), *_LIBRARIES]
        zig = {
            "ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
            "ZIG_VERBOSE_CC": "1",  # a line for each file, those of the C library among them
        }
        files = itertools.count(1)
        with working("") as tell:
            run_build(
                [*words, "-o", str(output)],
                folder=folder,
                timeout_s=_BUILD_S,
                environment={**environment, **zig},
                on_line=lambda _: tell(_DOING, min(next(files), _FILES), _FILES),
            )
        return output

    return made_file(built, make, what=_DOING, timeout_s=_BUILD_S)


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
    contents = [(NATIVE / one).read_bytes() for one in (*_SOURCES, *_HEADERS)]
    identity = (environment.get(COMPILER_VARIABLE), _FLAGS, _LIBRARIES, *contents)
    key = key_of(identity)
    return cache / f"loader-{key}"
