"""A device's words about itself: facts, health and answers to the doctor, parsed defensively.

Words and numbers are those of AOSP's sources for Android 13 to 16 (frameworks/base:
BatteryService, DeviceIdleController, ThermalManagerService). No phone has confirmed them yet; what
an Android does not say is not known, never a fault.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from harness.core.errors import DeviceError
from harness.core.matrix_axes import RPC_LIBRARY
from harness.core.socs import PLATFORMS, Platform, Target, target_of
from harness.simulator.boot_files import SIMULATED_HARDWARE
from harness.transport.device import Transport
from harness.transport.device_queries import (
    MAX_PATH,
    first_line,
    free_storage,
    integer,
    memory,
    parse_access,
    parse_boot_id,
    parse_sections,
    query_script,
)
from harness.transport.shell import Completed

_MAX_SIGNS: Final = 32
_SIGN: Final = re.compile(r"(dsp|gpu_compiler|gpu) (\S.{0,199})")

_MAX_ABIS = 16
_ABI = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PROPERTY = re.compile(r"^\[([^\]]{1,128})\]: \[(.*)\]$")

SCRIPT: Final = query_script(
    "machine kernel libc pages properties release memory storage soc soc-id gpu soc-serial "
    "machine-id boot coprocessors"
)


@dataclass(frozen=True)
class DeviceFacts:
    """Facts that a device reported; None where it did not report one.

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
        """The version of glibc, as in 2.35; None if the C library is another or unknown."""
        match = re.fullmatch(
            r"(?:glibc|ldd \(.+\)) (\d{1,4}\.\d{1,4})[.\d]*", self.libc or "", re.ASCII
        )
        return match[1] if match else None


def parse_facts(text: str) -> DeviceFacts:
    """Parse the answer to SCRIPT; whatever is missing or malformed becomes None."""
    sections = parse_sections(text)
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
        boot=parse_boot_id(sections),
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
    match = re.search(r"(\d{3,4})", text or "")
    return match[1] if match else None


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
    names = (
        ("serial number", serial),
        ("SoC serial number", _name(first_line(sections, "soc-serial"))),
        ("machine-id", _name(first_line(sections, "machine-id"))),
    )
    return tuple(f"{kind} {name}" for kind, name in names if name is not None)


def _name(text: str | None) -> str | None:
    if not text or not re.fullmatch(r"[A-Za-z0-9._:-]{4,128}", text):
        return None
    return None if text in ("unknown", "uninitialized") or not text.strip("0") else text


@dataclass(frozen=True)
class Coprocessors:
    """Paths that show a DSP for HTP and a GPU for OpenCL; empty if the device shows none.

    `gpu_compiler` is what libQnnGpu.so for x86-64 takes for an offline compiler: with it that
    backend prepares graphs, and executes none.
    """

    dsp: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    gpu_compiler: tuple[str, ...] = ()


def parse_coprocessors(sections: Mapping[str, Sequence[str]]) -> Coprocessors | None:
    """Parse the section of coprocessors; None if the device's answer is incomplete."""
    lines = sections.get("coprocessors", [])
    if "looked" not in lines:
        return None
    paths: dict[str, list[str]] = {"dsp": [], "gpu": [], "gpu_compiler": []}
    for line in lines:
        sign = _SIGN.fullmatch(line)
        if sign and len(paths[sign[1]]) < _MAX_SIGNS:
            paths[sign[1]].append(sign[2])
    return Coprocessors(*map(tuple, paths.values()))


THERMAL: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
"""Levels of `Thermal Status` (PowerManager.THERMAL_STATUS_*)."""
SEVERE: Final = 3
DOZING: Final = frozenset({"IDLE", "IDLE_MAINTENANCE"})
"""The states of `dumpsys deviceidle get deep` in which nothing may run but now and then."""
_MIN_C, _MAX_C = -60.0, 200.0
_MAX_LISTED = 64
_MAX_PUBLIC = 1000

