"""Builds the skel of the tests' own, with the compiler that the loader is built with."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

SKEL: Final = "libStandInV68Skel.so"
URI: Final = f"file:///{SKEL}?test_skel_handle_invoke&_modver=1.0&_dom=cdsp"
_SOURCE: Final = Path(__file__).parent / "skel_stand_in.cc"
_ZIG: Final = (sys.executable, "-m", "ziglang")
_CPU: Final = "-mcpu=hexagonv68"
_FLAGS: Final = (
    *("-target", "hexagon-freestanding-none", _CPU, "-std=c++17", "-O1", "-g0", "-fPIC"),
    *("-fexceptions", "-fasynchronous-unwind-tables", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-Wall", "-Wextra", "-Werror"),
)
_LINKED: Final = ("-target", "hexagon-linux-musl", _CPU, "-shared", "-nostdlib", "-Wl,-z,undefs")
_FRAMES: Final = '.section .eh_frame,"a",@progbits\n'
_PARTS: Final = {
    "begin.S": _FRAMES + ".globl frames_begin\n.hidden frames_begin\nframes_begin:\n",
    "end.S": _FRAMES + ".long 0\n",
}
"""What lies around a library's frames: where they begin, and their end."""


def build_skel(folder: Path, zig_cache: Path) -> Path:
    """The skel, in a folder for that alone."""
    for name, text in _PARTS.items():
        (folder / name).write_text(text)
    objects = []
    for source in (folder / "begin.S", _SOURCE, folder / "end.S"):
        objects.append(folder / f"{source.name}.o")
        _run("c++", *_FLAGS, "-c", str(source), "-o", str(objects[-1]), caches=(zig_cache, folder))
    output = folder / SKEL
    _run("cc", *_LINKED, *map(str, objects), "-o", str(output), caches=(zig_cache, folder))
    return output


def _run(*words: str, caches: tuple[Path, Path]) -> None:
    variables = {"ZIG_GLOBAL_CACHE_DIR": caches[0], "ZIG_LOCAL_CACHE_DIR": caches[1] / "zig"}
    environment = {**os.environ, **{name: str(path) for name, path in variables.items()}}
    subprocess.run([*_ZIG, *words], check=True, timeout=300, env=environment)
