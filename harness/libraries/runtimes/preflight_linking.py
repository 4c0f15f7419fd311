"""Preflight, the dynamic loader's part: processors, C libraries, and who provides what is needed.

Pure. What a target's system has is a table with its sources, unless the device was asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.ground.facts.backends import RPC_LIBRARY
from harness.ground.facts.platforms import PLATFORMS, Target
from harness.ground.facts.socs import SOCS, Soc
from harness.libraries.runtimes.elf import ElfFacts
from harness.libraries.runtimes.findings import Finding, finding
from harness.libraries.runtimes.library_facts import LibraryFacts

# glibc's own libraries, and what every distribution with a C++ program on it has. libcdsprpc.so:
# qualcomm/fastrpc, part of the images of Qualcomm's boards.
_LINUX: Final = frozenset(
    (
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("libresolv.so.2", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libatomic.so.1"),
    )
)

SYSTEM_LIBRARIES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "linux-x64": _LINUX | {"ld-linux-x86-64.so.2"},
        "linux-arm64": _LINUX | {"ld-linux-aarch64.so.1", RPC_LIBRARY, "libadsprpc.so"},
        # The NDK's list of native APIs, and the libraries that vendors of Snapdragon phones
        # publish in /vendor/etc/public.libraries.txt. libc++_shared.so comes with an app.
        "android-arm64": frozenset(
            (
                *("libc.so", "libm.so", "libdl.so", "liblog.so", "libandroid.so", "libz.so"),
                *("libEGL.so", "libGLESv2.so", "libGLESv3.so", "libvulkan.so", "libmediandk.so"),
                *("libnativewindow.so", "libjnigraphics.so", "libneuralnetworks.so", "libsync.so"),
                *("libcdsprpc.so", "libadsprpc.so", "libOpenCL.so"),
            )
        ),
    }
)
_DSP_LIBRARIES: Final = frozenset(
    ("libc++.so.1", "libc++abi.so.1", "libc.so", "libgcc.so", "libm.so", "libdl.so")
)
"""What the DSP's own file system has (/usr/lib/rfsa, /dsp): the SDK ships none of them."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a device; None for what is not.

    `soc` as in SM8550, `htp_arch` as in 73, `glibc` as in 2.35. `libraries` are the file names on
    its library path besides what is pushed, if it was asked. `page_bytes` is how large pages of its
    memory are. `lacks_floats`: its DSP is an emulator
    without vector instructions for floating point.
    """

    target: Target
    soc: str | None = None
    htp_arch: int | None = None
    glibc: str | None = None
    android_api: int | None = None
    libraries: frozenset[str] | None = None
    page_bytes: int | None = None
    lacks_floats: bool = False

    @property
    def known_soc(self) -> Soc | None:
        return SOCS.get((self.soc or "").upper())

    @property
    def arch(self) -> int | None:
        """Its HTP, as it says or as its SoC has."""
        if self.htp_arch is not None or self.known_soc is None:
            return self.htp_arch
        return self.known_soc.htp_arch

    @property
    def simulates_htp(self) -> bool:
        return self.target == "linux-x64"

    @property
    def libc(self) -> str:
        return PLATFORMS[self.target].libc


def linking_findings(files: Sequence[LibraryFacts], device: TargetFacts) -> Iterator[Finding]:
    """What the dynamic loader of the device, or the DSP's, will say of the files."""
    fit: list[tuple[LibraryFacts, ElfFacts]] = []
    for file in files:
        wrong = _misfit(file, device)
        if wrong is not None:
            yield wrong
        elif file.elf is not None:
            fit.append((file, file.elf))
            yield from _too_new(file, file.elf, device)
    yield from _missing(fit, device)