VITALS_QUESTIONS: Final = (
    "boot booted uptime user memory writable storage battery supplies zones clocks thermal doze "
    "remoteprocs nodes"
)
VITALS_SCRIPT: Final = query_script(VITALS_QUESTIONS)
PUBLIC_SCRIPT: Final = query_script("public-libraries")
LOAD_SCRIPT: Final = query_script("before after")
"""Asks twice for the processors' counters; the difference is their load."""


@dataclass(frozen=True)
class Vitals:
    """Vital signs that a device reported; None or empty where it did not report one.

    `booted` is False only if an Android device says that it has not booted yet. `write_problem`
    is its error when a file could not be written into the work folder, None if it could.
    `hottest_c` is the hottest believable sensor in degrees Celsius and `hottest` its name.
    `clock_limit_khz` is what its fastest processors may clock at now, `governor` what clocks them.
    `thermal_status` is an index of THERMAL, `doze` the state of a phone's deep doze. `remoteprocs`
    maps names to states, `fastrpc` device nodes to whether we may read (r) and write (w) them.
    """

    boot_id: str | None = None
    booted: bool | None = None
    uptime_s: float | None = None
    is_root: bool | None = None
    free_ram_bytes: int | None = None
    free_storage_bytes: int | None = None
    write_problem: str | None = None
    battery_percent: int | None = None
    battery_charging: bool | None = None
    hottest_c: float | None = None
    hottest: str | None = None
    clock_limit_khz: int | None = None
    governor: str | None = None
    thermal_status: int | None = None
    doze: str | None = None
    remoteprocs: Mapping[str, str] = field(default_factory=dict)
    fastrpc: Mapping[str, str] = field(default_factory=dict)


def parse_vitals(text: str) -> Vitals | None:
    """Parse the answer to VITALS_SCRIPT; None if it is incomplete. Malformed parts become None."""
    sections = parse_sections(text)
    if "end" not in sections:
        return None
    percent, charging, battery_c = _battery(sections)
    heats = _zones(sections.get("zones", [])) | _thermal_service(sections.get("thermal", []))
    if battery_c is not None:
        heats["battery"] = battery_c
    heats = {name: heat for name, heat in heats.items() if _MIN_C < heat < _MAX_C}
    hottest = max(heats, key=lambda name: heats[name], default=None)
    clock, governor = _clocks(sections.get("clocks", []))
    booted = first_line(sections, "booted")
    user = integer(first_line(sections, "user"))
    written = sections.get("writable", [])
    doze = first_line(sections, "doze") or ""
    return Vitals(
        boot_id=parse_boot_id(sections),
        booted=None if booted is None else booted == "1",
        uptime_s=_decimal((first_line(sections, "uptime") or "").partition(" ")[0]),
        is_root=None if user is None else user == 0,
        free_ram_bytes=memory(sections, "MemAvailable"),
        free_storage_bytes=free_storage(sections.get("storage", [])),
        write_problem=None if "ok" in written else " ".join(written)[:300] or "no answer",
        battery_percent=percent,
        battery_charging=charging,
        hottest_c=None if hottest is None else heats[hottest],
        hottest=hottest,
        clock_limit_khz=clock,
        governor=governor,
        thermal_status=_thermal_status(sections.get("thermal", [])),
        doze=doze if re.fullmatch(r"[A-Z_]{1,40}", doze) else None,
        remoteprocs=_remoteprocs(sections.get("remoteprocs", [])),
        fastrpc={
            path.rsplit("/", 1)[-1]: access
            for path, access in parse_access(sections, "nodes").items()
        },
    )


def parse_load(text: str) -> float | None:
    """Parse the load of all processors, 0 to 1, from the answer to LOAD_SCRIPT."""
    sections = parse_sections(text)
    before = _counters(first_line(sections, "before"))
    after = _counters(first_line(sections, "after"))
    if before is None or after is None:
        return None
    passed = [new - old for old, new in zip(before, after, strict=True)]
    total = sum(passed)
    # the fourth is idle, the fifth waits for storage
    return None if total <= 0 or min(passed) < 0 else 1 - (passed[3] + passed[4]) / total


