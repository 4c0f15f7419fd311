"""Programs of this host built for Android, and run by its real linker and C library.

x86-64 programs run as they are: their interpreter is the linker of the kit, and their run path its
libraries. arm64 ones run under qemu. Neither needs root or a mount.
"""

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.probe.build import PROBE_NAME, ProbeBuilder, read_sources, source_hash
from harness.probe.plan import SOURCE_FOLDER
from tests.needed import ANDROID, need

API = 30
"""The level of the kit's systems, Android 11."""

X64, ARM64 = "bionic-x64", "bionic-arm64"
BIONIC = (X64, ARM64)

_WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O1")
# Android's crash handler cannot start its thread under qemu and ends the process with code 1
_PLAIN_SIGNALS = """
#include <signal.h>
__attribute__((constructor)) static void plain_signals(void) {
    static const int all[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSTKFLT, SIGSYS, SIGTRAP};
    for (unsigned i = 0; i < sizeof all / sizeof *all; ++i) signal(all[i], SIG_DFL);
}
"""


@dataclass(frozen=True)
class ProbeBuild:
    """A probe that runs on this host, and what compiles libraries for it."""

    probe: Path
    compiler: str
    libm: str = "libm.so"
    """A library that is there and none of QNN's."""


def roots() -> Path:
    """The kit's folder; leaves the test out where there is none."""
    need(ANDROID)
    return Path(os.environ[ANDROID])


def x64_root() -> Path:
    """The root of an Android for x86-64: its shell, linker, libraries and programs."""
    return roots() / "x86_64-android11"


def ndk() -> Path:
    return roots() / "ndk"


def stub_libraries(api: int) -> tuple[Path, ...]:
    """Stub libraries to link programs for arm64 with: all the symbols of an API level."""
    sysroot = ndk() / "toolchains/llvm/prebuilt/linux-x86_64/sysroot"
    folder = sysroot / f"usr/lib/aarch64-linux-android/{api}"
    return folder / "libc.so", folder / "libdl.so"


def compiler(kind: str, api: int = API) -> str:
    """The NDK's compiler for an architecture and an API level."""
    arch = {X64: "x86_64", ARM64: "aarch64"}[kind]
    return str(ndk() / f"toolchains/llvm/prebuilt/linux-x86_64/bin/{arch}-linux-android{api}-clang")


def bionic_probe(kind: str, cache: Path, folder: Path) -> ProbeBuild:
    """The probe for one of `BIONIC`, to be run on this host as any program."""
    if kind == ARM64:
        return under_qemu(ProbeBuilder(cache).build("android-arm64"), folder)
    system = x64_root() / "system"
    native = (f"-Wl,-dynamic-linker,{system}/bin/linker64", f"-Wl,-rpath,{system}/lib64")
    return ProbeBuild(android_probe(folder, *native), compiler(X64))


def android_probe(folder: Path, *flags: str, cc: str | None = None) -> Path:
    """The probe as the NDK builds it: by default for x86-64, which is no target of the harness."""
    probe = folder / PROBE_NAME
    sources = [SOURCE_FOLDER / name for name in read_sources() if name.endswith(".c")]
    identity = f'-DPROBE_SOURCE="{source_hash(read_sources())}"'
    compile_c(cc or compiler(X64), *sources, *flags, identity, "-fPIE", "-pie", "-o", probe, "-ldl")
    return probe


def under_qemu(built: Path, folder: Path) -> ProbeBuild:
    """A probe for phones; its name is qemu's, too, since threads are named after that."""
    need("qemu-aarch64")
    root = roots() / "arm64-android11"
    signals = plain_signals(folder)
    qemu = folder / "qemu" / PROBE_NAME
    qemu.parent.mkdir()
    qemu.symlink_to(str(shutil.which("qemu-aarch64")))
    probe = folder / PROBE_NAME
    words = (qemu, "-L", root, "-E", f"LD_PRELOAD={signals}", built)
    probe.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
    probe.chmod(0o755)
    return ProbeBuild(probe, compiler(ARM64))


def plain_signals(folder: Path) -> Path:
    """A library to be preloaded into arm64 programs, so that a crash is a signal under qemu too."""
    source, library = folder / "plain_signals.c", folder / "libplain_signals.so"
    source.write_text(_PLAIN_SIGNALS)
    compile_c(compiler(ARM64), source, "-shared", "-fPIC", "-o", library)
    return library


def compile_c(cc: str, *arguments: object) -> None:
    """Compiles without a warning, or fails with what the compiler said."""
    command = [cc, *_WARNINGS, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
