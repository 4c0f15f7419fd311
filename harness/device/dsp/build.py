"""Builds what a simulated board's DSP is made of, once per source and compiler."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.verified_folder import key_of, made_file
from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import spawn_guarded

NATIVE: Final = Path(__file__).parent / "native"
FASTRPC: Final = "libcdsprpc.so"
_BOTH_SIDES: Final = ("board.c", "wire.c", "packets.c")

_FASTRPC_FLAGS: Final = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"),
    # threads of its own may still be ending when the last stub that wanted it is unloaded
    *("-fvisibility=hidden", "-pthread", "-Wl,-z,nodelete"),
)
_COMPILE_S: Final = 120.0
_KEPT_CHARS: Final = 2000
_KEPT_LINES: Final = 30
_PIECE_BYTES: Final = 1 << 16


def native_sources(*, dsp: bool) -> list[str]:
    """What is compiled for the board's CPU, or for its DSP."""
    return [
        str(one)
        for one in sorted(NATIVE.glob("*.[cS]"))
        if one.name in _BOTH_SIDES or one.name.startswith("cdsprpc") is not dsp
    ]


def key_with_sources(*made_from: object, program: Path | None = None) -> str:
    """What tells apart what is made from these and the sources by a program. Raises ConfigError."""
    contents = [one.read_bytes() for one in sorted(NATIVE.glob("*.*"))]
    try:
        status = program.stat() if program else None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    changed = (status.st_size, status.st_mtime_ns) if status else ()
    return key_of((*made_from, *changed, *contents))


def build_fastrpc(compiler: Sequence[str], cache: Path) -> Path:
    """Our libcdsprpc.so for the CPU that `compiler` compiles for, in a folder of its own.

    Raises ConfigError if the compiler refuses, InfraError if it hangs or the result cannot be kept.
    """
    command = [*compiler, *_FASTRPC_FLAGS]
    key = key_with_sources(*command, program=Path(compiler[0]))

    def make(folder: Path) -> Path:
        words = [*command, *native_sources(dsp=False), "-o", FASTRPC]
        run_build(words, folder=folder, timeout_s=_COMPILE_S)
        return folder / FASTRPC

    built = cache / f"fastrpc-{key}" / FASTRPC
    return made_file(built, make, what=f"compiling {FASTRPC}", timeout_s=_COMPILE_S)


def run_build(
    command: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Runs a step of a build in `folder`, and what it starts; all of it ends with this process.

    `on_line` takes each line that it prints. Raises ConfigError with the last of them if it fails,
    InfraError if it takes longer than `timeout_s` or cannot be started.
    """
    deadline, said = Deadline(timeout_s), deque[str](maxlen=_KEPT_LINES)
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
                said.append(line.decode("utf-8", "replace")[:_KEPT_CHARS].rstrip())
                if on_line is not None:
                    on_line(said[-1])
            rest = rest[-_KEPT_CHARS:]
            if not piece:
                break
        code = process.wait(deadline)
    if code is None:
        raise InfraError(f"{name} took longer than {timeout_s:g} s")
    if code != 0:
        raise ConfigError(f"{shlex.join(command[:3])} ended with {code}:\n" + "\n".join(said))
