"""How the systems that devices run differ, by target: one table, with the source of each fact.

Everything that is done differently on Android than on a Linux board is looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

Target = Literal["android-arm64", "linux-arm64", "linux-x64"]
TARGETS: Final[tuple[Target, ...]] = get_args(Target)


@dataclass(frozen=True)
class Platform:
    """What a target's system is like.

    `libc` and `interpreter` are what its programs are linked with; `machine` is the ELF machine.
    `dsp_folders` are where fastrpc looks for code of the DSP besides the folders that it is given.
    `library_folders` are where the vendor's own libraries lie (libcdsprpc.so): a program of the
    shell finds them without a library path. `opencl` are the places of an OpenCL driver.
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
    """The target of a device by what it reports, and why; None where none fits (pure).

    `machine` is what `uname -m` says, `android` whether it has Android's linker, `abis` the list
    in ro.product.cpu.abilist, which only Android has. A 64-bit kernel may run a 32-bit system: then
    the list knows it, and no library of 64 bits would load.
    """
    said = f"machine {machine or 'unknown'}" + (f", ABIs {','.join(abis)}" if abis else "")
    if machine in ("aarch64", "arm64"):
        if not android:
            return "linux-arm64", said
        if abis and "arm64-v8a" not in abis:
            return None, f"{said}: an Android of 32 bits"
        return "android-arm64", said
    if machine == "x86_64":
        return (None, f"{said}: an Android for x86") if android else ("linux-x64", said)
    if machine and machine.startswith("arm"):
        return None, f"{said}: a system of 32 bits"
    return None, said


def process_environment(target: str, folders: Sequence[str]) -> dict[str, str]:
    """What a process needs in its environment to use libraries in these folders there (pure)."""
    return {
        "LD_LIBRARY_PATH": ":".join(folders),
        "ADSP_LIBRARY_PATH": ";".join((*folders, *PLATFORMS[target].dsp_folders)),
    }