def _misfit(file: LibraryFacts, device: TargetFacts) -> Finding | None:
    """The one reason for which a file cannot be loaded there at all."""
    if file.elf is None:
        return finding(
            "elf-damaged",
            (file.name,),
            f"{file.name} is no use: {file.problem}",
            "Fetch or copy it again",
        )
    elf, skel = file.elf, file.kind == "skel"
    machine = "hexagon" if skel else PLATFORMS[device.target].machine
    bits = 32 if skel else 64
    if (elf.machine, elf.bits) != (machine, bits):
        return finding(
            "wrong-machine",
            (file.name,),
            f"{file.name} is for {elf.machine} with {elf.bits} bits, and must be for {machine} "
            f"with {bits} bits on {device.target}",
            f"Take the file for {device.target}"
            + (" (in the SDK: lib/hexagon-vXX/unsigned)" if skel else ""),
        )
    if elf.libc is not None and elf.libc != device.libc:
        systems = {"bionic": "Android", "glibc": "Linux"}
        return finding(
            "wrong-libc",
            (file.name,),
            f"{file.name} was built for {systems[elf.libc]} ({elf.libc}), and {device.target} has "
            f"{device.libc}",
            f"Take the file for {device.target}",
        )
    return None


def _too_new(file: LibraryFacts, elf: ElfFacts, device: TargetFacts) -> Iterator[Finding]:
    has = _VERSION.match(device.glibc or "")
    if elf.min_glibc and has and elf.min_glibc > (int(has[1]), int(has[2])):
        needs = ".".join(str(number) for number in elf.min_glibc)
        yield finding(
            "glibc-too-old",
            (file.name,),
            f"{file.name} needs glibc {needs}, and the device has {device.glibc}: version "
            f"`GLIBC_{needs}' not found",
            "Take libraries for an older distribution (in the SDK: aarch64-oe-linux-gcc*), or "
            "update the device",
        )
    if elf.android_api and device.android_api and elf.android_api > device.android_api:
        yield finding(
            "android-api",
            (file.name,),
            f"{file.name} was built for Android API {elf.android_api}, and the device has "
            f"{device.android_api}: functions may be missing",
            "Update the device, or take libraries built for its API level",
        )
    pages, fits = device.page_bytes, elf.page_bytes
    # the DSP maps its own files, with pages of its own
    if pages and fits and fits < pages and elf.machine != "hexagon":
        yield finding(
            "page-size",
            (file.name,),
            f"{file.name} is laid out for memory pages of {fits >> 10} KB at most, and the "
            f"device's have {pages >> 10}: the linker refuses it",
            "Take libraries linked with -z max-page-size=16384 or more (NDK r28 does so by "
            "itself), or boot the device with 4 KB pages (a developer option of Android 15)",
        )


def _missing(
    files: Sequence[tuple[LibraryFacts, ElfFacts]], device: TargetFacts
) -> Iterator[Finding]:
    system = device.libraries
    if system is None:
        system = SYSTEM_LIBRARIES[device.target]
    provided = {
        "cpu": system | {file.file_name for file, elf in files if elf.machine != "hexagon"},
        "dsp": _DSP_LIBRARIES | {file.file_name for file, elf in files if elf.machine == "hexagon"},
    }
    needing: dict[str, list[str]] = defaultdict(list)
    for file, elf in files:
        for needed in elf.needed:
            if needed not in provided["dsp" if elf.machine == "hexagon" else "cpu"]:
                needing[needed].append(file.name)
    for needed, names in sorted(needing.items()):
        yield finding(
            "needed-missing",
            tuple(names),
            f"{needed} is needed by {', '.join(names)}; it is not among the files, and "
            + ("not on the device" if device.libraries is not None else "no part of the system"),
            _where_to_get(needed),
        )


def _where_to_get(needed: str) -> str:
    if needed == "libc++_shared.so":
        return "Add libc++_shared.so of the NDK"
    if re.match(r"lib(c\+\+|unwind)", needed):
        return (
            "Add the C++ runtime: the *.libs folder of the wheel the library comes from, or the "
            "distribution's package libc++1"
        )
    if needed == "libcdsprpc.so":
        return (
            "The device has no FastRPC library, without which no DSP is reached: look in "
            "/vendor/lib64, or install qualcomm/fastrpc"
        )
    return f"Add {needed}, or install the package of the device's system that has it"
