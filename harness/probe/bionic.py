"""The probe for Android without an NDK: compiled and linked by the wheel `ziglang`.

It compiles for musl, whose headers are in the wheel; native/bionic.h corrects what bionic, the C
library of Android, has otherwise. The linker gets stubs of bionic's libraries, made of the names in
bionic_symbols.txt: what the oldest Android lacks is an error here, not on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

API: Final = 24
"""The oldest level that the probe is for, Android 7."""

CC: Final = ("cc", "-target", "aarch64-linux-musl")
FLAGS: Final = (
    *("-O2", "-g0", "-fPIE", "-r", "-include", "bionic.h", "-D__ANDROID__", f"-DPROBE_API={API}"),
    # as clang does for Android: x18 is the shadow call stack's, and there is no bcmp
    *("-ffixed-x18", "-fno-builtin-bcmp", "-fno-stack-protector"),
)
OBJECT: Final = "probe.o"
_LD: Final = ("ld.lld", "-m", "aarch64linux")
_PIE: Final = (
    *("-pie", "--dynamic-linker=/system/bin/linker64", "-z", "relro", "-z", "now"),
    # for phones with pages of 16 KB, which load no program laid out for 4 KB
    *("-z", "max-page-size=16384", "--hash-style=gnu", "--eh-frame-hdr", "--build-id=sha1"),
)
_SYMBOLS: Final = Path(__file__).with_name("bionic_symbols.txt")


class Symbol(NamedTuple):
    """A function of bionic, its version, and the API level since which it is there."""

    library: str
    version: str
    since: int
    name: str


def read_symbols() -> list[Symbol]:
    """Return the functions that the probe may import."""
    lines = (line.split() for line in _SYMBOLS.read_text().splitlines() if line[:1] != "#")
    return [Symbol(library, version, int(since), name) for library, version, since, name in lines]


def identity() -> str:
    """Return all that decides how the probe is linked."""
    return " ".join((*_LD, *_PIE, _SYMBOLS.read_text()))


def links(folder: Path, program: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield outputs and zig's arguments that link them, in a folder with the compiled `OBJECT`."""
    libraries = []
    for library in ("libdl.so", "libc.so"):
        offered = [each for each in read_symbols() if each.library == library and each.since <= API]
        versions = {symbol.version: "" for symbol in offered}
        for symbol in offered:
            versions[symbol.version] += f"{symbol.name};"
        script = folder / f"{library}.map"
        script.write_text(
            "".join(f"{name} {{ global: {names} }};\n" for name, names in versions.items())
        )
        defined = (f"--defsym={symbol.name}=0" for symbol in offered)
        # the linker wants a file, of whatever content
        shared = ("-shared", f"-soname={library}", f"--version-script={script}", *defined)
        libraries.append(str(folder / library))
        yield folder / library, [*_LD, *shared, "--format=binary", str(script)]
    yield folder / program, [*_LD, *_PIE, str(folder / OBJECT), *libraries]