def _counters(line: str | None) -> list[int] | None:
    match = re.fullmatch(r"cpu\s+((?:\d{1,18}\s*){5,12})", line or "")
    return [int(number) for number in match[1].split()[:8]] if match else None


def _decimal(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d{1,12}(?:\.\d{1,6})?", text) else None


def _group_fields(lines: list[str]) -> dict[str, dict[str, str]]:
    """Parse lines of `.../NAME/FIELD:value` into {NAME: {FIELD: value}}."""
    fields: dict[str, dict[str, str]] = {}
    for line in lines[: 8 * _MAX_LISTED]:
        path, _, value = line.partition(":")
        *_, name, key = ("", "", *path.split("/"))
        if name and key and len(fields) < 4 * _MAX_LISTED:
            fields.setdefault(name, {})[key] = value.strip()[:100]
    return fields


def _percent(text: str | None) -> int | None:
    number = integer(text)
    return number if number is not None and number <= 100 else None


def _battery(sections: Mapping[str, list[str]]) -> tuple[int | None, bool | None, float | None]:
    """Return (percent, charging, degrees Celsius) from dumpsys, else from /sys."""
    values: dict[str, str] = {}
    for line in sections.get("battery", []):
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())
    if values.get("present") == "false":
        return None, None, None
    percent = _percent(values.get("level"))
    if percent is not None:
        # 2 is charging, 5 full: BatteryManager.BATTERY_STATUS_*
        charging = {"2": True, "5": True, "3": False, "4": False}.get(values.get("status", ""))
        tenths = _decimal(values.get("temperature", ""))
        return percent, charging, None if tenths is None else tenths / 10
    for supply in _group_fields(sections.get("supplies", [])).values():
        percent = _percent(supply.get("capacity"))
        if supply.get("type") == "Battery" and percent is not None:
            status = supply.get("status", "")
            tenths = _decimal(supply.get("temp", ""))
            charging = status in ("Charging", "Full") if status else None
            return percent, charging, None if tenths is None else tenths / 10
    return None, None, None


def _zones(lines: list[str]) -> dict[str, float]:
    """Parse zones; kernels give thousandths of a degree, some vendors tenths or whole degrees."""
    temperatures = {}
    for name, zone in _group_fields(lines).items():
        number = _decimal(zone.get("temp", ""))
        if number is None or number <= 0:
            continue  # a sensor that is switched off shows 0 or something impossible
        degrees = number / 1000 if number >= 1000 else number / 10 if number > 200 else number
        temperatures[zone.get("type") or name] = degrees
    return temperatures


def _clocks(lines: list[str]) -> tuple[int | None, str | None]:
    policies = _group_fields(lines).values()
    fastest = max(policies, key=lambda p: integer(p.get("scaling_max_freq")) or 0, default={})
    return integer(fastest.get("scaling_max_freq")), fastest.get("scaling_governor") or None


def _thermal_service(lines: list[str]) -> dict[str, float]:
    temperatures = {}
    for line in lines[: 4 * _MAX_LISTED]:
        value = re.search(r"mValue=(-?\d{1,6}(?:\.\d{1,8})?)", line)
        name = re.search(r"mName=([\w. -]{1,60})", line)
        if value and name:
            temperatures[name[1].strip()] = float(value[1])
    return temperatures


def _thermal_status(lines: list[str]) -> int | None:
    texts = (line.partition(":")[2] for line in lines if line.startswith("Thermal Status:"))
    status = integer(next(texts, "").strip())
    return None if status is None or status >= len(THERMAL) else status


def _remoteprocs(lines: list[str]) -> dict[str, str]:
    named = _group_fields(lines)
    return {
        part.get("name") or name: part["state"] for name, part in named.items() if "state" in part
    }


