"""Tables of Qualcomm SoCs, of the systems on them, and of the limits of simulated ones.

All differences between Android and Linux boards are looked up here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from harness.core.error_codes import same_code
from harness.core.versions import QnnVersion


@dataclass(frozen=True)
class Soc:
    """One SoC by its marketing part number.

    `htp_arch` is 73 for v73, None for a DSP without HTP. `soc_model` is the id that QNN and ORT
    use, `soc_id` the kernel's in /sys/devices/soc0/soc_id. `vtcm_mb` in MiB, `adreno` the GPU's
    model number; None where no public source was found.
    """

    name: str
    htp_arch: int | None
    soc_model: int
    vtcm_mb: int | None = None
    adreno: str | None = None
    soc_id: int | None = None


# Ids and VTCM: QAIRT SDK docs ("Supported Snapdragon devices") and pytorch/executorch's
# backends/qualcomm SoC table. Adreno 612 of QCS610: microsoft/onnxruntime#24004; the others are
# the GPUs that the makers of the SoCs name. Kernel ids: dt-bindings/arm/qcom,ids.h of Linux.
# Older SDKs use 35 for QCM6490 and QCS6490.
_TABLE: Final = (
    Soc("SM8350", 68, 30, 4, soc_id=439),
    Soc("SA8295", 68, 39, 8),
    Soc("QCM6490", 68, 93, 2, "643", soc_id=497),
    Soc("QCS6490", 68, 93, 2, "643", soc_id=498),
    Soc("SM8450", 69, 36, 8, "730", soc_id=457),
    Soc("SM8475", 69, 42, 8, soc_id=530),
    Soc("SXR2230P", 69, 53, 8),
    Soc("SM8550", 73, 43, 8, "740", soc_id=519),
    Soc("QCS8550", 73, 43, 8, "740", soc_id=603),
    Soc("SA8255", 73, 52, 8),
    Soc("QCS9100", 73, 77, 8, soc_id=667),
    Soc("SSG2115P", 73, 46, 2),
    Soc("SC8380XP", 73, 60, soc_id=555),
    Soc("SM8650", 75, 57, 8, "750", soc_id=557),
    Soc("SM8750", 79, 69, 8, "830", soc_id=618),
    Soc("SXR2330P", 79, 75, 8),
    Soc("SM8850", 81, 87, 8, "840"),
    Soc("SM8845", 81, 97, 8),
    Soc("SA8797", 81, 72, 16),
    Soc("QCS610", None, 16, None, "612"),
    Soc("QCS410", None, 33),
    Soc("SM8250", None, 21),
)

DEVICE_PD_BYTES: Final = 3840 << 20
"""The size of a DSP's protection domain: 4 GiB of addresses, of which about 3.75 are usable.

