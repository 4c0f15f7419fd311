"""Builds what a simulated board's DSP is made of, once per source and compiler."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.ground import ConfigError, InfraError, disk_errors
from harness.ground.files.verified_folder import made_file

NATIVE: Final = Path(__file__).parent / "native"
FASTRPC: Final = "libcdsprpc.so"
DSP_ARCHS: Final = (73,)
"""The Hexagons whose skels the loader takes."""

_FASTRPC_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"),
    *("-fvisibility=hidden", "-pthread"),
)
_COMPILE_S: Final = 120.0
_KEPT_CHARS: Final = 2000


def build_fastrpc(compiler: Sequence[str], cache: Path) -> Path:
    """Our libcdsprpc.so for the CPU that `compiler` compiles for, in a folder of its own.

    Raises ConfigError if the compiler refuses, InfraError if it hangs or the result cannot be kept.
    """
    sources = sorted(NATIVE.glob("cdsprpc*.c"))
    headers = [NATIVE / "cdsprpc.h", NATIVE / "wire.h"]
    try:
        contents = [file.read_bytes() for file in (*sources, *headers)]
        status = Path(compiler[0]).stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    identity = (*compiler, status.st_size, status.st_mtime_ns, *_FASTRPC_FLAGS, *contents)
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:24]

    def make(folder: Path) -> Path:
        output = folder / FASTRPC
        _compile([*compiler, *_FASTRPC_FLAGS, *map(str, sources), "-o", str(output)], output)
        return output

    built = cache / f"fastrpc-{key}" / FASTRPC
    return made_file(built, make, what=f"compiling {FASTRPC}", timeout_s=_COMPILE_S)


def _compile(command: Sequence[str], output: Path) -> None:
    """Runs a compiler. Raises ConfigError with what it said, InfraError if it hangs."""
    try:
        with disk_errors(f"cannot run {command[0]}"):
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_COMPILE_S,
                encoding="utf-8",
                errors="replace",
            )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{command[0]} took longer than {_COMPILE_S:g} s") from None
    if done.returncode != 0 or not output.is_file():
        said = done.stderr[-_KEPT_CHARS:]
        raise ConfigError(f"{shlex.join(command[:2])} does not compile {output.name}:\n{said}")