_MAX_DENIAL: Final = 400
_FRESH_S: Final = 600
# An ELF note of the linker's, in the hexadecimal digits of a file's head: NT_GNU_BUILD_ID of "GNU".
_BUILD_ID: Final = re.compile(r"04000000(?:08|10|14)00000003000000474e5500([0-9a-f]{16,40})")
NEEDED_PROGRAMS: Final = ("sha256sum", "tar", "ln", "df", "head", "id", "chmod")
"""Programs that the scripts of the store on a device call, besides those of every shell."""

SIGNED_SHELL: Final = "fastrpc_shell_3"
UNSIGNED_SHELL: Final = "fastrpc_shell_unsigned_3"
"""The shell that the DSP runs an unsigned process in; logs show it being opened
(github.com/qualcomm/GenieX/issues/989, github.com/qualcomm/fastrpc/issues/400)."""

QUESTIONS: Final = (
    "owners selinux who denials rpc rpc-builds shells skels opencl executable interpreter missing "
    "tools"
)


@dataclass(frozen=True)
class DeviceAnswers:
    """A device's answers to the doctor; empty or None where it gave none.

    Mappings are path or name to whether the shell user may read (r) and write (w) it. `exec_exit`
    is how a script that exits with 7 ended in the work folder, `exec_said` what was printed.
    `account` is the output of `id`, `denials` what SELinux refused of late, `rpc_builds` the file
    behind each libcdsprpc.so and its build id.
    """

    vitals: Vitals
    owners: tuple[str, ...] = ()
    selinux: str | None = None
    account: str | None = None
    denials: tuple[str, ...] = ()
    rpc_libraries: Mapping[str, str] = field(default_factory=dict)
    rpc_builds: Mapping[str, str] = field(default_factory=dict)
    shells: Mapping[str, str] = field(default_factory=dict)
    skels: Mapping[str, str] = field(default_factory=dict)
    opencl: Mapping[str, str] = field(default_factory=dict)
    exec_exit: int | None = None
    exec_said: str = ""
    has_interpreter: bool = False
    missing_programs: tuple[str, ...] = ()
    tools: str | None = None


_SEARCHED: Final = ("library_folders", "dsp_folders", "opencl")


def script_for(platform: Platform, workdir: str, *, root: str = "") -> str:
    """Return the script that asks a device of this kind everything."""
    script = query_script(
        f"{VITALS_QUESTIONS} {QUESTIONS}",
        interpreter=platform.interpreter,
        shells=f"{SIGNED_SHELL} {UNSIGNED_SHELL}",
        programs=" ".join(NEEDED_PROGRAMS),
        rpc=RPC_LIBRARY,
        fresh_s=str(_FRESH_S),
        **{name: " ".join(getattr(platform, name)) for name in _SEARCHED},
    )
    return f"set -- {shlex.quote(workdir)} {shlex.quote(root)}\n{script}"


def parse_answers(text: str) -> DeviceAnswers | None:
    """Parse the answer to the script; None if it is incomplete. Malformed parts are left out."""
    sections = parse_sections(text)
    vitals = parse_vitals(text)
    if vitals is None:
        return None
    selinux = first_line(sections, "selinux") or ""
    executed = " ".join(sections.get("executable", []))
    exit_match = re.search(r"\bexit (\d{1,3})$", executed)
    return DeviceAnswers(
        vitals=vitals,
        owners=tuple(line[:MAX_PATH] for line in sections.get("owners", [])[:20]),
        selinux={"1": "Enforcing", "0": "Permissive"}.get(selinux, selinux) or None,
        account=(first_line(sections, "who") or "")[:300] or None,
        denials=tuple(line[:_MAX_DENIAL] for line in sections.get("denials", [])[-16:]),
        rpc_libraries=parse_access(sections, "rpc"),
        rpc_builds=dict(map(_build, sections.get("rpc-builds", [])[:_MAX_LISTED])),
        shells=parse_access(sections, "shells"),
        skels=parse_access(sections, "skels"),
        opencl=parse_access(sections, "opencl"),
        exec_exit=int(exit_match[1]) if exit_match else None,
        exec_said=executed[:300],
        has_interpreter=first_line(sections, "interpreter") == "there",
        missing_programs=tuple(
            name for name in sections.get("missing", []) if name in NEEDED_PROGRAMS
        ),
        tools=first_line(sections, "tools"),
    )


