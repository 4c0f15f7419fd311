"""A stand-in for Android's NDK: its layout, and compilers whose programs look like the NDK's.

They are scripts around the cross compiler of the distribution. What comes out is linked with a C
library that is called libc.so, has Android's program interpreter and the note with the API level,
so that everything the harness reads of a file is as the NDK makes it; nothing of it runs anywhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

CROSS = "aarch64-linux-gnu-gcc"

_CLANG = """#!/bin/sh
# a stand-in for the NDK's compiler for API {level}
[ "$1" = --version ] && {{ echo "stand-in for the NDK's clang, API {level}"; exit 0; }}
exec {cross} -D__ANDROID__ -D__ANDROID_API__={level} "$@" {folder}/note.o -nodefaultlibs \\
  -nostartfiles -L{folder} -Wl,-dynamic-linker=/system/bin/linker64 \\
  -Wl,--unresolved-symbols=ignore-all -Wl,-e,main -lc
"""
_NOTE = """
__attribute__((section(".note.android.ident"), aligned(4), used))
static const struct {{ unsigned name, size, kind; char owner[8]; unsigned api; char more[128]; }}
note = {{8, 132, 1, "Android", {level}, "stand-in"}};
"""


def make_stand_in_ndk(root: Path, levels: tuple[int, ...] = (21, 30, 34)) -> Path:
    """Lays out a folder like an NDK's, with a compiler for each API level."""
    bin_folder = root / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    bin_folder.mkdir(parents=True)
    (root / "source.properties").write_text("Pkg.Desc = stand-in\nPkg.Revision = 0.0.1\n")
    for level in levels:
        folder = root / f"made/{level}"
        folder.mkdir(parents=True)
        (folder / "note.c").write_text(_NOTE.format(level=level))
        (folder / "empty.c").write_text("void stand_in_libc(void) {}\n")
        _run(CROSS, "-c", "-fPIC", folder / "note.c", "-o", folder / "note.o")
        shared = ("-shared", "-nostdlib", "-Wl,-soname,libc.so")
        _run(CROSS, *shared, folder / "empty.c", "-o", folder / "libc.so")
        clang = bin_folder / f"aarch64-linux-android{level}-clang"
        clang.write_text(_CLANG.format(level=level, cross=CROSS, folder=folder))
        clang.chmod(0o755)
    return root


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=60)
