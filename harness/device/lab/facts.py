"""What a device says about itself, asked in one round trip and parsed without trust."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from harness.device.simulator.properties import SIMULATED_HARDWARE
from harness.device.transport.questions import (
    boot_of,
    first_line,
    free_storage,
    integer,
    memory,
    script_of,
    sections_of,
)
from harness.ground.facts.platforms import Target, target_of

_MAX_SIGNS: Final = 32
_SIGN: Final = re.compile(r"(dsp|gpu_compiler|gpu) (\S.{0,199})")

_MAX_ABIS = 16
_ABI = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PROPERTY = re.compile(r"^\[([^\]]{1,128})\]: \[(.*)\]$")

SCRIPT: Final = script_of(
    "machine kernel libc pages properties release memory storage soc soc-id gpu soc-serial "
    "machine-id boot coprocessors"
)


@dataclass(frozen=True)
class DeviceFacts:
    """What was learnt; None where the device did not say.

    `soc` is the marketing-free name (ro.soc.model or /sys/devices/soc0/machine), `soc_id` the
    kernel's number, which is not the soc_model id that QNN uses. `free_storage_bytes` is that of
    the file system the harness works on; `ram_bytes` is MemTotal. `serial_number` is ro.serialno;
    `identity` tells a device from others like it, also after a reboot: that, its SoC number and its
    machine-id, as far as it says them. `simulated`: it says that it is one of a simulated farm.
    `boot` names its present boot. `libc` is what tells its C library; `android_api` is the API
    level, of Android only; `target_reason` says what the target was told by, or why there is none.
    `loses_adb`: a reboot ends its adb on the network, as far as it is known. `page_bytes` is how
    large pages of its memory are. `coprocessors` is what it shows of DSP and GPU.
    """

    target: Target | None
    machine: str | None
    soc: str | None
    soc_id: int | None
    adreno: str | None
    os_build: str | None
    free_storage_bytes: int | None
    ram_bytes: int | None
    serial_number: str | None = None
    identity: tuple[str, ...] = ()
    boot: str | None = None
    android_api: int | None = None
    target_reason: str = ""
    libc: str | None = None
    page_bytes: int | None = None
    loses_adb: bool = False
    coprocessors: Coprocessors | None = None
    simulated: bool = False

    @property
    def glibc(self) -> str | None:
        """Its version as in 2.35; None if the C library is another, or not known."""
        said = re.fullmatch(
            r"(?:glibc|ldd \(.+\)) (\d{1,4}\.\d{1,4})[.\d]*", self.libc or "", re.ASCII
        )
        return said[1] if said else None


def parse_facts(text: str) -> DeviceFacts:
    """Reads the answer to SCRIPT; whatever is missing or malformed becomes None."""
    sections = sections_of(text)
    properties = _properties(sections.get("properties", []))
    machine = first_line(sections, "machine")
    libc = first_line(sections, "libc")
    android = libc == "bionic"
    soc = properties.get("ro.soc.model") or first_line(sections, "soc")
    serial = _name(properties.get("ro.serialno") or properties.get("ro.boot.serialno"))
    target, reason = target_of(machine, android=android, abis=_abis(properties))
    return DeviceFacts(
        target=cast("Target | None", target),
        machine=machine,
        soc=soc,
        soc_id=integer(first_line(sections, "soc-id")),
        adreno=_adreno(first_line(sections, "gpu") or properties.get("ro.hardware.gpu_model")),
        os_build=_os_build(properties, sections),
        free_storage_bytes=free_storage(sections.get("storage", [])),
        ram_bytes=memory(sections, "MemTotal"),
        serial_number=serial,
        identity=_identity(serial, sections),
        boot=boot_of(sections),
        android_api=integer(properties.get("ro.build.version.sdk")) if android else None,
        target_reason=reason,
        libc=libc,
        loses_adb=_loses_adb(properties),
        page_bytes=integer(first_line(sections, "pages")),
        coprocessors=parse_coprocessors(sections),
        simulated=properties.get("ro.hardware") == SIMULATED_HARDWARE,
    )


def _properties(lines: list[str]) -> dict[str, str]:
    return {match[1]: match[2] for line in lines if (match := _PROPERTY.match(line))}


def _loses_adb(properties: Mapping[str, str]) -> bool:
    """Wireless debugging is off after a boot without its Wi-Fi, and so is `adb tcpip`
    (AdbDebuggingManager; adbd's main.cpp), but for a port that is set for good."""
    ports = (properties.get(f"service.adb.{kind}.port") for kind in ("tls", "tcp"))
    is_open = any((integer(port) or 0) > 0 for port in ports)
    return is_open and not integer(properties.get("persist.adb.tcp.port"))


def _abis(properties: dict[str, str]) -> tuple[str, ...]:
    listed = properties.get("ro.product.cpu.abilist", "") or properties.get(
        "ro.product.cpu.abi", ""
    )
    return tuple(abi for abi in listed.split(",")[:_MAX_ABIS] if _ABI.fullmatch(abi))


def _adreno(text: str | None) -> str | None:
    found = re.search(r"(\d{3,4})", text or "")
    return found[1] if found else None


def _os_build(properties: dict[str, str], sections: dict[str, list[str]]) -> str | None:
    release = properties.get("ro.build.version.release")
    if release:
        build = properties.get("ro.build.id") or properties.get("ro.build.display.id")
        return f"Android {release}" + (f" ({build})" if build else "")
    for line in sections.get("release", []):
        if line.startswith("PRETTY_NAME="):
            return line.removeprefix("PRETTY_NAME=").strip("\"'") or None
    return first_line(sections, "kernel")


def _identity(serial: str | None, sections: dict[str, list[str]]) -> tuple[str, ...]:
    said = (
        ("serial number", serial),
        ("SoC serial number", _name(first_line(sections, "soc-serial"))),
        ("machine-id", _name(first_line(sections, "machine-id"))),
    )
    return tuple(f"{kind} {name}" for kind, name in said if name is not None)


def _name(text: str | None) -> str | None:
    if not text or not re.fullmatch(r"[A-Za-z0-9._:-]{4,128}", text):
        return None
    return None if text in ("unknown", "uninitialized") or not text.strip("0") else text


@dataclass(frozen=True)
class Coprocessors:
    """Paths that show a DSP for HTP and a GPU for OpenCL; none: the device shows none.

    `gpu_compiler` is what libQnnGpu.so for x86-64 takes for an offline compiler: with it that
    backend prepares graphs, and executes none.
    """

    dsp: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    gpu_compiler: tuple[str, ...] = ()


def parse_coprocessors(sections: Mapping[str, Sequence[str]]) -> Coprocessors | None:
    """What a device's answer says of them; None if the device did not answer it to the end."""
    lines = sections.get("coprocessors", [])
    if "looked" not in lines:
        return None
    found: dict[str, list[str]] = {"dsp": [], "gpu": [], "gpu_compiler": []}
    for line in lines:
        sign = _SIGN.fullmatch(line)
        if sign and len(found[sign[1]]) < _MAX_SIGNS:
            found[sign[1]].append(sign[2])
    return Coprocessors(*map(tuple, found.values()))