QAIRT SDK docs, "Multiple cDSP Sessions". One context cannot span two.
"""

SOCS: Final[Mapping[str, Soc]] = MappingProxyType({soc.name: soc for soc in _TABLE})
KERNEL_SOC_IDS: Final[Mapping[str, int]] = MappingProxyType(
    {soc.name: soc.soc_id for soc in _TABLE if soc.soc_id is not None}
)
HTP_ARCHS: Final[tuple[int, ...]] = tuple(
    sorted({soc.htp_arch for soc in _TABLE if soc.htp_arch is not None})
)


def near_socs(name: str) -> list[str]:
    """Return the names in the table that are close to an unknown name."""
    return difflib.get_close_matches(name.upper()[:40], SOCS, n=3, cutoff=0.6)


Target = Literal["android-arm64", "linux-arm64", "linux-x64"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)
HOST_TARGET: Final = "linux-x64"
"""The target of what runs on this computer: the simulator, compilers, readers of binaries."""


@dataclass(frozen=True)
class Platform:
    """The system of a target.

    Its programs are linked with `libc` and `interpreter`; `machine` is the ELF machine.
    `dsp_folders` are those in which fastrpc looks for code of the DSP by default.
    `library_folders` are those of the vendor's own libraries (libcdsprpc.so): a program started
    from the shell finds them without a library path. `opencl` are the paths of an OpenCL driver.
    """

    libc: Literal["glibc", "bionic"]
    machine: Literal["aarch64", "x86-64"]
    interpreter: str
    dsp_folders: tuple[str, ...]
    library_folders: tuple[str, ...]
    opencl: tuple[str, ...]
    has_dsp: bool


# QAIRT docs, HTP backend: running a model on a device
_DSP_FOLDERS: Final = ("/vendor/dsp/cdsp", "/vendor/lib/rfsa/adsp", "/system/lib/rfsa/adsp", "/dsp")

PLATFORMS: Final[Mapping[str, Platform]] = MappingProxyType(
    {
        "android-arm64": Platform(
            libc="bionic",
            machine="aarch64",
            interpreter="/system/bin/linker64",
            dsp_folders=_DSP_FOLDERS,
            # AOSP, system/linkerconfig baseconfig.cc and the golden ld.config.txt: dir.unrestricted
            # = /data/local/tmp, whose default namespace is not isolated and searches /system,
            # /system_ext, /odm, /vendor, /product; an app lives in a namespace of its own, so that
            # success from a shell proves nothing for it (qualcomm/fastrpc#379)
            library_folders=(
                "/vendor/lib64",
                "/odm/lib64",
                "/system/vendor/lib64",
                "/system/lib64",
            ),
            # AOSP, public.libraries.txt of vendors; microsoft/onnxruntime#25122
            opencl=(
                "/vendor/lib64/libOpenCL.so",
                "/vendor/lib64/libOpenCL_adreno.so",
                "/system/vendor/lib64/libOpenCL.so",
                "/vendor/etc/OpenCL/vendors",
            ),
            has_dsp=True,
        ),
        "linux-arm64": Platform(
            libc="glibc",
            machine="aarch64",
            interpreter="/lib/ld-linux-aarch64.so.1",
            # github.com/qualcomm/fastrpc, src/fastrpc_apps_user.c: default search paths;
            # linux-msm/hexagon-dsp-binaries installs to /usr/lib/dsp
            dsp_folders=(*_DSP_FOLDERS, "/usr/lib/dsp", "/usr/lib/dsp/cdsp", "/usr/lib/rfsa/adsp"),
            # the multiarch and lib64 folders of Debian and Yocto
            library_folders=(
                "/usr/lib",
                "/usr/lib64",
                "/usr/lib/aarch64-linux-gnu",
                "/vendor/lib64",
            ),
            # found there by qnn-platform-validator (rubikpi-ai/documentation#12)
            opencl=(
                "/usr/lib/libOpenCL.so.1",
                "/usr/lib64/libOpenCL.so.1",
                "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
                "/usr/lib/libOpenCL_adreno.so.1",
                "/vendor/lib64/libOpenCL.so",
                "/etc/OpenCL/vendors",
            ),
            has_dsp=True,
        ),
        "linux-x64": Platform(
            libc="glibc",
            machine="x86-64",
            interpreter="/lib64/ld-linux-x86-64.so.2",
            dsp_folders=(),
            library_folders=("/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"),
            opencl=("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1", "/usr/lib64/libOpenCL.so.1"),
            # the HTP is a simulator inside libQnnHtp.so for x86-64
            has_dsp=False,
        ),
    }
)

# toybox (Android), busybox (boards) and coreutils differ in the programs and options they have.
# Scripts for devices keep to what all three have; what they must not use, and since when it is
# there, by toybox' release notes (landley.net/toybox) and busybox' NEWS:
# - timeout: toybox has it since Android 8; `timeout -s KILL 3` is understood by all three
# - grep -H: toybox since Android 6; older ones print no file name
# - stat -c: no -c in some busybox builds: `ls -ld` and [ -r ] are asked instead
# - df -k: rows may break in two, and columns differ: numbers are read from the right
# - date +%s: all three; %N is missing in toybox before Android 9 and in busybox
# - getconf: toybox has it since Android 8, busybox does not
# - sha256sum: toybox since Android 6


def target_of(machine: str | None, *, android: bool, abis: Sequence[str]) -> tuple[str | None, str]:
    """Return a device's target, None if there is none, and the reason (pure).

    `machine` is the output of `uname -m`, `android` whether it has Android's linker, `abis` the
    list in ro.product.cpu.abilist, which only Android has. A 64-bit kernel may run a 32-bit system,
    which the list shows, and which could not load a 64-bit library.
    """
    description = f"machine {machine or 'unknown'}" + (f", ABIs {','.join(abis)}" if abis else "")
    if machine in ("aarch64", "arm64"):
        if not android:
            return "linux-arm64", description
        if abis and "arm64-v8a" not in abis:
            return None, f"{description}: a 32-bit Android"
        return "android-arm64", description
    if machine == "x86_64":
        return (None, f"{description}: Android for x86") if android else ("linux-x64", description)
    if machine and machine.startswith("arm"):
        return None, f"{description}: a 32-bit system"
    return None, description


def process_environment(target: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a process that uses the libraries in folders (pure)."""
    return {
        "LD_LIBRARY_PATH": ":".join(folders),
        "ADSP_LIBRARY_PATH": ";".join((*folders, *PLATFORMS[target].dsp_folders)),
    }


LIMITED_SINCE: Final = "2.49.40"
"""The first QNN whose HTP simulator enforces the size of a protection domain; found by trial."""
_MEMORY: Final = 1002

Claim = Literal["capacity", "version", "speed"]
"""Kinds of conclusions: how much fits; the version of a change; how long something takes."""


def claim_of(code: int | None) -> Claim:
    """Return the kind of claim for a change between versions, by the code of its failure."""
    return "capacity" if code is not None and same_code(code, _MEMORY) else "version"


def limits_of_simulation(
    claim: Claim, target: str | None, versions: Iterable[str | None], *, simulated: bool = True
) -> str | None:
    """Describe the limits of a claim that rests on simulated devices alone; None if it does not.

    `target` is that of their libraries, `versions` are the QNN versions that ran.
    """
    if not simulated:
        return None
    if claim == "speed":
        return "these times come from a simulator and say nothing about a phone"
    if target != "linux-x64":
        return (
            "its DSP is emulated: the libraries are those for devices, but on a phone other "
            "programs share the DSP's memory, and the driver may answer differently"
        )
    if claim == "version":
        return (
            "it ran on Qualcomm's simulator; the same versions for devices may behave differently"
        )
    parsed = sorted(filter(None, map(QnnVersion.found_in, dict.fromkeys(versions))))
    since = QnnVersion.parse(LIMITED_SINCE)
    free = [str(version) for version in parsed if version < since]
    if free and len(free) == len(parsed):
        return (
            f"the simulator of QNN {', '.join(free)} has no memory limit (those from "
            f"{LIMITED_SINCE} on have one), so it does not show what fits on a device"
        )
    if free:
        return (
            f"simulators have a memory limit from {LIMITED_SINCE} on, those of {', '.join(free)} "
            "have none: a memory failure that begins there is a change of the simulator, not of "
            "the libraries for devices"
        )
    return "this memory limit is the simulator's (one protection domain); a device has its own"