def _build(line: str) -> tuple[str, str]:
    """Return a library's path, and its build: the name of the file itself and its build id."""
    name, _, rest = line.partition(" ")
    head, _, path = rest.partition(" ")
    note = _BUILD_ID.search(head)
    known = ([name] if name != RPC_LIBRARY else []) + ([f"build id {note[1]}"] if note else [])
    return path[:MAX_PATH], ", ".join(known)[:MAX_PATH] or "without a build id"


VITALS_S: Final = 16.0
"""The time limit of `ask_vitals`."""
_MAX_BYTES: Final = 1 << 20


def _ask(way: Transport, script: str, timeout_s: float, doing: str) -> Completed:
    return way.shell(script, timeout_s=timeout_s, max_output_bytes=_MAX_BYTES, doing=doing)


def read_facts(way: Transport, folder: str) -> DeviceFacts:
    """Ask a device about itself in one round trip; `folder` is where the harness will work.

    Raises DeviceError if it does not answer in time or answers endlessly.
    """
    answer = _ask(way, f"set -- {shlex.quote(folder)}\n{SCRIPT}", 15.0, "read its facts")
    if answer.truncated:
        raise DeviceError("its facts exceed 1 MiB", serial=way.serial)
    return parse_facts(answer.stdout.decode("utf-8", "replace"))


def ask_vitals(way: Transport, workdir: str, *, timeout_s: float = VITALS_S) -> Vitals:
    """Read a device's vitals in one round trip. Raises DeviceError."""
    script = f"set -- {shlex.quote(workdir)}\n{VITALS_SCRIPT}"
    answer = _ask(way, script, timeout_s, "read its health")
    vitals = parse_vitals(answer.stdout.decode("utf-8", "replace"))
    if vitals is None:
        problem = "its answer about its health is incomplete"
        raise DeviceError(problem, serial=way.serial, output=answer.stdout[-400:])
    return vitals


def ask_load(way: Transport) -> float | None:
    """Measure the load of a device's processors for one second, 0 to 1. Raises DeviceError."""
    answer = _ask(way, f"set -- ''\n{LOAD_SCRIPT}", 15.0, "measure its load")
    return parse_load(answer.stdout.decode("utf-8", "replace"))


def query_device(way: Transport, workdir: str, target: Target) -> DeviceAnswers:
    """Ask a device all questions of the doctor in one round trip. Raises DeviceError."""
    answer = _ask(way, script_for(PLATFORMS[target], workdir), 20.0, "read what doctor checks")
    answers = parse_answers(answer.stdout.decode("utf-8", "replace"))
    if answers is None:
        problem = "its answer to the checks of doctor is incomplete"
        raise DeviceError(problem, serial=way.serial, output=answer.stdout[-400:])
    return answers


def ask_public_libraries(way: Transport) -> frozenset[str] | None:
    """Return the libraries of 64 bits that an Android offers to apps; None if it does not tell.

    Raises DeviceError.
    """
    answer = _ask(way, f"set -- ''\n{PUBLIC_SCRIPT}", 15.0, "read its public libraries")
    lines = parse_sections(answer.stdout.decode("utf-8", "replace")).get("public-libraries", [])
    # a name, perhaps 32 or 64, a comment
    words = [line.partition("#")[0].split() for line in lines[:_MAX_PUBLIC]]
    return frozenset(word[0][:MAX_PATH] for word in words if word and "32" not in word) or None
